import {
  atLeast,
  checkArgument,
  checkArguments,
  NUMBER,
  OBJECT,
  objectWith,
  optional,
  optionsWith,
  TEXT,
} from '../../base/arguments.ts';
import type { Clock, Timer } from '../../base/clock.ts';
import { type RuntimeOptions, systemClock } from '../../base/system-clock.ts';
import { runToEnd, TurnGate } from '../../base/turn-gate.ts';
import { keyRange } from '../codec/key-range.ts';
import { KvstoreError } from '../session/errors.ts';
import type {
  LeaseID,
  RangeRequest,
  RangeResponse,
  ResponseHeader,
  TxnRequest,
  TxnResponse,
  WatchObserver,
  WatchRequest,
  WriteOperation,
} from '../session/transport.ts';
import { MemoryStore, type MemoryStoreSnapshot, type SteppedWork, type StoreTxn } from './memory-store.ts';
import { MemoryWatchStream } from './memory-watch-stream.ts';

/** Options of a {@link MemoryServer}. */
export interface MemoryServerOptions extends Pick<RuntimeOptions, 'clock'> {
  /** Default `memory`. Clients treat a server with another id as another store. */
  readonly clusterID?: string | undefined;
  /**
   * Number of revisions of history to keep. If there are more than twice as many, or 1,000 more, the server compacts.
   * Default 50,000.
   */
  readonly keepRevisions?: number | undefined;
  /** @internal Maximum number of events of a delivery; it may split a revision. Default 512. */
  readonly sliceEvents?: number;
}

/** Content, history and leases of a server, for {@link MemoryServer.restore} only. */
export interface ServerSnapshot {
  /** @internal */
  readonly store: MemoryStoreSnapshot;
  /** @internal */
  readonly leases: ReadonlyMap<LeaseID, { readonly ttlSeconds: number; readonly keys: ReadonlySet<string> }>;
}

interface Lease {
  readonly ttlSeconds: number;
  readonly keys: Set<string>;
  timer: Timer;
}

// At 300 bytes a value, this is 15 MB of history. It covers clients that were disconnected for minutes.
const KEEP_REVISIONS = 50_000;
// Number of revisions discarded by one compaction, which then takes about 1 ms.
const COMPACTED_REVISIONS = 1000;
// As many as `EtcdWatchStream` delivers. An observer can pause the stream between two deliveries.
const SLICE_EVENTS = 512;

/**
 * A whole kvstore in this process. Several clients may share it like agents share an etcd. Calls are ordered, and
 * synchronous except for changes of many keys. Streams notify their observers later, in microtasks, like a network.
 */
export class MemoryServer {
  readonly #clock: Clock;
  readonly #store: MemoryStore;
  readonly #keepRevisions: number;
  readonly #sliceEvents: number;
  readonly #leases = new Map<LeaseID, Lease>();
  readonly #streams = new Set<MemoryWatchStream>();
  readonly #gate: TurnGate;
  /**
   * Pending work that needs more than one turn, in order. No other call may use the store before all of it is complete.
   */
  readonly #pending = new Set<Generator<void, void, void>>();
  #idle: Promise<void> | undefined;
  #lastLease = 1n << 60n; // large like etcd's 64-bit ids, so that readers do not treat them as numbers

