import { assert } from '../base/assert.ts';
import type { Clock, Timer } from '../base/clock.ts';
import { onAbort } from '../base/follow-signal.ts';
import { type Unsubscribe, unsubscribeOnce } from '../base/subscription.ts';
import { formatServiceID } from '../servicecache/service-id.ts';
import { ChangeRates, type RatesDocument } from './change-rates.ts';
import { ALL_TYPES, CHANGE_TYPES, type ChangeType } from './change-types.ts';
import type { ReadModel } from './read-model.ts';

/** A change of a key. The current value is read from the engine. */
export interface FeedChange {
  readonly revision: number;
  readonly type: ChangeType;
  /** A CIDR, `namespace/name`, or `cluster/name`. */
  readonly key: string;
  /** Time of the change in milliseconds of the wall clock, for display only. */
  readonly at: number;
}

/** Result of {@link ChangeFeed.read}. */
export interface FeedRead {
  /** Changes in order of revision. Each key appears once, at its latest change. */
  readonly changes: readonly FeedChange[];
  /** The last examined revision. The next read continues after it. */
  readonly revision: number;
  /**
   * True if some changes after the requested revision were dropped, or if the revision is unknown. `changes` is then
   * empty.
   */
  readonly hasMissed: boolean;
}

/** Maximum number of changes in the feed. */
const MAX_CHANGES = 65_536;

/**
 * Number of complete generations kept. A generation is a table with the latest revision of each key in an
 * eighth of the changes.
 */
const COMPLETE_GENERATIONS = 8;

/**
 * Delay between a change and the wake-up of readers. One wake-up covers all changes during the delay, and readers at
 * one revision share the encoded result.
 */
const WAKE_DELAY_MS = 50;

/** Maximum number of changes that one read examines, which limits its time. */
const MAX_SCANNED = 4_096;

/**
 * Numbers the changes of the three engines and keeps the keys of the last 65,536. It keeps no values: a reader reads
 * the *current* value of a key from its engine, so it receives a key once even if the key changed many times. The only
 * state of a reader is its revision, so it costs nothing between reads. If a slow reader misses changes, `hasMissed`
 * reports it; other readers are not delayed (I11).
 *
 * Each feed starts at revision 0.
 */
export class ChangeFeed {
  readonly #model: ReadModel;
  readonly #clock: Clock;
  readonly #capacity: number;
  /** Type (an index of {@link CHANGE_TYPES}), wall time and key of each change, at its revision modulo the capacity. */
  readonly #types: Uint8Array;
  readonly #times: Float64Array;
  readonly #keys: (string | undefined)[];
  /**
   * Maps each key to its latest revision among the changes of a generation, oldest generation first. A generation is
   * deleted as a whole, because a map from which single keys are deleted is rehashed again and again.
   */
  readonly #generations: Readonly<Record<ChangeType, Map<string, number>>>[] = [];
  readonly #changesPerGeneration: number;
  readonly #rates: ChangeRates;
  readonly #lastOf: Record<ChangeType, number> = { ip: 0, service: 0, node: 0 };
  /** Each of these functions wakes one reader. */
  readonly #waiters = new Set<() => void>();
  readonly #ended = new AbortController();
  #wakeTimer: Timer | undefined;
  #revision = 0;

  constructor(model: ReadModel, clock: Clock, capacity: number = MAX_CHANGES) {
    assert(capacity >= 1, 'the capacity of a feed must be at least 1');
    this.#model = model;
    this.#clock = clock;
    this.#capacity = capacity;
    this.#rates = new ChangeRates(clock.now());
    this.#types = new Uint8Array(capacity);
    this.#times = new Float64Array(capacity);
    this.#keys = new Array<string | undefined>(capacity).fill(undefined);
    this.#changesPerGeneration = Math.ceil(capacity / COMPLETE_GENERATIONS);
  }

  get revision(): number {
    return this.#revision;
  }

  /** Returns the revision of the last change of a type; 0 if there was none. */
  lastOf(type: ChangeType): number {
    return this.#lastOf[type];
  }

  /** Returns the numbers of changes in the last hour. */
  rates(): RatesDocument {
    return this.#rates.document(this.#clock.now(), this.#clock.wallTime());
  }

