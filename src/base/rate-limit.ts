import { assert } from './assert.ts';
import type { Clock, Timer } from './clock.ts';

/**
 * How many calls a client makes: upstream's `etcd.qps`, `etcd.bootstrapQps` and `etcd.maxInflight`. Read at every call: what
 * a field is changed to counts from the next turn on.
 */
export interface RateLimitOptions {
  /** Calls per second once `bootstrapped` was called. Default: as many as are asked for. */
  readonly qps?: number | undefined;
  /** Calls per second until then; default `qps`. Much is written at a start. */
  readonly bootstrapQps?: number | undefined;
  /** Calls under way at a time; default `qps`, at least 1. */
  readonly maxInflight?: number | undefined;
}

/** Makes the error of a call that its signal has ended. */
type AbortedError = () => Error;

/** Who waits for something, first come, first served. */
class Line {
  readonly #waiting = new Set<() => void>();
  readonly #aborted: AbortedError;

  constructor(aborted: AbortedError) {
    this.#aborted = aborted;
  }

  get isEmpty(): boolean {
    return this.#waiting.size === 0;
  }

  /** Resolves when it is let go; rejects, and has left, when the signal fires first. */
  join(signal: AbortSignal | undefined): Promise<void> {
    if (signal?.aborted === true) return Promise.reject(this.#aborted());
    return new Promise((resolve, reject) => {
      const giveUp = (): void => {
        this.#waiting.delete(go);
        reject(this.#aborted());
      };
      const go = (): void => {
        signal?.removeEventListener('abort', giveUp);
        resolve();
      };
      signal?.addEventListener('abort', giveUp, { once: true });
      this.#waiting.add(go);
    });
  }

  /** Lets the first one go; false when none waits. */
  letGo(): boolean {
    const [first] = this.#waiting;
    if (first === undefined) return false;
    this.#waiting.delete(first);
    first();
    return true;
  }
}

/**
 * Spreads calls over time, in the order in which they were made: at most as many at once as belong to one second, and
 * one at least, then one after the other. What a thousand clients ask of a kvstore that has just come back stays bearable.
 */
export class RateLimit {
  readonly #clock: Clock;
  readonly #options: RateLimitOptions;
  #bootstrapped = false;
  /** When the next call has its turn, if calls had come evenly. */
  #next: number;
  readonly #line: Line;
  /** Until the turn of the first in line. */
  #timer: Timer | undefined;
  /** How many calls are under way. */
  #inflight = 0;
  /** Those who wait until there is one less. */
  readonly #entering: Line;
  readonly #aborted: AbortedError;

  /** @param aborted what a call rejects with whose signal fires before its turn */
  constructor(
    options: RateLimitOptions,
    clock: Clock,
    aborted: AbortedError = () => Object.assign(new Error('the call was aborted'), { code: 'aborted' }),
  ) {
    const { qps = 1, bootstrapQps = qps, maxInflight = 1 } = options;
    assert(qps > 0 && bootstrapQps > 0, `a rate must be above 0: ${qps}, ${bootstrapQps}`);
    assert(maxInflight >= 1, `at least one call must be possible: ${maxInflight}`);
    this.#clock = clock;
    this.#options = options;
    this.#next = clock.now() - 1000;
    this.#line = new Line(aborted);
    this.#entering = new Line(aborted);
    this.#aborted = aborted;
  }

  /** From now on `qps` holds; who is the first in line keeps its turn. */
  bootstrapped(): void {
    this.#bootstrapped = true;
  }

  /** Makes a call when it is its turn. Rejects when the signal fires before. */
  async run<T>(call: () => Promise<T>, signal?: AbortSignal): Promise<T> {
    await this.#enter(signal);
    try {
      await this.turn(signal);
      return await call();
    } finally {
      this.#leave();
    }
  }

  /** Resolves when it is the caller's turn; rejects when the signal fires first. */
  async turn(signal?: AbortSignal): Promise<void> {
    const turn = this.#line.join(signal);
    this.#serve();
    try {
      await turn;
    } finally {
      if (this.#line.isEmpty) this.#stop();
    }
  }

  /** Lets go whose turn it is, and comes back when it is the next one's. */
  #serve(): void {
    if (this.#timer !== undefined) return;
    while (!this.#line.isEmpty) {
      const wait = this.#wait();
      if (wait > 0) {
        this.#timer = this.#clock.after(wait, () => {
          this.#timer = undefined;
          this.#serve();
        });
        return;
      }
      this.#line.letGo();
      this.#next += this.#step;
    }
  }

  #stop(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
  }

  get #qps(): number {
    return this.#options.qps ?? Number.POSITIVE_INFINITY;
  }

  get #step(): number {
    return 1000 / (this.#bootstrapped ? this.#qps : (this.#options.bootstrapQps ?? this.#qps));
  }

  get #isFull(): boolean {
    return this.#inflight >= Math.floor(this.#options.maxInflight ?? Math.max(1, this.#qps));
  }

  /** How long it is until the next turn. */
  #wait(): number {
    const now = this.#clock.now();
    this.#next = Math.max(this.#next, now + Math.min(0, this.#step - 1000));
    return this.#next - now;
  }

  async #enter(signal?: AbortSignal): Promise<void> {
    if (this.#isFull || !this.#entering.isEmpty) return this.#entering.join(signal);
    if (signal?.aborted === true) throw this.#aborted();
    this.#inflight++;
  }

  /** Hands the place on, or leaves it free. */
  #leave(): void {
    this.#inflight--;
    while (!this.#isFull && this.#entering.letGo()) this.#inflight++;
  }
}
