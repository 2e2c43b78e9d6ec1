import { assert } from '../base/assert.ts';
import type { Clock, Timer } from '../base/clock.ts';
import { type Unsubscribe, unsubscribeOnce } from '../base/subscription.ts';
import { formatServiceID } from '../servicecache/service-id.ts';
import type { ReadModel } from './read-model.ts';

/** What a change is about. */
export const CHANGE_TYPES = ['ip', 'service', 'node'] as const;

/** One of {@link CHANGE_TYPES}. */
export type ChangeType = (typeof CHANGE_TYPES)[number];

/** Something has changed; what it is now is read from its engine. */
export interface FeedChange {
  readonly revision: number;
  readonly type: ChangeType;
  /** A CIDR, `namespace/name`, or `cluster/name`. */
  readonly key: string;
  /** When, in milliseconds of the wall clock: for showing only. */
  readonly at: number;
}

/** What a reader is given at a time. */
export interface FeedRead {
  /** In order, each key once, at its latest change. */
  readonly changes: readonly FeedChange[];
  /** Where to go on. */
  readonly revision: number;
  /** Changes after the revision that was asked for are not held any more: `changes` begins after them. */
  readonly missed: boolean;
}

/** How many changes are held. */
const HELD = 65_536;

/** All of them. */
export const ALL_TYPES: ReadonlySet<ChangeType> = new Set(CHANGE_TYPES);

/** Which change of a key is the latest is kept in so many tables at a time, each of as many changes. */
const GENERATIONS = 8;

/** Who waits is woken so long after a change: once for all that happens meanwhile, and all at once, so that they can share. */
const GATHERED_MS = 50;

/** So many positions are looked at in one read, at most: what bounds its time. */
const LOOKED_AT = 4_096;

/**
 * Which keys of the three engines have changed, one numbered change after the other, and the last 65,536 of them. It keeps
 * keys and no values: a reader reads from the engines what a key is *now*, so a key that has changed many times comes
 * once. A reader is a number, and costs nothing while it does not read: a slow one misses changes, learns
 * that it did, and holds up no other (I11).
 *
 * Revisions begin anew with each feed.
 */
export class ChangeFeed {
  readonly #model: ReadModel;
  readonly #clock: Clock;
  readonly #capacity: number;
  readonly #types: Uint8Array;
  readonly #times: Float64Array;
  readonly #keys: (string | undefined)[];
  /**
   * The latest revision of each key among the changes of a generation, oldest generation first. They are let go as a whole:
   * a table out of which keys are taken one by one is rebuilt again and again.
   */
  readonly #generations: Readonly<Record<ChangeType, Map<string, number>>>[] = [];
  readonly #generation: number;
  readonly #lastOf: Record<ChangeType, number> = { ip: 0, service: 0, node: 0 };
  readonly #waiting = new Set<() => void>();
  readonly #end = new AbortController();
  #gathering: Timer | undefined;
  #revision = 0;

  constructor(model: ReadModel, clock: Clock, capacity: number = HELD) {
    assert(capacity >= 1, 'a feed holds at least one change');
    this.#model = model;
    this.#clock = clock;
    this.#capacity = capacity;
    this.#types = new Uint8Array(capacity);
    this.#times = new Float64Array(capacity);
    this.#keys = new Array<string | undefined>(capacity).fill(undefined);
    this.#generation = Math.ceil(capacity / GENERATIONS);
  }

  /** The revision of the latest change. */
  get revision(): number {
    return this.#revision;
  }

  /** The revision of the latest change of this type. */
  lastOf(type: ChangeType): number {
    return this.#lastOf[type];
  }

  /** Begins to follow the engines: what they hold now is no change. Ends every wait when it is unsubscribed. */
  follow(): Unsubscribe {
    const { ipcache, services, nodes } = this.#model;
    let live = false;
    const add = (type: ChangeType, key: string): void => {
      if (live) this.#add(type, key);
    };
    const subscriptions = [
      ipcache.subscribe({
        onChanges: (changes) => {
          if (live) for (const { prefix } of changes) this.#add('ip', prefix);
        },
      }),
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
    live = true;
    return unsubscribeOnce(() => {
      for (const unsubscribe of subscriptions) unsubscribe();
      this.#end.abort();
      this.#wake();
    });
  }

  /** At most `limit` changes of these types after `revision`. Empty: there is none, or none among the next 4,096. */
  read(revision: number, limit: number, types: ReadonlySet<ChangeType> = ALL_TYPES): FeedRead {
    const oldest = this.#revision - Math.min(this.#revision, this.#capacity);
    const missed = revision < oldest || revision > this.#revision;
    let at = missed ? this.#revision : revision;
    const end = Math.min(this.#revision, at + LOOKED_AT);
    const changes: FeedChange[] = [];
    while (at < end && changes.length < limit) {
      at++;
      const slot = at % this.#capacity;
      const type = CHANGE_TYPES[this.#types[slot] ?? 0];
      const key = this.#keys[slot];
      assert(type !== undefined && key !== undefined, 'what is held has a type and a key');
      if (!types.has(type) || !this.#isLatest(type, key, at)) continue; // it comes again
      changes.push({ revision: at, type, key, at: this.#times[slot] ?? 0 });
    }
    return { changes, revision: at, missed };
  }

  /**
   * Resolves once there is a change after `revision`, or the time is over, the feed has ended, or the signal fires. After a
   * change some more are waited for, for 50 ms.
   */
  async changed(revision: number, signal: AbortSignal, withinMs: number): Promise<void> {
    if (this.ended || signal.aborted || revision !== this.#revision) return;
    await new Promise<void>((resolve) => {
      const wake = (): void => {
        this.#waiting.delete(wake);
        timer.cancel();
        signal.removeEventListener('abort', wake);
        resolve();
      };
      const timer = this.#clock.after(withinMs, wake);
      this.#waiting.add(wake);
      signal.addEventListener('abort', wake);
    });
  }

  /** Whether it follows no more. */
  get ended(): boolean {
    return this.#end.signal.aborted;
  }

  /** Fires when it has ended. */
  get end(): AbortSignal {
    return this.#end.signal;
  }

  #add(type: ChangeType, key: string): void {
    const revision = ++this.#revision;
    const slot = revision % this.#capacity;
    this.#types[slot] = CHANGE_TYPES.indexOf(type);
    this.#times[slot] = this.#clock.wallTime();
    this.#keys[slot] = key;
    this.#lastOf[type] = revision;
    this.#youngest(revision)[type].set(key, revision);
    if (this.#waiting.size > 0) this.#gathering ??= this.#clock.after(GATHERED_MS, () => this.#wake());
  }

  /** The generation that a revision belongs to, which is the last one. */
  #youngest(revision: number): Readonly<Record<ChangeType, Map<string, number>>> {
    const last = this.#generations.at(-1);
    if (last !== undefined && revision % this.#generation !== 0) return last;
    const begun = { ip: new Map(), service: new Map(), node: new Map() };
    this.#generations.push(begun);
    if (this.#generations.length > GENERATIONS + 1) this.#generations.shift();
    return begun;
  }

  /** Whether a change that is held is the latest of its key. */
  #isLatest(type: ChangeType, key: string, revision: number): boolean {
    for (let at = this.#generations.length - 1; at >= 0; at--) {
      const latest = this.#generations[at]?.[type].get(key);
      if (latest !== undefined) return latest === revision;
    }
    return false;
  }

  #wake(): void {
    this.#gathering?.cancel();
    this.#gathering = undefined;
    for (const wake of [...this.#waiting]) wake();
  }
}
