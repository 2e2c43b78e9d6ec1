import { type Backoff, backoffDelay } from '../../base/backoff.ts';
import type { Clock, Random, Timer } from '../../base/clock.ts';
import type { SyscallError } from './syscall/syscall-error.ts';

const BACKOFF: Backoff = { baseMs: 200, capMs: 30_000 };
/** Minimum delay of a retry: jitter alone could retry a table whose writes all fail immediately. */
const MIN_DELAY_MS = 100;

/** A key whose write or delete failed and is retried. */
export interface FailingKey {
  readonly key: string;
  readonly reason: string;
  readonly attempts: number;
}

interface Failure {
  readonly error: SyscallError;
  readonly attempts: number;
  readonly retryAt: number;
}

/** The keys of a table whose last write or delete failed. Each is retried with backoff until it is deleted here. */
export class FailingKeys implements Disposable {
  readonly #clock: Pick<Clock, 'now' | 'after'>;
  readonly #random: Random;
  readonly #retry: (key: string) => void;
  readonly #failures = new Map<string, Failure>();
  /** The timer of the earliest retry. */
  #timer: Timer | undefined;
  #nextRetryAt: number = Number.POSITIVE_INFINITY;

  constructor(clock: Pick<Clock, 'now' | 'after'>, random: Random, retry: (key: string) => void) {
    this.#clock = clock;
    this.#random = random;
    this.#retry = retry;
  }

  get size(): number {
    return this.#failures.size;
  }

  has(key: string): boolean {
    return this.#failures.has(key);
  }

  keys(): IterableIterator<string> {
    return this.#failures.keys();
  }

  add(key: string, error: SyscallError): void {
    const attempts = (this.#failures.get(key)?.attempts ?? 0) + 1;
    const retryAt = this.#clock.now() + MIN_DELAY_MS + backoffDelay(attempts, BACKOFF, this.#random);
    this.#failures.set(key, { error, attempts, retryAt });
    this.#scheduleRetry(retryAt);
  }

  delete(key: string): void {
    this.#failures.delete(key);
  }

  /** Returns the first `count` keys. */
  list(count: number): readonly FailingKey[] {
    const listed: FailingKey[] = [];
    for (const [key, { error, attempts }] of this.#failures) {
      if (listed.push({ key, reason: error.message, attempts }) === count) break;
    }
    return listed;
  }

  [Symbol.dispose](): void {
    this.#timer?.cancel();
  }

  #scheduleRetry(at: number): void {
    if (at >= this.#nextRetryAt) return;
    this.#timer?.cancel();
    this.#nextRetryAt = at;
    const delay = Math.max(at - this.#clock.now(), MIN_DELAY_MS);
    this.#timer = this.#clock.after(delay, () => this.#retryDueKeys());
  }

  #retryDueKeys(): void {
    this.#timer = undefined;
    this.#nextRetryAt = Number.POSITIVE_INFINITY;
    const now = this.#clock.now();
    let next = Number.POSITIVE_INFINITY;
    for (const [key, { retryAt }] of this.#failures) {
      if (retryAt <= now) this.#retry(key);
      else next = Math.min(next, retryAt);
    }
    this.#scheduleRetry(next);
  }
}
