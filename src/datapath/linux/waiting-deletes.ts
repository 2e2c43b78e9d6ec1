import type { Clock } from '../../base/clock.ts';

/** Delay of the next call of `whenAllowed` after it rejected. */
const RETRY_MS = 1000;

export interface WaitingDeletesOptions {
  readonly clock: Pick<Clock, 'after'>;
  readonly nextTurn: (callback: () => void) => unknown;
  /** Resolves when the deletes that are due now are allowed. If it rejects, it is called again. */
  readonly whenAllowed: () => Promise<void>;
  /** Receives the keys whose wait has ended. */
  readonly allow: (keys: Iterable<string>) => void;
}

/**
 * Deletes that must wait until they are allowed. Deletes that arrive during a wait belong to a later change, so they
 * wait for the next one. At most one wait runs and one more is planned.
 */
export class WaitingDeletes implements Disposable {
  readonly #options: WaitingDeletesOptions;
  #current = new Set<string>();
  #next = new Set<string>();
  /** Callers that wait until the keys of `#current` or `#next` do not wait any more. */
  #afterCurrent: (() => void)[] = [];
  #afterNext: (() => void)[] = [];
  #isWaiting = false;
  #isClosed = false;

  constructor(options: WaitingDeletesOptions) {
    this.#options = options;
  }

  get size(): number {
    return this.#current.size + this.#next.size;
  }

  has(key: string): boolean {
    return this.#current.has(key) || this.#next.has(key);
  }

  /** Adds a key, unless it is in the current wait. */
  add(key: string): void {
    if (this.#current.has(key)) return;
    this.#next.add(key);
    this.#begin();
  }

  delete(key: string): void {
    this.#current.delete(key);
    this.#next.delete(key);
    if (this.size === 0) this.#resolveWaiters();
  }

  /** Resolves when no key that waits now still waits, or on dispose. Later keys do not matter. */
  currentAllowed(): Promise<void> {
    if (this.size === 0 || this.#isClosed) return Promise.resolve();
    const waiters = this.#next.size > 0 ? this.#afterNext : this.#afterCurrent;
    return new Promise((resolve) => {
      waiters.push(resolve);
    });
  }

  [Symbol.dispose](): void {
    this.#isClosed = true;
    this.#resolveWaiters();
  }

  #resolveWaiters(): void {
    for (const resolve of [...this.#afterCurrent.splice(0), ...this.#afterNext.splice(0)]) resolve();
  }

  #begin(): void {
    if (this.#isWaiting || this.#next.size === 0) return;
    this.#isWaiting = true;
    this.#options.nextTurn(() => {
      this.#current = this.#next;
      this.#next = new Set();
      this.#afterCurrent = this.#afterNext;
      this.#afterNext = [];
      this.#wait();
    });
  }

  #wait(): void {
    const { clock, whenAllowed } = this.#options;
    whenAllowed().then(
      () => this.#end(),
      () =>
        clock.after(RETRY_MS, () => {
          if (!this.#isClosed) this.#wait();
        }),
    );
  }

  #end(): void {
    const keys = this.#current;
    this.#current = new Set();
    this.#isWaiting = false;
    this.#options.allow(keys);
    for (const resolve of this.#afterCurrent.splice(0)) resolve();
    if (this.#next.size === 0) this.#resolveWaiters();
    this.#begin();
  }
}
