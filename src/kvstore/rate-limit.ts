import { assert } from '../base/assert.ts';
import type { Clock } from '../base/clock.ts';
import { sleep } from '../base/sleep.ts';
import { abortedError } from './errors.ts';

/** How many calls a client makes per second. */
export interface RateLimitOptions {
  /** Calls per second once `bootstrapped` was called. */
  readonly qps: number;
  /** Calls per second until then; default `qps`. Upstream's `etcd.bootstrapQps`: much is written at a start. */
  readonly bootstrapQps?: number | undefined;
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

  constructor({ qps, bootstrapQps = qps }: RateLimitOptions, clock: Clock) {
    assert(qps > 0 && bootstrapQps > 0, `a rate must be above 0: ${qps}, ${bootstrapQps}`);
    this.#clock = clock;
    this.#qps = qps;
    this.#perSecond = bootstrapQps;
    this.#next = clock.now() - 1000;
  }

  /** From now on `qps` holds. Calls that wait already keep their turn. */
  bootstrapped(): void {
    this.#perSecond = this.#qps;
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
}
