type Callback = (...given: readonly unknown[]) => void;

/** The timers of one run. Remaining ones can be counted and removed. */
export class RunTimers {
  readonly #pending = new Set<unknown>();

  /** The global functions, for the code of the run. */
  readonly functions = {
    setTimeout: (callback: Callback, ms?: number, ...given: readonly unknown[]): unknown => {
      const handle = setTimeout(() => {
        this.#pending.delete(handle);
        callback(...given);
      }, ms);
      this.#pending.add(handle);
      return handle;
    },
    setInterval: (callback: Callback, ms?: number, ...given: readonly unknown[]): unknown => {
      const handle = setInterval(callback, ms, ...given);
      this.#pending.add(handle);
      return handle;
    },
    setImmediate: (callback: Callback, ...given: readonly unknown[]): unknown => {
      const handle = setImmediate(() => {
        this.#pending.delete(handle);
        callback(...given);
      });
      this.#pending.add(handle);
      return handle;
    },
    clearTimeout: (handle: unknown): void => this.#clear(handle),
    clearInterval: (handle: unknown): void => this.#clear(handle),
    clearImmediate: (handle: unknown): void => this.#clear(handle),
  };

  get pending(): number {
    return this.#pending.size;
  }

  #clear(handle: unknown): void {
    this.#pending.delete(handle);
    clearTimeout(handle as NodeJS.Timeout);
    clearImmediate(handle as NodeJS.Immediate);
  }

  end(): void {
    for (const handle of [...this.#pending]) this.#clear(handle);
  }
}
