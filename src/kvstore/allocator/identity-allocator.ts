import {
  checkArguments,
  FUNCTION,
  listOf,
  objectWith,
  optional,
  SIGNAL,
  TEXT,
} from '../../base/arguments.ts';
import { backoffDelay } from '../../base/backoff.ts';
import type { Clock, Random } from '../../base/clock.ts';
import { DeliveryQueue } from '../../base/delivery-queue.ts';
import { CallbackGuard } from '../../base/guard.ts';
import { ListenerSet } from '../../base/listener-set.ts';
import { sleep } from '../../base/sleep.ts';
import type { Unsubscribe } from '../../base/subscription.ts';
import { Supervisor, type SupervisorStatus } from '../../base/supervisor.ts';
import { formatLabels, type Labels } from '../../identity/labels.ts';
import type { IdentityRange, NumericIdentity } from '../../identity/numeric-identity.ts';
import { RemoteIdentityCache } from '../../identity/remote-identity-cache.ts';
import type { KvstoreLock } from '../backend.ts';
import { decodeIdentity, parseIdentityText } from '../codec/identity.ts';
import { KvstoreError } from '../errors.ts';
import type { RetryQueueStatus } from '../store/retry-queue.ts';
import { WatchStore, type WatchStoreStatus } from '../store/watch-store.ts';
import { IdentityKeys, type IdentityKeysOptions, MASTER_PREFIX } from './identity-keys.ts';
import { IdentityPool } from './identity-pool.ts';
import { LocalIdentities, type ReleaseOutcome } from './local-identities.ts';

/** Options of {@link IdentityAllocator}. */
export interface IdentityAllocatorOptions extends IdentityKeysOptions {
  /** What this cluster may allocate: `clusterIdentityRange(clusterID, max)`. */
  readonly range: IdentityRange;
  readonly clock: Clock;
  readonly random: Random;
  /** How often the keys of identities in use are checked and put again. Default 5 minutes. */
  readonly syncIntervalMs?: number | undefined;
  /** Receives what has failed in the background, and what listeners have thrown, with the name of the task. */
  readonly onFailure?: ((error: unknown, task: string) => void) | undefined;
}

/** Receives the cluster's identities: a replay of those that exist, then changes. */
export interface IdentityListener {
  onIdentity(id: NumericIdentity, labels: Labels): void;
  onIdentityGone(id: NumericIdentity, labels: Labels): void;
  /**
   * A number that this node has for these labels stands for others by now: its lease was lost, and the number was
   * collected and given to them. Allocate the labels again, and then release what was allocated before.
   */
  onIdentityTaken?(id: NumericIdentity, labels: Labels): void;
}

/** What {@link IdentityAllocator.allocate} gives. */
export interface AllocatedIdentity {
  readonly id: NumericIdentity;
  /** Whether no node of the cluster had it before. */
  readonly isNew: boolean;
}

/** An {@link IdentityAllocator} as data. */
export interface IdentityAllocatorStatus {
  /** Labels in use by this node. */
  readonly used: number;
  /** Those of them whose number stands for other labels by now. */
  readonly taken: number;
  /** Labels whose keys are not in place, and what has failed. */
  readonly repairs: RetryQueueStatus;
  readonly identities: WatchStoreStatus;
  /** What listeners have thrown. */
  readonly faults: number;
  readonly background: SupervisorStatus;
}

const SYNC_INTERVAL_MS = 5 * 60_000;
// Another node may take the same number, or the lock may be lost: with other numbers it soon succeeds.
const ATTEMPTS = 8;
const BACKOFF = { baseMs: 50, capMs: 1000 };

/**
 * Gives numbers to sets of labels, the same number on every node of a cluster (SEMANTICS 5), by {@link IdentityKeys}.
 *
 * Allocation happens under a lock for the labels. Identities in use are counted here; a master key that
 * disappears while in use is written again, and so are slave keys after the loss of a lease. The cluster's
 * identities are cached, and those of other clusters can be looked up beside them.
 */
export class IdentityAllocator {
  /** The identities of this cluster, as the kvstore shows them. */
  readonly cache: RemoteIdentityCache = new RemoteIdentityCache();
  readonly #options: IdentityAllocatorOptions;
  readonly #keys: IdentityKeys;
  readonly #pool: IdentityPool;
  readonly #local: LocalIdentities;
  readonly #store: WatchStore<{ readonly id: NumericIdentity; readonly labels: Labels }>;
  readonly #remotes = new Map<string, RemoteIdentityCache>();
  readonly #guard: CallbackGuard;
  readonly #listeners: ListenerSet<IdentityListener>;
  readonly #tasks: Supervisor;
  /** Leases lost so far: an allocation during which it grows may have lost its slave key already. */
  #leasesLost = 0;

