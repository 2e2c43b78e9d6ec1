import type { Clock, Random } from '../base/clock.ts';
import { DeliveryQueue } from '../base/delivery-queue.ts';
import { type Failure, failureOf } from '../base/failure.ts';
import { CallbackGuard } from '../base/guard.ts';
import { ListenerSet } from '../base/listener-set.ts';
import type { Unsubscribe } from '../base/subscription.ts';
import type {
  BackendStatus,
  DeleteOptions,
  KeyRead,
  KvstoreBackend,
  KvstoreLock,
  LeaseLostListener,
  ListOptions,
  Watch,
  WatchOptions,
  WriteOptions,
} from './backend.ts';
import { asKvstoreError, KvstoreError } from './errors.ts';
import { keyRange, prefixRange } from './key-range.ts';
import { LeaseKeeper } from './lease-keeper.ts';
import { LockKeeper } from './lock-keeper.ts';
import type { RateLimit } from './rate-limit.ts';
import { sharedSignal, untilClosed } from './shared-signal.ts';
import {
  type CallOptions,
  type Compare,
  type EndpointStatus,
  type KeyValue,
  type LeaseID,
  NO_LEASE,
  type ResponseHeader,
  type Transport,
  type TxnRequest,
  type TxnResponse,
} from './transport.ts';
import { ListAndWatch } from './watch/list-and-watch.ts';
import { listPages, type Retry } from './watch/paged-list.ts';

/** What a {@link KvstoreClient} is made of. */
export interface KvstoreClientOptions {
  /** For people: `memory`, `etcd`. */
  readonly kind: string;
  readonly transport: Transport;
  readonly clock: Clock;
  readonly random: Random;
  /** Life of leased keys after the client's last sign of life. Default 900 s, as upstream. */
  readonly leaseSeconds?: number | undefined;
  /**
   * Holds back reads and writes, and the next page of `listPrefix`. Watches, keepalives and locks are not held back:
   * they keep what there is alive. Default: nothing is.
   */
  readonly rateLimit?: RateLimit | undefined;
  /** Told what a listener threw (I7). Default: ignored. */
  readonly onListenerFault?: ((error: unknown) => void) | undefined;
}

const LEASE_SECONDS = 15 * 60;

type GuardedOptions = Pick<WriteOptions, 'ifLocked' | 'signal' | 'deadlineMs'>;

/** A {@link KvstoreBackend} over any transport: conditional writes, leases and watches, written once. */
export class KvstoreClient implements KvstoreBackend {
  readonly #options: KvstoreClientOptions;
  readonly #transport: Transport;
  readonly #leases: LeaseKeeper;
  readonly #locks: LockKeeper;
  readonly #leaseListeners: ListenerSet<LeaseLostListener>;
  readonly #watches = new Set<ListAndWatch>();
  readonly #closed = new AbortController();
  #header: ResponseHeader | undefined;
  #lastFailure: Failure | undefined;
  #connected = false;

