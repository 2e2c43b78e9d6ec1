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
import { assert } from '../base/assert.ts';
import type { Clock, Random } from '../base/clock.ts';
import { DeliveryQueue } from '../base/delivery-queue.ts';
import { EitherSignal } from '../base/follow-signal.ts';
import { CallbackGuard } from '../base/guard.ts';
import type { RateLimit } from '../base/rate-limit.ts';
import type { Unsubscribe } from '../base/subscription.ts';
import { Supervisor } from '../base/supervisor.ts';
import { OPEN_GATE, type TurnGate } from '../base/turn-gate.ts';
import { bytesOfText } from './codec/bytes.ts';
import { keyRange, prefixRange } from './codec/key-range.ts';
import {
  type BackendStatus,
  type DeleteOptions,
  type KeyRead,
  type KeyWrite,
  type KvstoreBackend,
  type KvstoreLock,
  type LeaseLostListener,
  type ListOptions,
  MAX_COMPARED_WRITES,
  MAX_WRITES,
  type RetryTurns,
  type Watch,
  type WatchOptions,
  type WriteOptions,
  type WrittenAll,
} from './session/backend.ts';
import {
  asKvstoreError,
  closedError,
  KvstoreError,
  neverTakesEffect,
  withMissingRight,
} from './session/errors.ts';
import { type Binding, LeaseKeeper } from './session/lease-keeper.ts';
import { LeaseLosses } from './session/lease-losses.ts';
import { LeaseWitnesses } from './session/lease-witnesses.ts';
import { LockKeeper } from './session/lock-keeper.ts';
import { ObservedTransport } from './session/observed-transport.ts';
import { allowManyListeners, ClientSignal, untilAborted } from './session/shared-signal.ts';
import {
  type CallOptions,
  type Compare,
  type EndpointStatus,
  type KeyValue,
  type LeaseID,
  NO_LEASE,
  type Transport,
  type TxnRequest,
  type TxnResponse,
  type WriteOperation,
} from './session/transport.ts';
import { entrySize, plainKeyValue } from './session/wire-key-value.ts';
import { guardedTxn, WriteFence } from './session/write-fence.ts';
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

/** A binding that ends if `write` is applied. `holder` keeps the lease of the binding. */
interface ReleasedBinding {
  readonly write: KeyWrite;
  readonly holder: LeaseKeeper;
  readonly binding: Binding;
}

/**
 * The result of a transaction of writes. `isComplete` is also false if the condition of the transaction did not hold.
 */
interface Committed extends WrittenAll {
  readonly deleted: number;
}

/** The options of an operation. `endsAt` is the monotonic time of the deadline, if the caller has set one. */
type Timed<O extends CallOptions = CallOptions> = O & { readonly endsAt?: number | undefined };
type TimedWrite = Timed<WriteOptions>;

type Put = KeyWrite & { readonly value: Uint8Array };

/** A {@link KvstoreBackend} over any transport: conditional writes, leases and watches. */
export class KvstoreClient implements KvstoreBackend, AsyncDisposable {
  // A write passes these methods:
  //
  //   #commit         binds the keys to leases, and records the result
  //   #txn            waits for the fence
  //   #txnWithFence   adds the fence and the lock as guards
  //   #sendTxn        checks that this process is the leader
  //   #call           waits for the rate limit, and applies the deadline

