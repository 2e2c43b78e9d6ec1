import { type Backoff, backoffDelay } from './backoff.ts';
import type { Clock, Random, Timer } from './clock.ts';
import { LinkedList, type ListLink, RankedLists } from './keyed-queue.ts';

/** Options of {@link WorkQueue}. */
export interface WorkQueueOptions {
  readonly clock: Pick<Clock, 'now' | 'after'>;
  readonly random: Random;
  /** Bounds of the delays of {@link WorkQueue.retry}. Default: 100 ms, doubling to 1 minute. */
  readonly backoff?: Backoff | undefined;
  /**
   * Called when delays have ended and their keys are due. Not called for `add` and `done`, because their caller can
   * react itself.
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

/** A key that is delayed, due or worked on. */
export interface WorkEntry<K> extends ListLink<WorkEntry<K>> {
  readonly key: K;
  state: 'delayed' | 'due' | 'working';
  /**
   * When the delay ends, by {@link Clock.now}, in whole milliseconds. Of a key that is worked on: when it is due again;
   * {@link NOT_ADDED} if it was not added since the work began.
   */
  dueAt: number;
}

/** Not infinity, which V8 would store in an object of its own for each key. */
const NOT_ADDED = -1;
const BACKOFF: Backoff = { baseMs: 100, capMs: 60_000 };
/** Maximum number of keys whose delays end in a turn of the event loop. */
const MAX_DUE = 256;

/**
 * A queue of keys to work on, like client-go's `workqueue`. A key is queued once even if it is added repeatedly. One
 * worker at a time works on it. If it was added during the work, it is queued again after `done`.
 *
 * The queue holds keys, not events. The worker reads the state of the key when it starts, so that changes coalesce
 * (I11). Keys are returned in the order of their due times. All delays share one timer. Each operation takes constant
 * time; `addAfter` also searches the distinct due times by bisection.
 *
 *     addAfter, retry ─► delayed ─► due ─► get ─► working ─► done
 *                                    ▲               │
 *                       add ─────────┴── added again ┘
 */
export class WorkQueue<K> {
  readonly #options: WorkQueueOptions;
  readonly #newTable: () => EntryTable<K>;
  #entries: EntryTable<K>;
  /** Number of keys in `#entries`. */
  #count = 0;
  readonly #due = new LinkedList<WorkEntry<K>>();
  readonly #inWork = new LinkedList<WorkEntry<K>>();
  /** Number of keys in `#inWork`. */
  #working = 0;
  /** The delayed keys by the time at which they are due. */
  readonly #delayed = new RankedLists<WorkEntry<K>>((a, b) => a - b);
  /** Set for the first of the delayed keys. */
  #timer: Timer | undefined;
  #timerAt: number | undefined;
  readonly #failures = new Map<K, number>();

  /** @param newTable returns a table for the entries. Default: a `Map`, which moves all entries when it grows. */
  constructor(options: WorkQueueOptions, newTable: () => EntryTable<K> = () => new Map<K, WorkEntry<K>>()) {
    this.#options = options;
    this.#newTable = newTable;
    this.#entries = newTable();
  }

  /** Number of keys that are due, delayed or worked on. */
  get size(): number {
    return this.#count;
  }

  /** Number of keys between `get` and `done`. */
  get working(): number {
    return this.#working;
  }

  /** Returns true if the key is due, delayed or worked on. */
  has(key: K): boolean {
    return this.#entries.get(key) !== undefined;
  }

