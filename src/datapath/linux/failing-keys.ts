import { type Backoff, backoffDelay } from '../../base/backoff.ts';
import type { Clock, Random, Timer } from '../../base/clock.ts';
import type { SyscallError } from './syscall/syscall-error.ts';

const BACKOFF: Backoff = { baseMs: 200, capMs: 30_000 };
/** Keys are retried in ticks. Minimum delay: one, because jitter alone could retry them immediately. */
const TICK_MS = 100;
/** Maximum number of keys retried in a turn of the event loop. */
const CHUNK = 256;

/** A key whose write or delete failed and is retried. */
export interface FailingKey {
  readonly key: string;
  readonly reason: string;
  readonly attempts: number;
}

interface Failure {
  readonly error: SyscallError;
  readonly attempts: number;
  /** The tick of the retry. */
  readonly tick: number;
}

/** The keys of a table whose last write or delete failed. Each is retried with backoff until it is deleted here. */
export class FailingKeys implements Disposable {
  readonly #clock: Pick<Clock, 'now' | 'after'>;
  readonly #random: Random;
  readonly #retry: (key: string) => void;
  readonly #failures = new Map<string, Failure>();
  /** The keys to retry by tick, including keys deleted since. */
  readonly #due = new Map<number, string[]>();
  /** The timer of the earliest tick. */
  #timer: Timer | undefined;
  #nextTick: number = Number.POSITIVE_INFINITY;

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
    const retryAt = this.#clock.now() + TICK_MS + backoffDelay(attempts, BACKOFF, this.#random);
    const tick = Math.ceil(retryAt / TICK_MS);
    this.#failures.set(key, { error, attempts, tick });
    const keys = this.#due.get(tick);
    if (keys === undefined) this.#due.set(tick, [key]);
    else keys.push(key);
    this.#schedule(tick);
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

  #schedule(tick: number): void {
    if (tick >= this.#nextTick) return;
    this.#timer?.cancel();
    this.#nextTick = tick;
    const delay = Math.max(1, tick * TICK_MS - this.#clock.now());
    this.#timer = this.#clock.after(delay, () => this.#retryDueKeys(tick));
  }

  #retryDueKeys(tick: number): void {
    this.#timer = undefined;
    this.#nextTick = Number.POSITIVE_INFINITY;
    const keys = this.#due.get(tick) ?? [];
    for (const key of keys.splice(-CHUNK)) if (this.#failures.get(key)?.tick === tick) this.#retry(key);
    if (keys.length === 0) this.#due.delete(tick);
    this.#schedule(Math.min(...this.#due.keys()));
  }
}
