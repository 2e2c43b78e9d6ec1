import {
  atLeast,
  BOOLEAN,
  BYTES,
  type Check,
  checkArgument,
  checkArguments,
  FUNCTION,
  listOf,
  matching,
  NUMBER,
  OBJECT,
  objectWith,
  optional,
  optionsWith,
  SIGNAL,
  shaped,
  TEXT,
} from '../base/arguments.ts';
import type { Clock, Random } from '../base/clock.ts';
import { DeliveryQueue } from '../base/delivery-queue.ts';
import { EitherSignal } from '../base/follow-signal.ts';
import { CallbackGuard } from '../base/guard.ts';
import type { RateLimit } from '../base/rate-limit.ts';
import type { Unsubscribe } from '../base/subscription.ts';
import { Supervisor } from '../base/supervisor.ts';
import type { TurnGate } from '../base/turn-gate.ts';
import { bytesOfText } from './codec/bytes.ts';
import { keyRange, prefixRange } from './codec/key-range.ts';
import { KvstoreWriter } from './kvstore-writer.ts';
import type {
  BackendStatus,
  DeleteOptions,
  KeyRead,
  KeyWrite,
  KvstoreBackend,
  KvstoreLock,
  LeaseLostListener,
  ListOptions,
  RetryTurns,
  Watch,
  WatchOptions,
  WriteOptions,
  WrittenAll,
} from './session/backend.ts';
import { CallLimits, type Timed } from './session/call-limits.ts';
import { asKvstoreError, KvstoreError, rethrowWithRight } from './session/errors.ts';
import { LeaseKeeper } from './session/lease-keeper.ts';
import { LeaseLosses } from './session/lease-losses.ts';
import { LeaseWitnesses } from './session/lease-witnesses.ts';
import { LockKeeper } from './session/lock-keeper.ts';
import { ObservedTransport } from './session/observed-transport.ts';
import type {
  CallOptions,
  Compare,
  EndpointStatus,
  KeyValue,
  LeaseID,
  Transport,
} from './session/transport.ts';
import { untilAborted } from './session/until-aborted.ts';
import { entrySize, plainKeyValue } from './session/wire-key-value.ts';
import { WriteFence } from './session/write-fence.ts';
import { ClientWrites, type ReadKey } from './watch/client-writes.ts';
import { ListAndWatch } from './watch/list-and-watch.ts';
import { PageSize } from './watch/page-size.ts';
import { listPages } from './watch/paged-list.ts';
import { Reconnects } from './watch/reconnects.ts';
import { WATCH_LIMITS, type WatchLimits } from './watch/watch-limits.ts';
import { WatchSession } from './watch/watch-session.ts';

/** Options of every backend. */
export interface BackendOptions {
  /**
   * Whole seconds after the last keepalive of the client until its leased keys expire: 1 to 9·10⁹, as in etcd. Default
   * 900, as in Cilium.
   */
  readonly leaseSeconds?: number | undefined;
  /**
   * Receives background failures with the name of the task: keepalives, cleanup of locks, errors of listeners.
   * `status()` also reports all of them.
   */
  readonly onFailure?: ((error: unknown, task: string) => void) | undefined;
  /**
   * Called immediately before each write. If it returns false, the write is not sent, and the call fails with
   * `not-leader`. Keepalives and locks are not affected, because readers ignore them. Default: always true.
   */
  readonly mayWrite?: (() => boolean) | undefined;
  /**
   * Maximum time of a write that `mayWrite` admitted, even if its caller sets a later deadline. Default: the time limit
   * of the transport.
   */
  readonly writeTimeoutMs?: number | undefined;
  /**
   * If true, the end of a lease by the server is detected immediately, at the cost of one key per lease and a watch of
   * these keys. Default false: the next keepalive detects it.
   */
  readonly witnessLeases?: boolean | undefined;
  /** Splits listings, and work that grows with the number of leased keys, into short turns. Default: no limits. */
  readonly gate?: TurnGate | undefined;
}