  readonly #options: KvstoreClientOptions;
  readonly #transport: ObservedTransport;
  readonly #supervisor: Supervisor;
  readonly #leases: LeaseKeeper;
  /** The leases of the keys with `expires-first`. */
  readonly #firstExpiringLeases: LeaseKeeper;
  readonly #fence: WriteFence;
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
    this.#guard = new CallbackGuard((error) => onFailure?.(error, 'lease listener'));
    this.#leaseLosses = new LeaseLosses(new DeliveryQueue(this.#guard));
    const supervisor = new Supervisor({ clock, random, onFailure });
    this.#supervisor = supervisor;
    this.#locks = new LockKeeper({ transport, clock, random, supervisor });
    const witnesses = options.witnessLeases === true ? this.#newWitnesses() : undefined;
    const firstSeconds = Math.max(1, Math.floor(leaseSeconds * FIRST_LEASE_FRACTION));
    this.#leases = this.#newKeeper('leases', leaseSeconds, witnesses);
    this.#firstExpiringLeases = this.#newKeeper('first-expiring leases', firstSeconds, witnesses);
    this.#fence = new WriteFence(this.#leases, (request) => this.#call(() => transport.txn(request)));
  }

  async get(key: string, options?: CallOptions): Promise<KeyValue | undefined> {
    return (await this.read(key, options)).kv;
  }

  async read(key: string, options?: CallOptions): Promise<KeyRead> {
    const read = this.#call((limits) => this.#transport.range(keyRange(key), limits), options);
    const { header, kvs } = await read.catch(rethrowWithRight('read', key));
    return { kv: kvs[0] && plainKeyValue(kvs[0]), header };
  }

  async listPrefix(prefix: string, options: ListOptions = {}): Promise<readonly KeyValue[]> {
    const range = prefixRange(prefix);
    const { minModRevision = 0, ...call } = this.#timed(options);
    const request = { ...range, limit: SINGLE_READ_KEYS, minModRevision };
    const first = this.#call((limits) => this.#transport.range(request, limits), call);
    const page = await first.catch(noneIfTooLarge).catch(rethrowWithRight('read', prefix));
    return page === undefined || page.more
      ? this.#listPages(prefix, minModRevision, call)
      : page.kvs.map(plainKeyValue);
  }

  async update(key: string, value: Uint8Array, options: WriteOptions = {}): Promise<number> {
    return (await this.#commit([{ key, value }], options)).revision;
  }

  async updateIfDifferent(key: string, value: Uint8Array, options: WriteOptions = {}): Promise<boolean> {
    return (await this.#commit([{ key, value, mayBeEqual: true }], options)).isComplete;
  }

  async createOnly(key: string, value: Uint8Array, options: WriteOptions = {}): Promise<boolean> {
    const isAbsent: Compare = { key, target: 'create-revision', equals: 0 };
    return (await this.#commit([{ key, value }], options, isAbsent)).isComplete;
  }

  async createIfExists(
    condition: string,
    key: string,
    value: Uint8Array,
    options: WriteOptions = {},
  ): Promise<boolean> {
    const exists: Compare = { key: condition, target: 'exists' };
    return (await this.#commit([{ key, value }], options, exists)).isComplete;
  }

  async delete(key: string, options: DeleteOptions = {}): Promise<boolean> {
    const { ifModRevision } = options;
    const isUnchanged: Compare | undefined =
      ifModRevision === undefined ? undefined : { key, target: 'mod-revision', equals: ifModRevision };
    return (await this.#commit([{ key }], options, isUnchanged)).deleted > 0;
  }

  async writeAll(writes: readonly KeyWrite[], options: WriteOptions = {}): Promise<WrittenAll> {
    const compared = writes.filter(mayBeOmitted);
    if (writes.length === 0 || writes.length > MAX_WRITES || compared.length > MAX_COMPARED_WRITES)
      throw new KvstoreError(
        'invalid-request',
        `${writes.length} writes, ${compared.length} compared: must be 1 to ${MAX_WRITES}, and at most ${MAX_COMPARED_WRITES}`,
      );
    const { revision, isComplete } = await this.#commit(writes, options);
    return { revision, isComplete };
  }

  async deletePrefix(prefix: string, options: Omit<DeleteOptions, 'ifModRevision'> = {}): Promise<number> {
    const { gate = OPEN_GATE } = this.#options;
    const previous = this.#keepers.map(({ bindingCount }) => bindingCount);
    this.#clientWrites.forgetBelow(prefix);
    const writes = [{ op: 'delete', range: prefixRange(prefix) } as const];
    const { header, deleted } = await this.#txn({ compare: [], writes }, options);
    await gate.runSteps(this.#unbindBelow(prefix, header.revision, previous));
    return deleted;
  }

  async adoptLease(
    lease: LeaseID,
    keys: readonly string[],
    { signal }: Pick<CallOptions, 'signal'> = {},
  ): Promise<boolean> {
    this.#checkLeader();
    try {
      return await this.#leases.adopt(lease, keys, () => this.#fence.deleteFenceOf(lease), signal);
    } catch (thrown) {
      throw this.#asFailure(thrown, signal);
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
    using until = new ClientSignal(call.signal, this.#closed.signal);
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
      await this.#wait(call, (limited) => untilAborted(session.opened, limited));
      const all: KeyValue[] = [];
      const pages = listPages({
        prefix,
        range: prefixRange(prefix),
        revision: 0,
        minModRevision,
        clock,
        pageSize: new PageSize(WATCH_LIMITS),
        read: (page) => this.#call(({ deadlineMs }) => session.range(page, deadlineMs), call),
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
      throw this.#asFailure(thrown, call.signal);
    } finally {
      session.close();
    }
  }

  /**
   * Sends writes of distinct keys in one transaction, and records their effects on the leases. If the lease of all puts
   * does not exist any more, writes again under a new lease, once.
   *
   * @param condition of all writes; none if a write has `mayBeEqual`
   */
  async #commit(
    writes: readonly KeyWrite[],
    options: TimedWrite,
    condition?: Compare,
    isLastTry = false,
  ): Promise<Committed> {
    const timed = this.#timed(options);
    const puts = writes.filter(isPut);
    const keeper = puts.length === 0 ? undefined : this.#keeperOf(options);
    const released = this.#releasedBy(writes, keeper);
    const bindings =
      keeper === undefined ? [] : await this.#wait(timed, (signal) => keeper.bindAll(puts, signal));
    for (const { key, value } of writes) if (value === undefined) this.#clientWrites.forget(key);
    const request = transactionOf(writes, bindings, condition);
    let answer: TxnResponse;
    try {
      answer = await this.#txn(request, timed);
    } catch (thrown) {
      const error = asKvstoreError(thrown);
      keeper?.settle(bindings, !neverTakesEffect(error));
      const lease = endedLease(error, bindings);
      if (isLastTry || lease === undefined) throw thrown;
      keeper?.markLost(lease);
      return this.#commit(writes, timed, condition, true);
    }
    const { header, succeeded, deleted } = answer;
    const { revision } = header;
    // Without a condition, each put was applied, or was omitted because the store has it under this lease.
    keeper?.settle(bindings, condition === undefined || succeeded, revision);
    const mayOmit = request.otherwise !== undefined;
    // A transaction that may omit writes compares their values: if it succeeded, all values were equal.
    const isComplete = mayOmit ? !succeeded : succeeded;
    const isApplied = (write: KeyWrite): boolean => isComplete || (mayOmit && !mayBeOmitted(write));
    this.#recordApplied(writes, isApplied, released, keeper, revision);
    return { revision, isComplete, deleted };
  }

  /**
   * Records applied writes: ends the bindings that they release, and updates {@link KvstoreClient.#clientWrites}.
   *
   * @param keeper of the leases of the puts; undefined if they have no lease
   */
  #recordApplied(
    writes: readonly KeyWrite[],
    isApplied: (write: KeyWrite) => boolean,
    released: readonly ReleasedBinding[],
    keeper: LeaseKeeper | undefined,
    revision: number,
  ): void {
    const ended = released.filter(({ write }) => isApplied(write));
    for (const { holder, binding } of ended) holder.unbind(binding, revision);
    for (const write of writes) {
      if (!isPut(write) || !isApplied(write)) continue;
      if (keeper === undefined) this.#clientWrites.forget(write.key);
      else this.#clientWrites.put(write.key, write.value, revision);
    }
    // One delete is enough, because a transaction is applied completely or not at all.
    const deletion = ended.find(({ write }) => write.value === undefined && !this.#isBound(write.key));
    if (deletion !== undefined) this.#clientWrites.recordDelete(deletion.write.key, revision);
  }

  /**
   * Returns the bindings ended by the writes: those of deleted keys, and those of put keys in keepers other than
   * `keeper`.
   */
  #releasedBy(writes: readonly KeyWrite[], keeper: LeaseKeeper | undefined): readonly ReleasedBinding[] {
    const released: ReleasedBinding[] = [];
    for (const holder of this.#keepers)
      for (const write of writes) {
        const isKept = holder === keeper && write.value !== undefined;
        const binding = isKept ? undefined : holder.bindingOf(write.key);
        if (binding !== undefined) released.push({ write, holder, binding });
      }
    return released;
  }

  /**
   * Unbinds the keys after a delete of their prefix, in steps.
   *
   * @param previous number of bindings of each keeper before the delete
   */
  *#unbindBelow(prefix: string, revision: number, previous: readonly number[]): Generator<void, void, void> {
    for (const [index, keeper] of this.#keepers.entries()) {
      for (const keys of keeper.unbindBelow(prefix, revision, previous[index] ?? 0)) {
        for (const key of keys) if (!this.#isBound(key)) this.#clientWrites.recordDelete(key, revision);
        yield;
      }
    }
  }

  get #keepers(): readonly LeaseKeeper[] {
    return [this.#firstExpiringLeases, this.#leases];
  }

  /** Returns the keeper of the leases for a write; undefined if it is not leased. */
  #keeperOf({ leased = false }: WriteOptions): LeaseKeeper | undefined {
    if (leased === false) return undefined;
    return leased === 'expires-first' ? this.#firstExpiringLeases : this.#leases;
  }

  /** Returns true if a key is bound to a held lease. */
  #isBound(key: string): boolean {
    return this.#keepers.some((keeper) => keeper.bindingOf(key) !== undefined);
  }

  /** Sends a transaction, with the lock and the fence as guards if requested. */
  async #txn(request: TxnRequest, options: TimedWrite): Promise<TxnResponse> {
    const timed = this.#timed(options);
    const attempt = (fence: readonly Compare[]): Promise<TxnResponse | undefined> =>
      this.#txnWithFence(request, fence, timed);
    const answer =
      timed.fenced === true
        ? await this.#wait(timed, (until) => this.#fence.write(attempt, { signal: until }))
        : await attempt([]);
    assert(answer, 'a response if no fence guards the write');
    return answer;
  }

  /**
   * Sends a transaction with the lock, if requested, and the fence as guards. Returns undefined if the fence has
   * changed. Throws if the lock was lost.
   */
  async #txnWithFence(
    request: TxnRequest,
    fence: readonly Compare[],
    timed: TimedWrite,
  ): Promise<TxnResponse | undefined> {
    const { ifLocked } = timed;
    const send = (txn: TxnRequest): Promise<TxnResponse> => this.#sendTxn(txn, timed);
    const lock = ifLocked === undefined ? [] : [lockGuard(ifLocked)];
    const answer = await guardedTxn(request, [...lock, ...fence], send);
    if (answer !== undefined || ifLocked === undefined) return answer;
    const isLockHeld = fence.length > 0 && (await send({ compare: lock, writes: [] })).succeeded;
    if (isLockHeld) return undefined;
    throw new KvstoreError('lock-lost', `the lock ${ifLocked.key} was lost`);
  }

  /** Sends a transaction once, if this process may be the leader. */
  #sendTxn(txn: TxnRequest, timed: TimedWrite): Promise<TxnResponse> {
    const { writeTimeoutMs } = this.#options;
    const send = async ({ signal, deadlineMs = writeTimeoutMs }: CallOptions): Promise<TxnResponse> => {
      this.#checkLeader();
      const limitMs =
        deadlineMs === undefined ? undefined : Math.min(deadlineMs, writeTimeoutMs ?? deadlineMs);
      return this.#transport.txn(txn, { signal, deadlineMs: limitMs });
    };
    return this.#call(send, timed).catch(rethrowWithRight('readwrite', keyOf(txn)));
  }

  /** Throws if another process may be the leader. */
  #checkLeader(): void {
    if (this.#options.mayWrite?.() === false)
      throw new KvstoreError(
        'not-leader',
        'the write was rejected, because another process may be the leader',
      );
  }

  /**
   * Runs a call within the rate limit and the deadline of an operation. The call receives its signal, and the rest of
   * its time.
   */
  async #call<T>(call: (limits: CallOptions) => Promise<T>, options: Timed = {}): Promise<T> {
    const { rateLimit, clock } = this.#options;
    const { signal, endsAt } = this.#timed(options);
    const run = (): Promise<T> =>
      call({ signal, deadlineMs: endsAt === undefined ? undefined : endsAt - clock.now() });
    try {
      if (rateLimit === undefined) return await run();
      const wait = { signal: signal ?? this.#closed.signal, endsAt };
      return await this.#wait(wait, (until) => rateLimit.run(run, allowManyListeners(until)));
    } catch (thrown) {
      throw this.#asFailure(thrown, signal);
    }
  }

  /** Waits with a signal, which fires when the caller aborts the operation, and at its deadline. */
  async #wait<T>(
    { signal, endsAt }: Timed,
    wait: (signal: AbortSignal | undefined) => Promise<T>,
  ): Promise<T> {
    if (endsAt === undefined) return wait(signal);
    const { clock } = this.#options;
    const expired = new AbortController();
    const timer = clock.after(endsAt - clock.now(), () => expired.abort());
    using either = new EitherSignal(expired.signal, ...(signal === undefined ? [] : [signal]));
    try {
      return await wait(either.signal);
    } catch (thrown) {
      const isExpired = expired.signal.aborted && signal?.aborted !== true;
      if (!isExpired || asKvstoreError(thrown).code !== 'aborted') throw thrown;
      throw new KvstoreError('deadline', 'the call had to wait until its deadline');
    } finally {
      timer.cancel();
    }
  }

  /** Returns the options with the time of their deadline. */
  #timed<O extends CallOptions>(options: Timed<O>): Timed<O> {
    const { deadlineMs, endsAt } = options;
    if (deadlineMs === undefined || endsAt !== undefined) return options;
    return { ...options, endsAt: this.#options.clock.now() + deadlineMs };
  }

  /**
   * Returns the error of a call. If the client was closed while a caller without a signal waited for its turn, the code
   * is `closed`.
   */
  #asFailure(thrown: unknown, signal: AbortSignal | undefined): KvstoreError {
    const error = asKvstoreError(thrown);
    if (error.code !== 'aborted' || signal !== undefined) return error;
    return closedError();
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
        this.#call(() => this.#transport.txn({ compare: [], writes: [{ op: 'put', key, value, lease }] })),
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
  createIfExists: { condition: TEXT, key: TEXT, value: BYTES, options: WRITE },
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

function isPut(write: KeyWrite): write is Put {
  return write.value !== undefined;
}

/** Returns true if a transaction may omit the write. A delete is never omitted. */
function mayBeOmitted({ value, mayBeEqual = false }: KeyWrite): boolean {
  return value !== undefined && mayBeEqual;
}

/**
 * Returns the lease of all bindings if the error shows that it has ended. Undefined if the bindings have several
 * leases, because etcd does not name the lease in its error.
 */
function endedLease({ code }: KvstoreError, bindings: readonly Binding[]): LeaseID | undefined {
  const [lease, ...others] = new Set(bindings.map(({ held }) => held.id));
  return code === 'lease-not-found' && others.length === 0 ? lease : undefined;
}

/**
 * Returns the transaction of several writes. If writes may be omitted (`mayBeEqual`), the transaction compares their
 * values, and its `otherwise` has all writes.
 *
 * @param bindings of the puts in their order; empty if they have no lease
 */
function transactionOf(
  writes: readonly KeyWrite[],
  bindings: readonly Binding[],
  condition: Compare | undefined,
): TxnRequest {
  const compare: Compare[] = condition === undefined ? [] : [condition];
  let puts = 0;
  const all = writes.map(({ key, value }): WriteOperation => {
    if (value === undefined) return { op: 'delete', range: keyRange(key) };
    return { op: 'put', key, value, lease: bindings[puts++]?.held.id ?? NO_LEASE };
  });
  if (!writes.some(mayBeOmitted)) return { compare, writes: all };
  const necessary = all.filter((operation, index) => {
    if (operation.op === 'delete' || writes[index]?.mayBeEqual !== true) return true;
    const { key, value, lease } = operation;
    compare.push({ key, target: 'value', equals: value });
    if (lease !== NO_LEASE) compare.push({ key, target: 'lease', equals: lease });
    return false;
  });
  return { compare, writes: necessary, otherwise: all };
}

/** Returns undefined for the error `too-large`; throws other errors. */
function noneIfTooLarge(thrown: unknown): undefined {
  if (asKvstoreError(thrown).code !== 'too-large') throw thrown;
}

/** Returns a handler that throws its error again, with the missing right if the user lacks one. */
function rethrowWithRight(right: 'read' | 'readwrite', key: string): (thrown: unknown) => never {
  return (thrown) => {
    throw withMissingRight(thrown, right, key);
  };
}

/** Returns the key that the error names if a right for the transaction is missing. */
function keyOf({ compare, writes, otherwise = [] }: TxnRequest): string {
  const [write] = [...writes, ...otherwise];
  if (write === undefined) return compare[0]?.key ?? '';
  return write.op === 'put' ? write.key : write.range.start;
}

/** Returns a comparison which holds while the lock is held. */
function lockGuard({ key, revision }: KvstoreLock): Compare {
  return { key, target: 'create-revision', equals: revision };
}
