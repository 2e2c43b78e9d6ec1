import { requireArgument } from './arguments.ts';
import type { Clock, Timer } from './clock.ts';
import { onAbort } from './follow-signal.ts';
import { KeyedQueue } from './keyed-queue.ts';

/**
 * Limits of the calls of a client: Cilium's `etcd.qps`, `etcd.bootstrapQps` and `etcd.maxInflight`. The fields are
 * read at every call, so that a changed value applies from the next turn on.
 */
export interface RateLimitOptions {
  /** Calls per second after `endBootstrap`. Default: no limit. */
  readonly qps?: number | undefined;
  /**
   * Calls per second before `endBootstrap`: usually more than `qps`, because a start writes many keys. Default `qps`.
   */
  readonly bootstrapQps?: number | undefined;
  /** Maximum number of concurrent calls; default `qps`, at least 1. */
  readonly maxInflight?: number | undefined;
  /**
   * Maximum number of calls without delay after a pause, at least 1. With 1, no second has more than `qps` calls.
   * Default: the calls of one second.
   */
  readonly burst?: number | undefined;
}

/** Returns the error of a call whose signal has fired. */
type AbortedError = () => Error;

/** Waiting callers, first in, first out. */
class CallerQueue {
  readonly #waiting = new KeyedQueue<() => void>();
  readonly #aborted: AbortedError;

  constructor(aborted: AbortedError) {
    this.#aborted = aborted;
  }

  get isEmpty(): boolean {
    return this.#waiting.size === 0;
  }

  /** Resolves when it is the caller's turn. If the signal fires first, removes the caller and rejects. */
  join(signal: AbortSignal | undefined): Promise<void> {
    if (signal?.aborted === true) return Promise.reject(this.#aborted());
    return new Promise((resolve, reject) => {
      const leaveSignal = onAbort(signal, () => {
        this.#waiting.delete(admit);
        reject(this.#aborted());
      });
      const admit = (): void => {
        leaveSignal();
        resolve();
      };
      this.#waiting.set(admit, undefined);
    });
  }

  /** Ends the wait of the first caller. Returns false if none waits. */
  admitFirst(): boolean {
    const first = this.#waiting.shift();
    if (first === undefined) return false;
    const [admit] = first;
    admit();
    return true;
  }
}

/**
 * Limits the rate of calls and keeps their order, so that a thousand clients do not overload a kvstore that has just
 * returned. After a burst, calls are evenly spaced.
 */
export class RateLimit {
  readonly #clock: Clock;
  readonly #options: RateLimitOptions;
  #isBootstrapped = false;
  /** When the next call is due. After a pause this time is in the past, at most by the length of a burst. */
  #nextDueAt: number;
  /** Callers that wait for their turn. */
  readonly #turns: CallerQueue;
  /** Fires at the turn of the first caller. */
  #timer: Timer | undefined;
  #inflight = 0;
  /** Callers that wait for the end of a running call. */
  readonly #entering: CallerQueue;
  readonly #aborted: AbortedError;

  /** @param aborted returns the error of a call whose signal fires before its turn */
  constructor(
    options: RateLimitOptions,
    clock: Clock,
    aborted: AbortedError = () => Object.assign(new Error('the call was aborted'), { code: 'aborted' }),
  ) {
    const { qps = 1, bootstrapQps = qps, maxInflight = 1 } = options; // an absent limit is valid
    requireArgument(qps > 0, `qps must be above 0, not ${qps}`);
    requireArgument(bootstrapQps > 0, `bootstrapQps must be above 0, not ${bootstrapQps}`);
    requireArgument(maxInflight >= 1, `maxInflight must be at least 1, not ${maxInflight}`);
    this.#clock = clock;
    this.#options = options;
    this.#nextDueAt = clock.now() - 1000;
    this.#turns = new CallerQueue(aborted);
    this.#entering = new CallerQueue(aborted);
    this.#aborted = aborted;
  }

  /** Applies `qps` from now on. The first waiting caller keeps its turn. */
  endBootstrap(): void {
    this.#isBootstrapped = true;
  }

  /** Makes a call when it is its turn and returns its result. Rejects if the signal fires first. */
  async run<T>(call: () => Promise<T>, signal?: AbortSignal): Promise<T> {
    await this.#enter(signal);
    try {
      await this.turn(signal);
      return await call();
    } finally {
      this.#leave();
    }
  }

  /** Resolves when it is the caller's turn. Rejects if the signal fires first. `maxInflight` does not apply. */
  async turn(signal?: AbortSignal): Promise<void> {
    const turn = this.#turns.join(signal);
    this.#serve();
    try {
      await turn;
    } finally {
      if (this.#turns.isEmpty) this.#stop();
    }
  }

  /** Admits the callers whose turn it is and sets a timer for the next one. */
  #serve(): void {
    if (this.#timer !== undefined) return;
    while (!this.#turns.isEmpty) {
      const now = this.#clock.now();
      this.#nextDueAt = Math.max(this.#nextDueAt, now - this.#maxLagMs);
      const delay = this.#nextDueAt - now;
      if (delay > 0) {
        this.#timer = this.#clock.after(delay, () => {
          this.#timer = undefined;
          this.#serve();
        });
        return;
      }
      this.#turns.admitFirst();
      this.#nextDueAt += this.#intervalMs;
    }
  }

  #stop(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
  }

  get #qps(): number {
    return this.#options.qps ?? Number.POSITIVE_INFINITY;
  }

  /** Milliseconds between two evenly spaced calls; 0 without a limit. */
  get #intervalMs(): number {
    return 1000 / (this.#isBootstrapped ? this.#qps : (this.#options.bootstrapQps ?? this.#qps));
  }

  get #isFull(): boolean {
    return this.#inflight >= Math.floor(this.#options.maxInflight ?? Math.max(1, this.#qps));
  }

  /** How far {@link #nextDueAt} may be in the past, so that all calls of a burst are due immediately. */
  get #maxLagMs(): number {
    const { burst } = this.#options;
    return Math.max(0, burst === undefined ? 1000 - this.#intervalMs : (burst - 1) * this.#intervalMs);
  }

  async #enter(signal?: AbortSignal): Promise<void> {
    if (this.#isFull || !this.#entering.isEmpty) return this.#entering.join(signal);
    if (signal?.aborted === true) throw this.#aborted();
    this.#inflight++;
  }

  /** Ends a running call and admits waiting callers. */
  #leave(): void {
    this.#inflight--;
    while (!this.#isFull && this.#entering.admitFirst()) this.#inflight++;
  }
}