/** Options of {@link KvstoreClient}. */
export interface KvstoreClientOptions extends BackendOptions {
  /** For display: `memory`, `etcd`. */
  readonly kind: string;
  /** @internal */
  readonly transport: Transport;
  /** Measures deadlines, leases and delays of retries. */
  readonly clock: Clock;
  /** Source of jitter. */
  readonly random: Random;
  /**
   * @internal Limits the rate of reads and writes, including the pages of `listPrefix`. Watches, keepalives and locks
   * are not limited, because they maintain existing state. Default: no limit.
   */
  readonly rateLimit?: RateLimit | undefined;
  /** Limits on the reads, queues and deliveries of watches. Default: `WATCH_LIMITS`. */
  readonly watchLimits?: Partial<WatchLimits> | undefined;
}

const LEASE_SECONDS = 15 * 60;
/** The longest lease of etcd (`MaxLeaseTTL`). */
const MAX_LEASE_SECONDS = 9e9;
/**
 * TTL of the leases of the keys with `expires-first`, as a fraction of `leaseSeconds`. Keepalives are sent after a
 * third of a TTL, so the other leases have at least two thirds of theirs left when a client stops. The fraction is
 * smaller, so that these keys expire first.
 */
const FIRST_LEASE_FRACTION = 0.6;
/**
 * When a client closes: deadline of its later revocations, if one of the first-expiring leases had no answer in time.
 */
const SECOND_REVOCATION_MS = 1000;
/** Maximum number of keys that `listPrefix` reads without a stream. */
const SINGLE_READ_KEYS = 128;

/**
 * Maximum size of a listing, the default quota of an etcd. It limits the memory for the answers of a server that always
 * sends further keys.
 */
const MAX_LISTING_BYTES = 2 * 1024 ** 3;
/** Memory of a listed key in addition to its name and value. */
const KEY_BYTES = 200;

/** A {@link KvstoreBackend} over any transport: conditional writes, leases and watches. */
export class KvstoreClient implements KvstoreBackend, AsyncDisposable {
  readonly #options: KvstoreClientOptions;
  readonly #transport: ObservedTransport;
  readonly #supervisor: Supervisor;
  readonly #leases: LeaseKeeper;
  /** The leases of the keys with `expires-first`. */
  readonly #firstExpiringLeases: LeaseKeeper;
  readonly #limits: CallLimits;
  readonly #fence: WriteFence;
  readonly #writer: KvstoreWriter;
  readonly #locks: LockKeeper;
  readonly #guard: CallbackGuard;
  readonly #leaseLosses: LeaseLosses;
  readonly #watches = new Set<ListAndWatch>();
  readonly #reconnects = new Reconnects();
  readonly #closed = new AbortController();
  /** The last leased writes. They are compared with the store after keepalives, to detect a restore. */
  readonly #clientWrites = new ClientWrites();
  /** True while {@link KvstoreClient.#compareClientWrites} runs. */
  #isComparing = false;
  /** Monotonic time at which the client last detected that the store was replaced or restored. */
  #divergedAt = Number.NEGATIVE_INFINITY;

