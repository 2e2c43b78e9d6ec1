/** A promise, and the function that resolves it. */
export interface Deferred {
  readonly promise: Promise<void>;
  resolve(this: void): void;
}

/** Returns a new, unresolved {@link Deferred}. */
export function deferred(): Deferred {
  let resolve = (): void => {};
  const promise = new Promise<void>((done) => {
    resolve = done;
  });
  return { promise, resolve };
}
