import { assert } from '../base/assert.ts';
import type { Clock } from '../base/clock.ts';
import { sleep } from '../base/sleep.ts';
import { abortedError } from './errors.ts';

/** How many calls a client makes: upstream's `etcd.qps`, `etcd.bootstrapQps` and `etcd.maxInflight`. */
export interface RateLimitOptions {
  /** Calls per second once `bootstrapped` was called. Default: as many as are asked for. */
  readonly qps?: number | undefined;
  /** Calls per second until then; default `qps`. Much is written at a start. */
  readonly bootstrapQps?: number | undefined;
  /** Calls under way at a time; default `qps`, at least 1. */
  readonly maxInflight?: number | undefined;
}

/**
 * Spreads calls over time, in the order in which they were made: at most as many at once as belong to one second,
 * then one after the other. What a thousand clients ask of a kvstore that has just come back stays bearable.
 */
export class RateLimit {
  readonly #clock: Clock;
  readonly #qps: number;
  #perSecond: number;
  /** When the next call has its turn, if calls had come evenly. */
  #next: number;
  #waiting = 0;
  /** How many more calls may be under way. */
  #free: number;
  /** Those who wait until there is one less, first come, first served. */
  readonly #entering = new Set<() => void>();

  constructor(options: RateLimitOptions, clock: Clock) {
    const { qps = Number.POSITIVE_INFINITY, bootstrapQps = qps, maxInflight = Math.max(1, qps) } = options;
    assert(qps > 0 && bootstrapQps > 0, `a rate must be above 0: ${qps}, ${bootstrapQps}`);
    assert(maxInflight >= 1, `at least one call must be possible: ${maxInflight}`);
    this.#free = Math.floor(maxInflight);
    this.#clock = clock;
    this.#qps = qps;
    this.#perSecond = bootstrapQps;
    this.#next = clock.now() - 1000;
  }

  /** From now on `qps` holds. Calls that wait already keep their turn. */
  bootstrapped(): void {
    this.#perSecond = this.#qps;
  }

  /** Makes a call when it is its turn. Rejects with `aborted` when the signal fires before. */
  async run<T>(call: () => Promise<T>, signal?: AbortSignal): Promise<T> {
    await this.#enter(signal);
    try {
      await this.turn(signal);
      return await call();
    } finally {
      this.#leave();
    }
  }

  /** Resolves when it is the caller's turn; rejects with `aborted` when the signal fires first. */
  async turn(signal?: AbortSignal): Promise<void> {
    const now = this.#clock.now();
    const step = 1000 / this.#perSecond;
    // The clock may be set back: nobody waits longer for that than those in line take.
    const latest = now + (this.#waiting + 1) * step;
    const at = Math.min(Math.max(this.#next, now - 1000 + step), latest);
    this.#next = at + step;
    if (at <= now) return;
    this.#waiting++;
    await sleep(this.#clock, at - now, signal);
    this.#waiting--;
    if (signal?.aborted === true) throw abortedError();
  }

  #enter(signal?: AbortSignal): Promise<void> {
    if (signal?.aborted === true) return Promise.reject(abortedError());
    if (this.#free > 0) {
      this.#free--;
      return Promise.resolve();
    }
    return new Promise((resolve, reject) => {
      const giveUp = (): void => {
        this.#entering.delete(enter);
        reject(abortedError());
      };
      const enter = (): void => {
        signal?.removeEventListener('abort', giveUp);
        resolve();
      };
      signal?.addEventListener('abort', giveUp, { once: true });
      this.#entering.add(enter);
    });
  }

  /** Hands the place on, or leaves it free. */
  #leave(): void {
    const [next] = this.#entering;
    if (next === undefined) {
      this.#free++;
      return;
    }
    this.#entering.delete(next);
    next();
  }
}