  /** @internal */
  constructor(options: KvstoreClientOptions) {
    checkArgument('options', options, CLIENT_OPTIONS);
    this.#options = options;
    const { clock, random, onFailure, leaseSeconds = LEASE_SECONDS } = options;
    const transport = new ObservedTransport(
      options.transport,
      clock,
      () => {
        for (const watch of this.#watches) watch.checkRights();
      },
      (lostHistorySeenAt) => this.#handleDivergence(lostHistorySeenAt),
    );
    this.#transport = transport;
    this.#limits = new CallLimits(clock, options.rateLimit, this.#closed.signal);
    this.#guard = new CallbackGuard((error) => onFailure?.(error, 'lease listener'));
    this.#leaseLosses = new LeaseLosses(new DeliveryQueue(this.#guard));
    const supervisor = new Supervisor({ clock, random, onFailure });
    this.#supervisor = supervisor;
    this.#locks = new LockKeeper({ transport, clock, random, supervisor });
    const witnesses = options.witnessLeases === true ? this.#newWitnesses() : undefined;
    const firstSeconds = Math.max(1, Math.floor(leaseSeconds * FIRST_LEASE_FRACTION));
    this.#leases = this.#newKeeper('leases', leaseSeconds, witnesses);
    this.#firstExpiringLeases = this.#newKeeper('first-expiring leases', firstSeconds, witnesses);
    this.#fence = new WriteFence(this.#leases, (request) => this.#limits.call(() => transport.txn(request)));
    this.#writer = new KvstoreWriter({
      ...options,
      transport,
      limits: this.#limits,
      fence: this.#fence,
      leases: this.#leases,
      firstExpiringLeases: this.#firstExpiringLeases,
      clientWrites: this.#clientWrites,
    });
  }

  async get(key: string, options?: CallOptions): Promise<KeyValue | undefined> {
    return (await this.read(key, options)).kv;
  }

  async read(key: string, options?: CallOptions): Promise<KeyRead> {
    const read = this.#limits.call((limits) => this.#transport.range(keyRange(key), limits), options);
    const { header, kvs } = await read.catch(rethrowWithRight('read', key));
    return { kv: kvs[0] && plainKeyValue(kvs[0]), header };
  }

  async listPrefix(prefix: string, options: ListOptions = {}): Promise<readonly KeyValue[]> {
    const range = prefixRange(prefix);
    const { minModRevision = 0, ...call } = this.#limits.timed(options);
    const request = { ...range, limit: SINGLE_READ_KEYS, minModRevision };
    const first = this.#limits.call((limits) => this.#transport.range(request, limits), call);
    const page = await first.catch(noneIfTooLarge).catch(rethrowWithRight('read', prefix));
    return page === undefined || page.more
      ? this.#listPages(prefix, minModRevision, call)
      : page.kvs.map(plainKeyValue);
  }

  async update(key: string, value: Uint8Array, options: WriteOptions = {}): Promise<number> {
    return (await this.#writer.commit([{ key, value }], options)).revision;
  }

  async updateIfDifferent(key: string, value: Uint8Array, options: WriteOptions = {}): Promise<boolean> {
    return (await this.#writer.commit([{ key, value, mayBeEqual: true }], options)).isComplete;
  }

  async createOnly(key: string, value: Uint8Array, options: WriteOptions = {}): Promise<boolean> {
    const isAbsent: Compare = { key, target: 'create-revision', equals: 0 };
    return (await this.#writer.commit([{ key, value }], options, isAbsent)).isComplete;
  }

  async delete(key: string, options: DeleteOptions = {}): Promise<boolean> {
    const { ifModRevision } = options;
    const isUnchanged: Compare | undefined =
      ifModRevision === undefined ? undefined : { key, target: 'mod-revision', equals: ifModRevision };
    return (await this.#writer.commit([{ key }], options, isUnchanged)).deleted > 0;
  }

  writeAll(writes: readonly KeyWrite[], options: WriteOptions = {}): Promise<WrittenAll> {
    return this.#writer.writeAll(writes, options);
  }

  deletePrefix(prefix: string, options: Omit<DeleteOptions, 'ifModRevision'> = {}): Promise<number> {
    return this.#writer.deletePrefix(prefix, options);
  }

  async adoptLease(
    lease: LeaseID,
    keys: readonly string[],
    { signal }: Pick<CallOptions, 'signal'> = {},
  ): Promise<boolean> {
    this.#writer.checkLeader();
    try {
      return await this.#leases.adopt(lease, keys, () => this.#fence.deleteFenceOf(lease), signal);
    } catch (thrown) {
      throw this.#limits.failureOf(thrown, signal);
    }
  }

  lock(path: string, options?: Pick<CallOptions, 'signal'>): Promise<KvstoreLock> {
    return this.#locks.lock(path, options);
  }

  watch(prefix: string, options: WatchOptions = {}): Watch {
    const { clock, random, gate, watchLimits } = this.#options;
    const watch = new ListAndWatch({
      ...options,
      transport: this.#transport,
      prefix,
      clock,
      random,
      closed: this.#closed.signal,
      reconnects: this.#reconnects,
      gate,
      limits: watchLimits,
      onDiverged: (lostHistorySeenAt) => this.#handleDivergence(lostHistorySeenAt),
      onBegin: () => this.#watches.add(watch),
      onEnd: () => this.#watches.delete(watch),
    });
    return watch;
  }

  retryInTurn(turns: RetryTurns): void {
    this.#reconnects.turns = turns;
  }

  onLeaseLost(listener: LeaseLostListener): Unsubscribe {
    return this.#leaseLosses.subscribe(listener);
  }

  endpoints(options?: CallOptions): Promise<readonly EndpointStatus[]> {
    return this.#transport.endpoints(options);
  }

  status(): BackendStatus {
    return {
      kind: this.#options.kind,
      connected: this.#transport.connected,
      clusterID: this.#transport.clusterID,
      requests: this.#transport.requests,
      leases: this.#leases.size + this.#firstExpiringLeases.size,
      leasesLost: this.#leases.lost + this.#firstExpiringLeases.lost,
      watches: [...this.#watches].map((watch) => watch.status()),
      isFenced: !this.#fence.isForbidden,
      background: this.#supervisor.status(),
      listenerFaults: this.#guard.faults,
      lastFailure: this.#transport.lastFailure,
    };
  }

  async close(options: { readonly keepLeases?: boolean } = {}): Promise<void> {
    this.#closed.abort();
    const revoke = options.keepLeases !== true;
    const isAnswering = await this.#firstExpiringLeases.close(revoke);
    const deadlineMs = isAnswering ? undefined : SECOND_REVOCATION_MS;
    await Promise.all([this.#locks.close(deadlineMs), this.#leases.close(revoke, deadlineMs)]);
    await this.#transport.close();
    await this.#supervisor.stop();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /**
   * Lists all pages while a stream is open. A restore of the store would end the stream, so all pages are from one
   * history.
   */
  async #listPages(prefix: string, minModRevision: number, call: Timed): Promise<readonly KeyValue[]> {
    const { clock } = this.#options;
    using until = new EitherSignal(call.signal, this.#closed.signal);
    const { signal } = until;
    const request = { prefix: `${prefix}\0`, startRevision: 0 }; // no key has this prefix
    const session = new WatchSession({
      transport: this.#transport,
      request,
      clock,
      signal,
      limits: WATCH_LIMITS,
    });
    try {
      await this.#limits.wait(call, (limited) => untilAborted(session.opened, limited));
      const all: KeyValue[] = [];
      const pages = listPages({
        prefix,
        range: prefixRange(prefix),
        revision: 0,
        minModRevision,
        clock,
        pageSize: new PageSize(WATCH_LIMITS),
        read: (page) => this.#limits.call(({ deadlineMs }) => session.range(page, deadlineMs), call),
      });
      let bytes = 0;
      for await (const { kvs } of pages) {
        for (const kv of kvs) {
          bytes += entrySize(kv) + KEY_BYTES;
          all.push(plainKeyValue(kv));
        }
        if (bytes > MAX_LISTING_BYTES)
          throw new KvstoreError('too-large', `the keys of ${prefix} exceed ${MAX_LISTING_BYTES} bytes`);
      }
      return all;
    } catch (thrown) {
      throw this.#limits.failureOf(thrown, call.signal);
    } finally {
      session.close();
    }
  }

  get #keepers(): readonly LeaseKeeper[] {
    return [this.#firstExpiringLeases, this.#leases];
  }

  #newKeeper(name: string, ttlSeconds: number, witnesses: LeaseWitnesses | undefined): LeaseKeeper {
    const { clock, random, gate } = this.#options;
    return new LeaseKeeper({
      transport: this.#transport,
      clock,
      random,
      supervisor: this.#supervisor,
      name,
      ttlSeconds,
      gate,
      onLost: (keys) => {
        for (const key of keys) this.#clientWrites.forget(key);
        this.#leaseLosses.notifyLeaseLost(keys);
      },
      onLeasesLost: (reported) => this.#leaseLosses.notifyLeasesLost(reported),
      onGranted: (lease) => witnesses?.start(lease, this.#closed.signal),
      onEnded: (lease) => witnesses?.stop(lease),
      onRenewed: () => void this.#compareClientWrites().catch(() => {}), // the supervisor counts the failure
    });
  }

  #newWitnesses(): LeaseWitnesses {
    const value = bytesOfText('');
    return new LeaseWitnesses({
      supervisor: this.#supervisor,
      put: (key, lease) =>
        this.#limits.call(() =>
          this.#transport.txn({ compare: [], writes: [{ op: 'put', key, value, lease }] }),
        ),
      watch: (prefix, signal) => this.watch(prefix, { signal }),
      onLeaseEnded: (lease) => {
        for (const keeper of this.#keepers) keeper.markLost(lease);
      },
    });
  }

  /**
   * Compares the last writes of this client with the store. Keepalives do not detect a restore, because a restored
   * store may know a lease but not the later writes under it.
   */
  async #compareClientWrites(): Promise<void> {
    if (this.#isComparing) return;
    this.#isComparing = true;
    const startedAt = this.#options.clock.now();
    const { signal } = this.#closed;
    const read: ReadKey = async (key, revision = 0) =>
      (await this.#transport.range({ ...keyRange(key), revision }, { signal })).kvs[0];
    const compare = (): Promise<boolean> => this.#clientWrites.areInHistory(read);
    try {
      if (!(await this.#supervisor.run('own writes', compare, { signal }))) this.#handleDivergence(startedAt);
    } finally {
      this.#isComparing = false;
    }
  }

  /**
   * Handles a store that was replaced or restored: all leases count as lost, so their keys are put again under new
   * leases. Many watches report the same restore, some of them late. Reports of a handled restore are ignored.
   *
   * @param lostHistorySeenAt when the watch or the transport last received a revision of the lost history
   */
  #handleDivergence(lostHistorySeenAt: number): void {
    if (lostHistorySeenAt < this.#divergedAt) return;
    this.#divergedAt = this.#options.clock.now();
    this.#clientWrites.clear();
    for (const keeper of this.#keepers) keeper.loseAll();
    this.#locks.loseAll();
  }
}

const CALL = { signal: optional(SIGNAL), deadlineMs: optional(NUMBER) };
const OPTIONS = optional(objectWith(CALL));
const REVISION: Check = (value) =>
  Number.isSafeInteger(value) && Number(value) >= 0 ? undefined : ' must be a whole number, 0 or more';
const LIST_OPTIONS = optional(objectWith({ ...CALL, minModRevision: optional(REVISION) }));
const WRITE = optional(
  objectWith({
    ...CALL,
    ifLocked: optional(objectWith({ key: TEXT, revision: REVISION })),
    ifModRevision: optional(REVISION),
  }),
);

const KEY_WRITE = shaped<KeyWrite>(
  'must be a put or a delete of a key',
  ({ key, value }) => typeof key === 'string' && (value === undefined || value instanceof Uint8Array),
);

const LEASE: Check = (lease) =>
  typeof lease === 'string' && /^-?\d{1,20}$/.test(lease) ? undefined : ' must be the decimal id of a lease';

const CLIENT_OPTIONS = optionsWith({
  leaseSeconds: optional(
    matching(
      `must be 1 to ${MAX_LEASE_SECONDS} whole seconds`,
      (value) => Number.isInteger(value) && Number(value) > 0 && Number(value) <= MAX_LEASE_SECONDS,
    ),
  ),
  mayWrite: optional(FUNCTION),
  writeTimeoutMs: optional(atLeast(0)),
  witnessLeases: optional(BOOLEAN),
});

checkArguments(KvstoreClient, {
  get: { key: TEXT, options: OPTIONS },
  read: { key: TEXT, options: OPTIONS },
  listPrefix: { prefix: TEXT, options: LIST_OPTIONS },
  update: { key: TEXT, value: BYTES, options: WRITE },
  updateIfDifferent: { key: TEXT, value: BYTES, options: WRITE },
  createOnly: { key: TEXT, value: BYTES, options: WRITE },
  delete: { key: TEXT, options: WRITE },
  writeAll: { writes: listOf(KEY_WRITE), options: WRITE },
  adoptLease: { lease: LEASE, keys: listOf(TEXT), options: OPTIONS },
  deletePrefix: { prefix: TEXT, options: WRITE },
  lock: { path: TEXT, options: OPTIONS },
  watch: { prefix: TEXT, options: OPTIONS },
  onLeaseLost: { listener: objectWith({ onLeaseLost: FUNCTION }) },
  endpoints: { options: OPTIONS },
  close: { options: optional(OBJECT) },
});

/** Returns undefined for the error `too-large`; throws other errors. */
function noneIfTooLarge(thrown: unknown): undefined {
  if (asKvstoreError(thrown).code !== 'too-large') throw thrown;
}
