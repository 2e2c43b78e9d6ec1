/** A promise that is resolved from outside. */
export interface Deferred {
  readonly promise: Promise<void>;
  resolve(this: void): void;
}

/** Returns a new one, unresolved. */
export function deferred(): Deferred {
  let resolve = (): void => {};
  const promise = new Promise<void>((done) => {
    resolve = done;
  });
  return { promise, resolve };
}