  constructor(options: MemoryServerOptions = {}) {
    checkArgument('new MemoryServer: options', options, OPTIONS);
    this.#clock = options.clock ?? systemClock;
    this.#keepRevisions = options.keepRevisions ?? KEEP_REVISIONS;
    this.#sliceEvents = options.sliceEvents ?? SLICE_EVENTS;
    this.#gate = new TurnGate({ clock: this.#clock, nextTurn: (callback) => setImmediate(callback) });
    this.#store = new MemoryStore(options.clusterID ?? 'memory', (key, from, to) =>
      this.#moveKey(key, from, to),
    );
  }

  get header(): ResponseHeader {
    return this.#store.header;
  }

  /** Number of open streams. */
  get streams(): number {
    return this.#streams.size;
  }

  /** Returns the leases which have not expired. */
  get leases(): readonly LeaseID[] {
    return [...this.#leases.keys()];
  }

  // ── Calls of a `MemoryTransport` ────────────────────────────────────────────────────────────────────────────────

  /**
   * @internal A promise that resolves when the store can be used again; undefined if no work is pending. Calls that
   * wait for it continue in order.
   */
  get idle(): Promise<void> | undefined {
    return this.#idle;
  }

  /** @internal See {@link MemoryStore.range}. */
  range(request: RangeRequest, maxBlocks?: number): RangeResponse {
    this.checkLeader();
    this.#completePending();
    return this.#store.range(request, maxBlocks);
  }

  /** @internal Applies a transaction in this turn of the event loop. */
  txn(request: TxnRequest): TxnResponse {
    this.checkLeader();
    this.#completePending();
    return runToEnd(this.#apply(request));
  }

  /**
   * @internal Like {@link txn}, but in several turns if the transaction changes many keys. It is still atomic, because
   * no call is served between the turns.
   */
  txnInTurns(request: TxnRequest): TxnResponse | Promise<TxnResponse> {
    this.checkLeader();
    return this.#store.isLarge(request) ? this.#start(this.#apply(request)) : this.txn(request);
  }

  /**
   * @internal
   * @param onEnded called once when the stream ended, for any reason
   */
  watch(request: WatchRequest, observer: WatchObserver, onEnded: () => void = () => {}): MemoryWatchStream {
    const onEnd = (): void => {
      this.#streams.delete(stream);
      onEnded();
    };
    const stream = new MemoryWatchStream(this.#store, request, observer, this.#sliceEvents, onEnd);
    this.#streams.add(stream);
    return stream;
  }

  /** @internal */
  grantLease(ttlSeconds: number): LeaseID {
    this.checkLeader();
    const id = String(++this.#lastLease);
    this.#leases.set(id, { ttlSeconds, keys: new Set(), timer: this.#expiry(id, ttlSeconds) });
    return id;
  }

  /** @internal */
  keepLeaseAlive(id: LeaseID): number {
    this.checkLeader();
    const lease = this.#lease(id);
    lease.timer.cancel();
    lease.timer = this.#expiry(id, lease.ttlSeconds);
    return lease.ttlSeconds;
  }

  /** @internal */
  revokeLease(id: LeaseID): void {
    this.checkLeader();
    this.#lease(id);
    this.expireLease(id);
  }

  // ── Maintenance, also by tests ─────────────────────────────────────────────────────────────────────────

  /** Expires a lease now: deletes its keys in one revision, in several turns if they are many. */
  expireLease(id: LeaseID): void {
    const lease = this.#leases.get(id);
    if (lease === undefined) return;
    lease.timer.cancel();
    void this.#start(this.#expire(id, lease));
  }

  /** Discards the history before `revision` (default: the current one). */
  compact(revision: number = this.#store.revision): void {
    this.#completePending();
    void this.#start(this.#store.compact(revision));
    this.#wake();
  }

  snapshot(): ServerSnapshot {
    this.#completePending();
    const leases = [...this.#leases].map(
      ([id, { ttlSeconds, keys }]) => [id, { ttlSeconds, keys: new Set(keys) }] as const,
    );
    return { store: this.#store.snapshot(), leases: new Map(leases) };
  }

  /**
   * Restores a backup: every stream breaks and revisions go back. Leases of the backup have their whole TTL again, as
   * in etcd. The cluster id does not change.
   */
  restore(snapshot: ServerSnapshot): void {
    this.#completePending();
    this.#store.restore(snapshot.store);
    for (const lease of this.#leases.values()) lease.timer.cancel();
    this.#leases.clear();
    for (const [id, { ttlSeconds, keys }] of snapshot.leases) {
      this.#leases.set(id, { ttlSeconds, keys: new Set(keys), timer: this.#expiry(id, ttlSeconds) });
    }
    this.endStreams(new KvstoreError('unavailable', 'server restarted'));
  }

  /** @internal */
  protected endStreams(reason: KvstoreError): void {
    for (const stream of this.#streams) stream.end(reason);
  }

  /** @internal Called at the start of each call. Throws if the server cannot serve it. */
  protected checkLeader(): void {}

  // ── Inside ─────────────────────────────────────────────────────────────────────────────────────────────

  #lease(id: LeaseID): Lease {
    const lease = this.#leases.get(id);
    if (lease !== undefined) return lease;
    throw new KvstoreError('lease-not-found', `lease ${id} not found`);
  }

  *#expire(id: LeaseID, lease: Lease): SteppedWork<void> {
    if (this.#leases.get(id) !== lease) return;
    this.#leases.delete(id);
    yield* this.#write({ compare: [], writes: deletesOf(lease.keys) });
  }

  #expiry(id: LeaseID, ttlSeconds: number): Timer {
    const timer = this.#clock.after(ttlSeconds * 1000, () => this.expireLease(id));
    timer.unref?.(); // no reader exists after the end of the process
    return timer;
  }

  #moveKey(key: string, from: LeaseID, to: LeaseID): void {
    this.#leases.get(from)?.keys.delete(key);
    this.#leases.get(to)?.keys.add(key);
  }

  #apply(request: TxnRequest): SteppedWork<TxnResponse> {
    return this.#write({ ...request, checkLease: (id) => this.#lease(id) });
  }

  *#write(request: StoreTxn): SteppedWork<TxnResponse> {
    const before = this.#store.revision;
    const response = yield* this.#store.txn(request);
    if (this.#store.revision === before) return response;
    const surplus = this.#store.revision - this.#store.compactRevision - this.#keepRevisions;
    if (surplus > Math.min(this.#keepRevisions, COMPACTED_REVISIONS))
      yield* this.#store.compact(this.#store.revision - this.#keepRevisions);
    this.#wake();
    return response;
  }

  /**
   * Begins work now, or after the pending work. If the work begins now and has one step, it is complete when this
   * returns.
   */
  #start<T>(work: SteppedWork<T>): T | Promise<T> {
    const first = this.#pending.size === 0 ? work.next() : undefined;
    if (first?.done === true) return first.value;
    return new Promise((resolve, reject) => {
      this.#pending.add(stepsOf(work, resolve, reject));
      this.#idle ??= this.#runPending();
    });
  }

  async #runPending(): Promise<void> {
    for (const work of this.#pending) {
      await this.#gate.runSteps(work);
      this.#pending.delete(work);
    }
    this.#idle = undefined;
  }

  /** Completes the pending work in this turn, for a call that cannot wait. */
  #completePending(): void {
    for (const work of this.#pending) runToEnd(work);
  }

  #wake(): void {
    for (const stream of this.#streams) stream.wake();
  }
}

function deletesOf(keys: Iterable<string>): Iterable<WriteOperation> {
  return {
    *[Symbol.iterator]() {
      for (const key of keys) yield { op: 'delete', range: keyRange(key) };
    },
  };
}

function* stepsOf<T>(
  work: SteppedWork<T>,
  onDone: (result: T) => void,
  onError: (reason: unknown) => void,
): Generator<void, void, void> {
  try {
    onDone(yield* work);
  } catch (error) {
    onError(error);
  }
}

const OPTIONS = optionsWith({ clusterID: optional(TEXT), keepRevisions: optional(atLeast(0)) });

checkArguments(MemoryServer, {
  compact: { revision: optional(NUMBER) },
  restore: { snapshot: objectWith({ store: OBJECT, leases: OBJECT }) },
});
