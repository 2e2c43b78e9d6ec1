/** Receives the error that a guarded callback threw, or the reason of a rejected promise that it returned. */
export type FaultListener = (error: unknown) => void;

/**
 * Calls the callbacks of users (listeners, sinks, reports) so that a fault in one does not affect the others (I7). A
 * *fault* is an error of a callback; it is counted and reported to `onFault`. Callbacks are synchronous. If
 * one returns a promise, the promise is not awaited, but its rejection is a fault, because an unhandled rejection would
 * end the process. No method throws. A fault of `onFault` itself is counted but not reported.
 */
export class CallbackGuard {
  readonly #onFault: FaultListener | undefined;
  #faults = 0;

  constructor(onFault?: FaultListener) {
    this.#onFault = onFault;
  }

  /** Number of faults since the guard was created. */
  get faults(): number {
    return this.#faults;
  }

  /**
   * Calls `callback` with `args` and without `this`; if it is undefined, nothing is called. Returns true if the call
   * returned, false if it threw. To avoid an allocation per call, pass `args` instead of a closure.
   */
  call<A extends readonly unknown[]>(callback: ((...args: A) => unknown) | undefined, ...args: A): boolean {
    if (callback === undefined) return true;
    try {
      const result = callback(...args);
      if (result !== undefined) this.#watch(result);
      return true;
    } catch (error) {
      this.report(error);
      return false;
    }
  }

  /** Counts and reports a fault that was caught elsewhere, for example from a callback whose promise is awaited. */
  report(error: unknown): void {
    this.#faults++;
    if (this.#onFault === undefined) return;
    try {
      const result: unknown = this.#onFault(error);
      if (isThenable(result)) Promise.resolve(result).then(undefined, () => this.#faults++);
    } catch {
      this.#faults++;
    }
  }

  #watch(result: unknown): void {
    if (isThenable(result)) Promise.resolve(result).then(undefined, (error: unknown) => this.report(error));
  }
}

function isThenable(value: unknown): value is PromiseLike<unknown> {
  return typeof value === 'object' && value !== null && 'then' in value && typeof value.then === 'function';
}
