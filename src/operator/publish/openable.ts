/** A promise that is resolved from outside. */
export interface Openable {
  readonly opened: Promise<void>;
  open(this: void): void;
}

/** Returns a new one, unresolved. */
export function openable(): Openable {
  let open = (): void => {};
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { opened, open };
}
