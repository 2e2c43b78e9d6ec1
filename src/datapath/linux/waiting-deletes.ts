import type { Clock } from '../../base/clock.ts';

/** Delay of the next call of `whenAllowed` after it rejected. */
const RETRY_MS = 1000;

export interface WaitingDeletesOptions {
  readonly clock: Pick<Clock, 'after'>;
  readonly nextTurn: (callback: () => void) => unknown;
  /** Resolves when the deletes due now are allowed. If it rejects, it is called again. */
  readonly whenAllowed: () => Promise<void>;
  /** Receives the keys whose wait has ended. */
  readonly allow: (keys: Iterable<string>) => void;
}

/**
 * Deletes which must wait until they are allowed. Deletes arriving during a wait belong to a later change, so they
 * wait for the next one. At most one wait runs and one more is planned.
 */
export class WaitingDeletes implements Disposable {
  readonly #options: WaitingDeletesOptions;
  /** The keys of the running wait, and those of the planned one. */
  #waiting = new Set<string>();
  #planned = new Set<string>();
  /** Resolvers of {@link WaitingDeletes.presentAllowed} for the end of the running wait, and of the planned one. */
  #afterWait: (() => void)[] = [];
  #afterPlanned: (() => void)[] = [];
  #isWaiting = false;
  #isClosed = false;

  constructor(options: WaitingDeletesOptions) {
    this.#options = options;
  }

  get size(): number {
    return this.#waiting.size + this.#planned.size;
  }

  has(key: string): boolean {
    return this.#waiting.has(key) || this.#planned.has(key);
  }

  /** Adds a key, unless it is in the running wait. */
  add(key: string): void {
    if (this.#waiting.has(key)) return;
    this.#planned.add(key);
    this.#begin();
  }

  delete(key: string): void {
    this.#waiting.delete(key);
    this.#planned.delete(key);
    if (this.size === 0) this.#resolveWaiters();
  }

  /** Resolves when the present keys have been allowed or deleted, or on dispose. */
  presentAllowed(): Promise<void> {
    if (this.size === 0 || this.#isClosed) return Promise.resolve();
    const waiters = this.#planned.size > 0 ? this.#afterPlanned : this.#afterWait;
    return new Promise((resolve) => {
      waiters.push(resolve);
    });
  }

  [Symbol.dispose](): void {
    this.#isClosed = true;
    this.#resolveWaiters();
  }

  #resolveWaiters(): void {
    for (const resolve of [...this.#afterWait.splice(0), ...this.#afterPlanned.splice(0)]) resolve();
  }

  #begin(): void {
    if (this.#isWaiting || this.#planned.size === 0) return;
    this.#isWaiting = true;
    this.#options.nextTurn(() => {
      this.#waiting = this.#planned;
      this.#planned = new Set();
      this.#afterWait = this.#afterPlanned;
      this.#afterPlanned = [];
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
    const keys = this.#waiting;
    this.#waiting = new Set();
    this.#isWaiting = false;
    this.#options.allow(keys);
    for (const resolve of this.#afterWait.splice(0)) resolve();
    if (this.#planned.size === 0) this.#resolveWaiters();
    this.#begin();
  }
}