  constructor(options: IdentityAllocatorOptions) {
    this.#options = options;
    const { clock, random, rejections, onFailure } = options;
    this.#keys = new IdentityKeys(options);
    this.#pool = new IdentityPool(options.range, random);
    this.#guard = new CallbackGuard((error) => onFailure?.(error, 'identity listener'));
    this.#listeners = new ListenerSet(new DeliveryQueue(this.#guard));
    this.#tasks = new Supervisor({ clock, random, onFailure });
    this.#local = new LocalIdentities({
      ...{ keys: this.#keys, clock, random },
      onTaken: (taken) =>
        this.#listeners.notify((listener, { id, labels }) => listener.onIdentityTaken?.(id, labels), taken),
    });
    this.#store = new WatchStore({
      decode: decodeIdentity,
      rejections,
      observer: {
        onUpdate: (_name, { id, labels }) => this.#learnt(id, labels),
        onDelete: (name) => this.#gone(Number(name)),
      },
    });
  }

  /** Resolves once the identities of the cluster are known. Allocations before that cost a read each. */
  get synced(): Promise<void> {
    return this.#store.synced;
  }

  /** Labels in use by this node. */
  get size(): number {
    return this.#local.size;
  }

  status(): IdentityAllocatorStatus {
    return {
      used: this.#local.size,
      taken: this.#local.taken,
      repairs: this.#local.status(),
      identities: this.#store.status(),
      faults: this.#guard.faults,
      background: this.#tasks.status(),
    };
  }

  /** Follows the cluster's identities and keeps this node's keys in place, until the signal fires. */
  async run(signal: AbortSignal): Promise<void> {
    const { backend } = this.#options;
    const unsubscribe = backend.onLeaseLost({
      onLeaseLost: () => {
        this.#leasesLost++;
        this.#local.checkAll();
      },
    });
    const follow = async (until: AbortSignal): Promise<void> => {
      await this.#store.run({ backend, prefix: MASTER_PREFIX, signal: until });
    };
    await Promise.all([
      this.#tasks.keep('identities of the cluster', follow, { signal }),
      this.#tasks.keep('repairs', (until) => this.#local.run(until), { signal }),
      this.#tasks.keep('resync', (until) => this.#checkPeriodically(until), { signal }),
    ]);
    unsubscribe();
  }

  /** The replay, then changes. A fault of a listener reaches no other one; one in its replay ends the subscription. */
  subscribe(listener: IdentityListener): Unsubscribe {
    const steps = (): IterableIterator<(one: IdentityListener) => void> =>
      [...this.cache.entries()]
        .map(
          ([id, labels]) =>
            (one: IdentityListener) =>
              one.onIdentity(id as NumericIdentity, labels),
        )
        .values();
    return this.#listeners.subscribe(listener, { steps, ended: () => {} });
  }

  /** Another cluster's identities are looked up too, from now on. Ends with the function returned. */
  addRemote(cluster: string, identities: RemoteIdentityCache): () => void {
    this.#remotes.set(cluster, identities);
    return () => {
      if (this.#remotes.get(cluster) === identities) this.#remotes.delete(cluster);
    };
  }

  /** The labels of an identity of this cluster or another; undefined when it is not known. */
  lookupByID(id: number): Labels | undefined {
    const own = this.cache.lookupByID(id);
    if (own !== undefined) return own;
    const local = this.#local.byID(id);
    if (local !== undefined) return local.labels;
    for (const remote of this.#remotes.values()) {
      const labels = remote.lookupByID(id);
      if (labels !== undefined) return labels;
    }
    return undefined;
  }

  /** The identity of exactly these labels, in this cluster first. */
  lookupByLabels(labels: Labels): NumericIdentity | undefined {
    const own = this.#local.get(formatLabels(labels))?.id ?? this.cache.lookupByLabels(labels);
    if (own !== undefined) return own;
    for (const remote of this.#remotes.values()) {
      const id = remote.lookupByLabels(labels);
      if (id !== undefined) return id;
    }
    return undefined;
  }

  /**
   * The identity of these labels, allocated if no node has one yet; counts one reference. Rejects when the
   * kvstore cannot be reached, or with `invalid-request` when no number is left.
   */
  async allocate(labels: Labels, signal?: AbortSignal): Promise<AllocatedIdentity> {
    const key = formatLabels(labels);
    while (this.#local.get(key) === undefined && this.#local.isUnderWay(key)) await this.#local.ended(key);
    const local = this.#local.get(key);
    if (local === undefined) return this.#local.during(key, this.#allocate(key, labels, signal));
    local.references++;
    return { id: local.id, isNew: false };
  }

  /**
   * Gives one reference back; with the last one the slave key goes, now or as soon as the kvstore can be
   * reached. The master key is the collector's.
   */
  release(labels: Labels): Promise<ReleaseOutcome> {
    return this.#local.release(labels);
  }

  // ── Allocation ─────────────────────────────────────────────────────────────────────────────────────────

  async #allocate(key: string, labels: Labels, signal: AbortSignal | undefined): Promise<AllocatedIdentity> {
    const leasesLost = this.#leasesLost;
    this.#local.begin(key, labels);
    try {
      const allocated = await this.#tryToAllocate(labels, signal);
      this.#local.use(key, allocated.id, labels);
      if (this.#leasesLost > leasesLost) this.#local.check(key);
      return allocated;
    } catch (error) {
      this.#local.check(key); // an attempt that failed may have put the slave key all the same
      throw error;
    }
  }

  async #tryToAllocate(labels: Labels, signal: AbortSignal | undefined): Promise<AllocatedIdentity> {
    const { clock, random } = this.#options;
    for (let attempt = 1; attempt <= ATTEMPTS; attempt++) {
      if (attempt > 1) await sleep(clock, backoffDelay(attempt - 1, BACKOFF, random), signal);
      const lock = await this.#keys.lock(labels, signal);
      try {
        const allocated = await this.#allocateLocked(labels, lock, signal);
        if (allocated !== undefined) return allocated;
      } catch (error) {
        if (!(error instanceof KvstoreError && error.code === 'lock-lost') || attempt === ATTEMPTS)
          throw error;
      } finally {
        await lock.release();
      }
    }
    throw new KvstoreError('unavailable', `no identity for ${formatLabels(labels)}: others were faster`);
  }

  /** Undefined: the number was taken by another node in the same moment. */
  async #allocateLocked(
    labels: Labels,
    lock: KvstoreLock,
    signal: AbortSignal | undefined,
  ): Promise<AllocatedIdentity | undefined> {
    const call = { ifLocked: lock, signal };
    const known = { cached: this.cache.lookupByLabels(labels), revision: this.#store.cursor };
    for await (const existing of this.#keys.find(labels, known, signal)) {
      // The collector may be about to take the master key; it is put again, and the slave key holds it. Or it has
      // taken it, and the number stands for other labels by now.
      if (!(await this.#keys.ensureMaster(existing, labels, call))) continue;
      await this.#keys.putSlave(existing, labels, call);
      return { id: existing, isNew: false };
    }
    const id = this.#pool.lease((candidate) => this.lookupByID(candidate) !== undefined);
    if (id === undefined) throw new KvstoreError('invalid-request', 'no identity is left in the cluster');
    try {
      if (!(await this.#keys.createMaster(id, labels, call))) return undefined;
      await this.#keys.putSlave(id, labels, call);
      return { id, isNew: true };
    } finally {
      this.#pool.giveBack(id);
    }
  }

  // ── Keeping ────────────────────────────────────────────────────────────────────────────────────────────

  #learnt(id: NumericIdentity, labels: Labels): void {
    const before = this.cache.lookupByID(id);
    this.cache.upsert(id, labels);
    if (before !== undefined && formatLabels(before) === formatLabels(labels)) return;
    if (before !== undefined) this.#listeners.notify((one, gone) => one.onIdentityGone(id, gone), before);
    this.#listeners.notify((one, known) => one.onIdentity(id, known), labels);
    this.#checkNumber(id, labels);
  }

  /** A master key is gone. If this node uses it, it is written again: a collector has removed too much. */
  #gone(number: number): void {
    const labels = this.cache.lookupByID(number);
    const id = parseIdentityText(String(number));
    if (labels === undefined || id === undefined) return;
    this.cache.delete(id);
    this.#listeners.notify((one, gone) => one.onIdentityGone(id, gone), labels);
    this.#checkNumber(id, undefined);
  }

  /** If this node uses the number for other labels, the kvstore decides: a watch may be late. */
  #checkNumber(id: NumericIdentity, shown: Labels | undefined): void {
    const local = this.#local.byID(id);
    if (local === undefined) return;
    const key = formatLabels(local.labels);
    if (shown === undefined || formatLabels(shown) !== key) this.#local.check(key);
  }

  async #checkPeriodically(signal: AbortSignal): Promise<void> {
    const { clock, syncIntervalMs = SYNC_INTERVAL_MS } = this.#options;
    while (!signal.aborted) {
      await sleep(clock, syncIntervalMs, signal);
      if (!signal.aborted) this.#local.checkAll();
    }
  }
}

const LABELS = listOf(objectWith({ source: TEXT, key: TEXT, value: TEXT }));

checkArguments(IdentityAllocator, {
  run: { signal: SIGNAL },
  subscribe: { listener: objectWith({ onIdentity: FUNCTION, onIdentityGone: FUNCTION }) },
  lookupByLabels: { labels: LABELS },
  allocate: { labels: LABELS, signal: optional(SIGNAL) },
  release: { labels: LABELS },
});
