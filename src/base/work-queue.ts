import { type Backoff, backoffDelay } from './backoff.ts';
import type { Clock, Random, Timer } from './clock.ts';
import { KeyedQueue } from './keyed-queue.ts';

/** Options of {@link WorkQueue}. */
export interface WorkQueueOptions {
  readonly clock: Clock;
  readonly random: Random;
  /** Bounds of the delays of {@link WorkQueue.retry}. Default: 100 ms, doubling to 1 minute. */
  readonly backoff?: Backoff | undefined;
  /** Called when a delay has ended and its key is due. Not called for `add` and `done`, because their caller can react itself. */
  readonly onDue?: (() => void) | undefined;
}

interface Delay {
  readonly at: number;
  readonly timer: Timer;
}

/** The next due time of a key in work, if the key was not added again since the work began. */
const NEVER = Number.POSITIVE_INFINITY;
const BACKOFF: Backoff = { baseMs: 100, capMs: 60_000 };

/**
 * A queue of keys to work on, like client-go's `workqueue`. A key is queued once even if it is added repeatedly. One worker at a
 * time works on it. If it was added during the work, it is queued again after `done`.
 *
 * The queue holds keys, not events. The worker reads the state of the key when it starts, so that changes coalesce (I11). Keys
 * are returned in the order of their due times. Each operation takes constant time.
 *
 *     addAfter, retry ─► delayed ─► due ─► get ─► working ─► done
 *                                    ▲               │
 *                       add ─────────┴── added again ┘
 */
export class WorkQueue<K> {
  readonly #options: WorkQueueOptions;
  readonly #due = new KeyedQueue<K>();
  readonly #delayed = new Map<K, Delay>();
  /** Keys between `get` and `done`, with the time when they are due again. */
  readonly #working = new Map<K, number>();
  readonly #failures = new Map<K, number>();

  constructor(options: WorkQueueOptions) {
    this.#options = options;
  }

  /** Number of keys that are due, delayed or worked on. */
  get size(): number {
    return this.#due.size + this.#delayed.size + this.#working.size;
  }

  /** Number of keys between `get` and `done`. */
  get working(): number {
    return this.#working.size;
  }

  /** Returns true if the key is due, delayed or worked on. */
  has(key: K): boolean {
    return this.#due.has(key) || this.#working.has(key) || this.#delayed.has(key);
  }

  /** Iterates over all keys in any order. */
  *keys(): Generator<K, void, void> {
    for (const [key] of this.#due) yield key;
    yield* this.#working.keys();
    yield* this.#delayed.keys();
  }

  /** Makes a key due now. Its delay ends. */
  add(key: K): void {
    if (this.#working.has(key)) {
      this.#working.set(key, Number.NEGATIVE_INFINITY);
      return;
    }
    this.#undelay(key);
    this.#due.set(key, undefined);
  }

  /** Makes a key due after a delay, unless it is due earlier. */
  addAfter(key: K, delayMs: number): void {
    const { clock, onDue } = this.#options;
    const at = clock.now() + delayMs;
    const dueAt = this.#working.get(key);
    if (dueAt !== undefined) {
      this.#working.set(key, Math.min(dueAt, at));
      return;
    }
    const delay = this.#delayed.get(key);
    if (this.#due.has(key) || (delay !== undefined && delay.at <= at)) return;
    delay?.timer.cancel();
    const timer = clock.after(delayMs, () => {
      this.add(key);
      onDue?.();
    });
    this.#delayed.set(key, { at, timer });
  }

  /** Counts a failure of the key and makes it due after a delay that grows with each failure. Returns the delay. */
  retry(key: K): number {
    const { random, backoff = BACKOFF } = this.#options;
    const failures = this.failures(key) + 1;
    this.#failures.set(key, failures);
    const delayMs = backoffDelay(failures, backoff, random);
    this.addAfter(key, delayMs);
    return delayMs;
  }

  /** Returns the number of failures of the key since `forget`. */
  failures(key: K): number {
    return this.#failures.get(key) ?? 0;
  }

  /** Resets the failures of a key. A running delay does not change. */
  forget(key: K): void {
    this.#failures.delete(key);
  }

  /** The key that {@link get} would return. */
  get next(): K | undefined {
    return this.#due.first;
  }

  /** Returns the key that has been due longest and marks it as worked on until `done`. Returns undefined if no key is due. */
  get(): K | undefined {
    const first = this.#due.shift();
    if (first === undefined) return undefined;
    const [key] = first;
    this.#working.set(key, NEVER);
    return key;
  }

  /** Ends the work on a key. If it was added during the work, appends it to the queue again. */
  done(key: K): void {
    const dueAt = this.#working.get(key);
    if (dueAt === undefined) return;
    this.#working.delete(key);
    if (dueAt === NEVER) return;
    const delayMs = dueAt - this.#options.clock.now();
    if (delayMs > 0) this.addAfter(key, delayMs);
    else this.add(key);
  }

  /** Removes a key and its failures. If it is worked on, `done` does not queue it again. */
  delete(key: K): void {
    this.#undelay(key);
    this.#due.delete(key);
    this.#failures.delete(key);
    if (this.#working.has(key)) this.#working.set(key, NEVER);
  }

  /** Makes all delayed keys due now. */
  endDelays(): void {
    for (const key of [...this.#delayed.keys()]) this.add(key);
  }

  /** Removes all keys and their failures. Keys that are worked on stay until `done`. */
  clear(): void {
    for (const { timer } of this.#delayed.values()) timer.cancel();
    this.#delayed.clear();
    this.#due.clear();
    this.#failures.clear();
    for (const key of this.#working.keys()) this.#working.set(key, NEVER);
  }

  #undelay(key: K): void {
    if (this.#delayed.size === 0) return;
    this.#delayed.get(key)?.timer.cancel();
    this.#delayed.delete(key);
  }
}