  constructor(options: KvstoreClientOptions) {
    this.#options = options;
    this.#transport = options.transport;
    this.#leaseListeners = new ListenerSet(new DeliveryQueue(new CallbackGuard(options.onListenerFault)));
    this.#locks = new LockKeeper(options);
    this.#leases = new LeaseKeeper({
      transport: options.transport,
      clock: options.clock,
      random: options.random,
      ttlSeconds: options.leaseSeconds ?? LEASE_SECONDS,
      onLost: (_lease, keys) =>
        this.#leaseListeners.notify((listener, lost) => listener.onLeaseLost(lost), keys),
    });
  }

  async get(key: string, options?: CallOptions): Promise<KeyValue | undefined> {
    return (await this.read(key, options)).kv;
  }

  async read(key: string, options?: CallOptions): Promise<KeyRead> {
    const { header, kvs } = await this.#call(() => this.#transport.range(keyRange(key), options), options);
    return { kv: kvs[0], header };
  }

  async listPrefix(prefix: string, options: ListOptions = {}): Promise<readonly KeyValue[]> {
    const { minModRevision = 0, ...call } = options;
    if (minModRevision > 0) {
      const range = { ...prefixRange(prefix), minModRevision };
      return (await this.#call(() => this.#transport.range(range, call), call)).kvs;
    }
    const all: KeyValue[] = [];
    const retry: Retry = (read) => this.#call(read, call);
    const pages = listPages(this.#transport, { prefix, revision: 0 }, retry, call);
    for await (const { kvs } of pages) for (const kv of kvs) all.push(kv);
    return all;
  }

  async update(key: string, value: Uint8Array, options: WriteOptions = {}): Promise<number> {
    const { header } = await this.#write(key, options, (lease) => ({
      compare: [],
      writes: [{ op: 'put', key, value, lease }],
    }));
    return header.revision;
  }

  async updateIfDifferent(key: string, value: Uint8Array, options: WriteOptions = {}): Promise<boolean> {
    const { succeeded } = await this.#write(key, options, (lease) => ({
      compare: [
        { key, target: 'value', equals: value },
        ...(lease === NO_LEASE ? [] : [{ key, target: 'lease', equals: lease } as const]),
      ],
      writes: [],
      otherwise: [{ op: 'put', key, value, lease }],
    }));
    return !succeeded;
  }

  async createOnly(key: string, value: Uint8Array, options: WriteOptions = {}): Promise<boolean> {
    const { succeeded } = await this.#write(key, options, (lease) => ({
      compare: [{ key, target: 'create-revision', equals: 0 }],
      writes: [{ op: 'put', key, value, lease }],
    }));
    return succeeded;
  }

  async createIfExists(
    condition: string,
    key: string,
    value: Uint8Array,
    options: WriteOptions = {},
  ): Promise<boolean> {
    const { succeeded } = await this.#write(key, options, (lease) => ({
      compare: [{ key: condition, target: 'exists' }],
      writes: [{ op: 'put', key, value, lease }],
    }));
    return succeeded;
  }

  async delete(key: string, options: DeleteOptions = {}): Promise<boolean> {
    const { ifModRevision, ifOwn = false } = options;
    const unchanged: readonly Compare[] =
      ifModRevision === undefined ? [] : [{ key, target: 'mod-revision', equals: ifModRevision }];
    const owners = ifOwn
      ? this.#leases.ids.map((equals) => [{ key, target: 'lease', equals } as const])
      : [[]];
    const writes = [{ op: 'delete', range: keyRange(key) } as const];
    for (const owner of owners) {
      const { succeeded, deleted } = await this.#txn({ compare: [...unchanged, ...owner], writes }, options);
      if (!succeeded) continue;
      this.#leases.unbind(key);
      return deleted > 0;
    }
    return false;
  }

  async deletePrefix(prefix: string, options?: CallOptions): Promise<number> {
    const writes = [{ op: 'delete', range: prefixRange(prefix) } as const];
    // Not afterwards: what is put again meanwhile has its place.
    this.#leases.unbindPrefix(prefix);
    const { deleted } = await this.#call(
      () => this.#transport.txn({ compare: [], writes }, options),
      options,
    );
    return deleted;
  }

  lock(path: string, options?: CallOptions): Promise<KvstoreLock> {
    return this.#locks.lock(path, options);
  }

  watch(prefix: string, options: WatchOptions = {}): Watch {
    const { signal, endOnDivergence, onState } = options;
    const watch = new ListAndWatch({
      transport: this.#transport,
      prefix,
      clock: this.#options.clock,
      random: this.#options.random,
      signal: untilClosed(signal, this.#closed.signal),
      endOnDivergence,
      onState,
      onDiverged: () => this.#diverged(),
      onEnd: () => this.#watches.delete(watch),
    });
    this.#watches.add(watch);
    return watch;
  }

  onLeaseLost(listener: LeaseLostListener): Unsubscribe {
    return this.#leaseListeners.subscribe(listener);
  }

  endpoints(options?: CallOptions): Promise<readonly EndpointStatus[]> {
    return this.#transport.endpoints(options);
  }

  status(): BackendStatus {
    return {
      kind: this.#options.kind,
      connected: this.#connected,
      clusterID: this.#header?.clusterID,
      leases: this.#leases.size,
      leasesLost: this.#leases.lost,
      watches: [...this.#watches].map((watch) => watch.status()),
      lastFailure: this.#lastFailure,
    };
  }

  async close(options: { readonly keepLeases?: boolean } = {}): Promise<void> {
    this.#closed.abort();
    await Promise.all([this.#locks.close(), this.#leases.close(options.keepLeases !== true)]);
    await this.#transport.close();
  }

  /** A watch has found another store, or another past: what is bound to leases is put again under new ones. */
  #diverged(): void {
    this.#leases.loseAll();
    this.#locks.loseAll();
  }

  /** A write under a lease if it is to have one; should the lease be gone, once more under a new one. */
  async #write(
    key: string,
    options: WriteOptions,
    request: (lease: LeaseID) => TxnRequest,
  ): Promise<TxnResponse> {
    const lease = options.leased === true ? await this.#leases.leaseFor(key) : NO_LEASE;
    if (lease === NO_LEASE) this.#leases.unbind(key);
    try {
      return await this.#txn(request(lease), options);
    } catch (error) {
      if (lease === NO_LEASE || asKvstoreError(error).code !== 'lease-not-found') throw error;
      this.#leases.markLost(lease);
      return this.#txn(request(await this.#leases.leaseFor(key)), options);
    }
  }

  /**
   * A transaction, under a lock if there is one to be. A transaction has one negative outcome only; whether it
   * is the lock's is asked when it happens, which is rare.
   */
  async #txn(request: TxnRequest, { ifLocked, signal, deadlineMs }: GuardedOptions): Promise<TxnResponse> {
    const call = { signal, deadlineMs };
    if (ifLocked === undefined) return this.#call(() => this.#transport.txn(request, call), call);
    const guard = { key: ifLocked.key, target: 'create-revision', equals: ifLocked.revision } as const;
    const guarded = { compare: [guard, ...request.compare], writes: request.writes };
    const answer = await this.#call(() => this.#transport.txn(guarded, call), call);
    if (answer.succeeded) return answer;
    const otherwise = { compare: [guard], writes: request.otherwise ?? [] };
    const held = await this.#call(() => this.#transport.txn(otherwise, call), call);
    if (held.succeeded) return { ...held, succeeded: false };
    throw new KvstoreError('lock-lost', `the lock ${ifLocked.key} is not held any more`);
  }

  /** Runs a call when it is its turn, and remembers how it went, for the status. */
  async #call<T extends { readonly header: ResponseHeader }>(
    call: () => Promise<T>,
    { signal }: CallOptions = {},
  ): Promise<T> {
    try {
      const { rateLimit } = this.#options;
      const ends = sharedSignal(signal ?? this.#closed.signal);
      const answer = await (rateLimit === undefined ? call() : rateLimit.run(call, ends));
      this.#header = answer.header;
      this.#connected = true;
      return answer;
    } catch (thrown) {
      const error = this.#asFailure(thrown, signal);
      if (error.code !== 'aborted') this.#lastFailure = failureOf(error, this.#options.clock);
      if (error.code === 'unavailable' || error.code === 'deadline') this.#connected = false;
      throw error;
    }
  }

  /** Who waited for a turn without a signal of its own is told that the client was closed. */
  #asFailure(thrown: unknown, signal: AbortSignal | undefined): KvstoreError {
    const error = asKvstoreError(thrown);
    if (error.code !== 'aborted' || signal !== undefined) return error;
    return new KvstoreError('closed', 'the client was closed');
  }
}