  /**
   * Subscribes to the engines. Their current content is not a change. Unsubscribing ends the feed and wakes all
   * readers.
   */
  follow(): Unsubscribe {
    const { ipcache, services, nodes } = this.#model;
    let isLive = false;
    const add = (type: ChangeType, key: string): void => {
      if (isLive) this.#add(type, key);
    };
    const subscriptions = [
      ipcache.subscribe(
        {
          onChanges: (changes) => {
            for (const { prefix } of changes) this.#add('ip', prefix);
          },
        },
        { replay: false },
      ),
      services.subscribe({
        onEvents: (events) => {
          for (const { id } of events) add('service', formatServiceID(id));
        },
      }),
      nodes.subscribe({
        name: 'change-feed',
        nodeAdd: ({ fullName }) => add('node', fullName),
        nodeUpdate: (_old, { fullName }) => add('node', fullName),
        nodeDelete: ({ fullName }) => add('node', fullName),
      }),
    ];
    isLive = true;
    return unsubscribeOnce(() => {
      for (const unsubscribe of subscriptions) unsubscribe();
      this.#ended.abort();
      this.#wake();
    });
  }

  /** Returns at most `limit` changes of these types after `revision`. Empty if none of the next 4,096 changes match. */
  read(revision: number, limit: number, types: ReadonlySet<ChangeType> = ALL_TYPES): FeedRead {
    const oldest = this.#revision - Math.min(this.#revision, this.#capacity);
    const hasMissed = revision < oldest || revision > this.#revision;
    let last = hasMissed ? this.#revision : revision;
    const end = Math.min(this.#revision, last + MAX_SCANNED);
    const changes: FeedChange[] = [];
    while (last < end && changes.length < limit) {
      last++;
      const slot = last % this.#capacity;
      const type = CHANGE_TYPES[this.#types[slot] ?? 0];
      const key = this.#keys[slot];
      assert(type !== undefined && key !== undefined, 'a stored change must have a type and a key');
      if (!types.has(type) || !this.#isLatest(type, key, last)) continue;
      changes.push({ revision: last, type, key, at: this.#times[slot] ?? 0 });
    }
    return { changes, revision: last, hasMissed };
  }

  /**
   * Resolves immediately if `revision` is not the latest, otherwise 50 ms after the next change, so that further
   * changes join it. Also resolves when the time is over, the feed ends or the signal fires.
   */
  async waitForChange(revision: number, signal: AbortSignal, withinMs: number): Promise<void> {
    if (this.ended || signal.aborted || revision !== this.#revision) return;
    await new Promise<void>((resolve) => {
      const wake = (): void => {
        this.#waiters.delete(wake);
        timer.cancel();
        leaveSignal();
        resolve();
      };
      const timer = this.#clock.after(withinMs, wake);
      this.#waiters.add(wake);
      const leaveSignal = onAbort(signal, wake);
    });
  }

  /** True if the feed has ended. */
  get ended(): boolean {
    return this.#ended.signal.aborted;
  }

  /** Fires when the feed ends. */
  get endSignal(): AbortSignal {
    return this.#ended.signal;
  }

  #add(type: ChangeType, key: string): void {
    const revision = ++this.#revision;
    const slot = revision % this.#capacity;
    const typeIndex = CHANGE_TYPES.indexOf(type);
    this.#types[slot] = typeIndex;
    this.#rates.count(typeIndex, this.#clock.now());
    this.#times[slot] = this.#clock.wallTime();
    this.#keys[slot] = key;
    this.#lastOf[type] = revision;
    this.#generationOf(revision)[type].set(key, revision);
    if (this.#waiters.size > 0) this.#wakeTimer ??= this.#clock.after(WAKE_DELAY_MS, () => this.#wake());
  }

  /** Returns the last generation, or starts the next one if the last has its share of changes. */
  #generationOf(revision: number): Readonly<Record<ChangeType, Map<string, number>>> {
    const last = this.#generations.at(-1);
    if (last !== undefined && revision % this.#changesPerGeneration !== 0) return last;
    const next = { ip: new Map(), service: new Map(), node: new Map() };
    this.#generations.push(next);
    if (this.#generations.length > COMPLETE_GENERATIONS + 1) this.#generations.shift();
    return next;
  }

  /** Returns true if the key has no later change. */
  #isLatest(type: ChangeType, key: string, revision: number): boolean {
    for (let at = this.#generations.length - 1; at >= 0; at--) {
      const latest = this.#generations[at]?.[type].get(key);
      if (latest !== undefined) return latest === revision;
    }
    return false;
  }

  #wake(): void {
    this.#wakeTimer?.cancel();
    this.#wakeTimer = undefined;
    for (const wake of [...this.#waiters]) wake();
  }
}
