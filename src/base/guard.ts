/** Receives what a guarded callback threw, or the reason with which the promise that it returned was rejected. */
export type FaultListener = (error: unknown) => void;

/**
 * Calls the callbacks of users (listeners, sinks, reports) so that a fault in one reaches no other (I7). A *fault* is
 * what the callback throws; it is counted and reported to `onFault`. Callbacks are synchronous: the promise of one that
 * returns a promise is not awaited, but its rejection is a fault too, instead of an unhandled rejection, which ends the
 * process. No method throws, whatever callbacks do: a fault of `onFault` itself is counted, and not reported.
 */
export class CallbackGuard {
  readonly #onFault: FaultListener | undefined;
  #faults = 0;

  constructor(onFault?: FaultListener) {
    this.#onFault = onFault;
  }

  /** Faults since the guard was made. */
  get faults(): number {
    return this.#faults;
  }

  /**
   * Calls `callback` with `args`, without `this`; `undefined` is a callback that does nothing. Returns whether the call
   * returned. Allocates nothing where `callback` is no closure: pass what it needs in `args`.
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

  /** Counts and reports a fault that was caught elsewhere, such as that of a callback whose promise is awaited. */
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
