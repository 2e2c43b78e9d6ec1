import { type Backoff, backoffDelay } from './backoff.ts';
import type { Clock, Timer } from './clock.ts';
import { LinkedList, type ListLink } from './keyed-queue.ts';
import type { Runtime } from './system-clock.ts';

/** Options of {@link WorkQueue}. */
export interface WorkQueueOptions extends Runtime {
  /** Bounds of the delays of {@link WorkQueue.retry}. Default: 100 ms, doubling to 1 minute. */
  readonly backoff?: Backoff | undefined;
  /**
   * Called when a delay has ended and its key is due. Not called for `add` and `done`, because their caller can react
   * itself.
   */
  readonly onDue?: (() => void) | undefined;
}

/** Values by key: a `Map`, or a column. */
export interface ValueTable<K, V> {
  get(key: K): V | undefined;
  set(key: K, value: V): unknown;
  delete(key: K): unknown;
}

/** The entries of a {@link WorkQueue}. */
export type EntryTable<K> = ValueTable<K, WorkEntry<K>>;

interface Delay {
  /** When the delay ends, by {@link Clock.now}. */
  readonly at: number;
  readonly timer: Timer;
}

/** A key, due or worked on. */
export interface WorkEntry<K> extends ListLink<WorkEntry<K>> {
  readonly key: K;
  isWorking: boolean;
  /** Of a key that is worked on: when it is due again; undefined if it was not added since the work began. */
  dueAt: number | undefined;
}

const BACKOFF: Backoff = { baseMs: 100, capMs: 60_000 };

/**
 * A queue of keys to work on, like client-go's `workqueue`. A key is queued once even if it is added repeatedly. One
 * worker at a time works on it. If it was added during the work, it is queued again after `done`.
 *
 * The queue holds keys, not events. The worker reads the state of the key when it starts, so that changes coalesce
 * (I11). Keys are returned in the order of their due times. Each operation takes constant time.
 *
 *     addAfter, retry ─► delayed ─► due ─► get ─► working ─► done
 *                                    ▲               │
 *                       add ─────────┴── added again ┘
 */
export class WorkQueue<K> {
  readonly #options: WorkQueueOptions;
  /** The keys that are due or worked on. */
  readonly #entries: EntryTable<K>;
  /** Number of keys in `#entries`. */
  #count = 0;
  readonly #due = new LinkedList<WorkEntry<K>>();
  readonly #inWork = new LinkedList<WorkEntry<K>>();
  /** Number of keys in `#inWork`. */
  #working = 0;
  readonly #delayed = new Map<K, Delay>();
  readonly #failures = new Map<K, number>();

  /**
   * @param entries a table for the entries of this queue only. Default: a `Map`, which moves all entries when it grows.
   */
  constructor(options: WorkQueueOptions, entries: EntryTable<K> = new Map<K, WorkEntry<K>>()) {
    this.#options = options;
    this.#entries = entries;
  }

  /** Number of keys that are due, delayed or worked on. */
  get size(): number {
    return this.#count + this.#delayed.size;
  }

  /** Number of keys between `get` and `done`. */
  get working(): number {
    return this.#working;
  }

  /** Returns true if the key is due, delayed or worked on. */
  has(key: K): boolean {
    return this.#entries.get(key) !== undefined || (this.#delayed.size > 0 && this.#delayed.has(key));
  }

  /** Iterates over all keys in any order. */
  *keys(): Generator<K, void, void> {
    for (const list of [this.#due, this.#inWork])
      for (let entry = list.first; entry !== undefined; entry = entry.next) yield entry.key;
    yield* this.#delayed.keys();
  }

  /** Makes a key due now; ends its delay. A key that is worked on is queued by `done`. */
  add(key: K): void {
    const known = this.#entries.get(key);
    if (known !== undefined) {
      known.dueAt = Number.NEGATIVE_INFINITY;
      return;
    }
    this.#undelay(key);
    const entry: WorkEntry<K> = {
      key,
      isWorking: false,
      dueAt: undefined,
      previous: undefined,
      next: undefined,
    };
    this.#entries.set(key, entry);
    this.#count++;
    this.#due.append(entry);
  }

  /** Makes a key due after a delay, unless it is due earlier. */
  addAfter(key: K, delayMs: number): void {
    const { clock, onDue } = this.#options;
    const at = clock.now() + delayMs;
    const entry = this.#entries.get(key);
    if (entry !== undefined) {
      entry.dueAt = Math.min(entry.dueAt ?? at, at);
      return;
    }
    const delay = this.#delayed.get(key);
    if (delay !== undefined && delay.at <= at) return;
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

  /** The key that `get` would return. */
  get next(): K | undefined {
    return this.#due.first?.key;
  }

  /**
   * Returns the key that has been due longest and marks it as worked on until `done`. Returns undefined if no key is
   * due.
   */
  get(): K | undefined {
    const { first } = this.#due;
    if (first === undefined) return undefined;
    this.#due.remove(first);
    this.#inWork.append(first);
    first.isWorking = true;
    first.dueAt = undefined;
    this.#working++;
    return first.key;
  }

  /**
   * Ends the work on a key. If the key was added during the work, appends it to the queue again. Returns true if the
   * key has left the queue; false also if nothing works on the key.
   */
  done(key: K): boolean {
    const entry = this.#entries.get(key);
    if (entry?.isWorking !== true) return false;
    this.#remove(entry);
    this.#working--;
    const { dueAt } = entry;
    if (dueAt === undefined) return true;
    const delayMs = dueAt - this.#options.clock.now();
    if (delayMs > 0) this.addAfter(key, delayMs);
    else this.add(key);
    return false;
  }

  /** Removes a key and its failures. If it is worked on, `done` does not queue it again. */
  delete(key: K): void {
    this.#undelay(key);
    this.#failures.delete(key);
    const entry = this.#entries.get(key);
    if (entry === undefined) return;
    if (entry.isWorking) entry.dueAt = undefined;
    else this.#remove(entry);
  }

  /** Makes all delayed keys due now. */
  endDelays(): void {
    for (const key of [...this.#delayed.keys()]) this.add(key);
  }

  /** Removes all keys and their failures. Keys that are worked on stay until `done`. */
  clear(): void {
    for (const { timer } of this.#delayed.values()) timer.cancel();
    this.#delayed.clear();
    this.#failures.clear();
    for (let entry = this.#inWork.first; entry !== undefined; entry = entry.next) entry.dueAt = undefined;
    for (let entry = this.#due.first; entry !== undefined; entry = this.#due.first) this.#remove(entry);
  }

  #remove(entry: WorkEntry<K>): void {
    this.#entries.delete(entry.key);
    this.#count--;
    (entry.isWorking ? this.#inWork : this.#due).remove(entry);
  }

  #undelay(key: K): void {
    if (this.#delayed.size === 0) return;
    this.#delayed.get(key)?.timer.cancel();
    this.#delayed.delete(key);
  }
}