  /** Iterates over all keys in any order. */
  *keys(): Generator<K, void, void> {
    for (const entries of [this.#due, this.#inWork, this.#delayed]) for (const { key } of entries) yield key;
  }

  /** Makes a key due now; ends its delay. A key that is worked on is queued by `done`. */
  add(key: K): void {
    const known = this.#entries.get(key);
    if (known === undefined) this.#makeDue(this.#createEntry(key));
    else if (known.state === 'working') known.dueAt = 0;
    else if (known.state === 'delayed') {
      this.#undelay(known);
      this.#makeDue(known);
    }
  }

  /** Makes a key due after a delay, unless it is due earlier. */
  addAfter(key: K, delayMs: number): void {
    const at = Math.ceil(this.#options.clock.now() + delayMs);
    const known = this.#entries.get(key);
    if (known === undefined) this.#delay(this.#createEntry(key), at);
    else if (known.state === 'working')
      known.dueAt = known.dueAt === NOT_ADDED ? at : Math.min(known.dueAt, at);
    else if (known.state === 'delayed' && at < known.dueAt) {
      this.#undelay(known);
      this.#delay(known, at);
    }
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
    first.state = 'working';
    first.dueAt = NOT_ADDED;
    this.#working++;
    return first.key;
  }

  /**
   * Ends the work on a key. If the key was added during the work, appends it to the queue again. Returns true if the
   * key has left the queue; false also if nothing works on the key.
   */
  done(key: K): boolean {
    const entry = this.#entries.get(key);
    if (entry?.state !== 'working') return false;
    this.#inWork.remove(entry);
    this.#working--;
    const { dueAt } = entry;
    if (dueAt === NOT_ADDED) this.#deleteEntry(key);
    else if (dueAt > this.#options.clock.now()) this.#delay(entry, dueAt);
    else this.#makeDue(entry);
    return dueAt === NOT_ADDED;
  }

  /** Removes a key and its failures. If it is worked on, `done` does not queue it again. */
  delete(key: K): void {
    this.#failures.delete(key);
    const entry = this.#entries.get(key);
    if (entry === undefined) return;
    if (entry.state === 'working') {
      entry.dueAt = NOT_ADDED;
      return;
    }
    if (entry.state === 'delayed') this.#undelay(entry);
    else this.#due.remove(entry);
    this.#deleteEntry(key);
  }

  /** Makes all delayed keys due now. */
  endDelays(): void {
    this.#endDelays(Number.POSITIVE_INFINITY, this.#count);
  }

  /** Removes all keys and their failures. Keys that are worked on stay until `done`. */
  clear(): void {
    this.#entries = this.#newTable();
    this.#count = this.#working;
    this.#due.clear();
    this.#delayed.clear();
    this.#setTimer();
    this.#failures.clear();
    for (const entry of this.#inWork) {
      entry.dueAt = NOT_ADDED;
      this.#entries.set(entry.key, entry);
    }
  }

  /** Returns a new entry, which the caller makes due or delays. */
  #createEntry(key: K): WorkEntry<K> {
    const entry: WorkEntry<K> = { key, state: 'due', dueAt: 0, previous: undefined, next: undefined };
    this.#entries.set(key, entry);
    this.#count++;
    return entry;
  }

  #deleteEntry(key: K): void {
    this.#entries.delete(key);
    this.#count--;
  }

  #makeDue(entry: WorkEntry<K>): void {
    entry.state = 'due';
    this.#due.append(entry);
  }

  #delay(entry: WorkEntry<K>, at: number): void {
    entry.state = 'delayed';
    entry.dueAt = at;
    this.#delayed.append(at, entry);
    this.#setTimer();
  }

  #undelay(entry: WorkEntry<K>): void {
    this.#delayed.remove(entry.dueAt, entry);
    this.#setTimer();
  }

  #setTimer(): void {
    const { clock } = this.#options;
    const at = this.#delayed.firstRank;
    if (at === this.#timerAt) return;
    this.#timer?.cancel();
    this.#timerAt = at;
    this.#timer =
      at === undefined ? undefined : clock.after(Math.max(1, at - clock.now()), () => this.#onTimer(at));
  }

  #onTimer(at: number): void {
    const { clock, onDue } = this.#options;
    this.#timerAt = undefined;
    this.#endDelays(Math.max(at, clock.now()), MAX_DUE); // a timer of the runtime may fire a fraction early
    onDue?.();
  }

  /** Makes delayed keys due, those due first. */
  #endDelays(until: number, maxKeys: number): void {
    for (let left = maxKeys; left > 0; left--) {
      const { first } = this.#delayed;
      if (first === undefined || first.dueAt > until) break;
      this.#delayed.remove(first.dueAt, first);
      this.#makeDue(first);
    }
    this.#setTimer();
  }
}
