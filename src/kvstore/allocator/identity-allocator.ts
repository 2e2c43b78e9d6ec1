import { backoffDelay } from '../../base/backoff.ts';
import type { Clock, Random } from '../../base/clock.ts';
import { DeliveryQueue } from '../../base/delivery-queue.ts';
import { CallbackGuard } from '../../base/guard.ts';
import { ListenerSet } from '../../base/listener-set.ts';
import { sleep } from '../../base/sleep.ts';
import type { Unsubscribe } from '../../base/subscription.ts';
import { formatLabels, type Labels } from '../../identity/labels.ts';
import type { IdentityRange, NumericIdentity } from '../../identity/numeric-identity.ts';
import { RemoteIdentityCache } from '../../identity/remote-identity-cache.ts';
import type { KvstoreLock } from '../backend.ts';
import { decodeIdentity, parseIdentityText } from '../codec/identity.ts';
import { KvstoreError } from '../errors.ts';
import { WatchStore } from '../store/watch-store.ts';
import { IdentityKeys, type IdentityKeysOptions, MASTER_PREFIX } from './identity-keys.ts';
import { IdentityPool } from './identity-pool.ts';

/** What an {@link IdentityAllocator} is made of. */
export interface IdentityAllocatorOptions extends IdentityKeysOptions {
  /** What this cluster may allocate: `clusterIdentityRange(clusterID, max)`. */
  readonly range: IdentityRange;
  readonly clock: Clock;
  readonly random: Random;
  /** How often the keys of identities in use are checked and put again. Default 5 minutes. */
  readonly syncIntervalMs?: number | undefined;
}

/** Told of the cluster's identities: a replay of those that exist, then changes. */
export interface IdentityListener {
  onIdentity(id: NumericIdentity, labels: Labels): void;
  onIdentityGone(id: NumericIdentity, labels: Labels): void;
}

/** What {@link IdentityAllocator.allocate} gives. */
export interface AllocatedIdentity {
  readonly id: NumericIdentity;
  /** Whether no node of the cluster had it before. */
  readonly isNew: boolean;
}

/** What became of {@link IdentityAllocator.release}. */
export type ReleaseOutcome = 'released' | 'still-used' | 'not-found';

interface LocalIdentity {
  readonly id: NumericIdentity;
  readonly labels: Labels;
  references: number;
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
  readonly #store: WatchStore<{ readonly id: NumericIdentity; readonly labels: Labels }>;
  readonly #local = new Map<string, LocalIdentity>();
  /** What is under way, by labels: one allocation, release or repair at a time for each. */
  readonly #underWay = new Map<string, Promise<unknown>>();
  /** Labels that are not in use, and whose slave key may still be there. */
  readonly #unreleased = new Map<string, Labels>();
  readonly #remotes = new Map<string, RemoteIdentityCache>();
  readonly #listeners: ListenerSet<IdentityListener>;
  #signal: AbortSignal | undefined;
  /** Leases lost so far: an allocation during which it grows may have lost its slave key already. */
  #leasesLost = 0;

  constructor(options: IdentityAllocatorOptions) {
    this.#options = options;
    this.#keys = new IdentityKeys(options);
    this.#pool = new IdentityPool(options.range, options.random);
    this.#listeners = new ListenerSet(new DeliveryQueue(new CallbackGuard()));
    this.#store = new WatchStore({
      decode: decodeIdentity,
      rejections: options.rejections,
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

  /** Follows the cluster's identities and keeps this node's keys in place, until the signal fires. */
  async run(signal: AbortSignal): Promise<void> {
    const { backend } = this.#options;
    this.#signal = signal;
    const unsubscribe = backend.onLeaseLost({
      onLeaseLost: () => {
        this.#leasesLost++;
        void this.#syncAll();
      },
    });
    await Promise.all([
      this.#store.run({ backend, prefix: MASTER_PREFIX, signal }),
      this.#syncPeriodically(signal),
    ]);
    unsubscribe();
  }

  /** The replay, then changes. A fault of a listener reaches nobody else; one in its replay ends the subscription. */
  subscribe(listener: IdentityListener): Unsubscribe {
    const known = [...this.cache.entries()];
    const steps = known.map(
      ([id, labels]) =>
        (one: IdentityListener): void =>
          one.onIdentity(id as NumericIdentity, labels),
    );
    return this.#listeners.subscribe(listener, { steps: () => steps.values(), ended: () => {} });
  }

  /** Another cluster's identities are looked up too, from now on. Ends with the function returned. */
  addRemote(cluster: string, identities: RemoteIdentityCache): () => void {
    this.#remotes.set(cluster, identities);
    return () => {
      if (this.#remotes.get(cluster) === identities) this.#remotes.delete(cluster);
    };
  }

  /** The labels of an identity of this cluster or another; undefined when nobody is known to have it. */
  lookupByID(id: number): Labels | undefined {
    const own = this.cache.lookupByID(id);
    if (own !== undefined) return own;
    for (const local of this.#local.values()) if (local.id === id) return local.labels;
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
    while (!this.#local.has(key) && this.#underWay.has(key)) await this.#ended(key);
    const local = this.#local.get(key);
    if (local === undefined) return this.#during(key, this.#allocate(key, labels, signal));
    local.references++;
    return { id: local.id, isNew: false };
  }

  /**
   * Gives one reference back; with the last one the slave key goes, now or as soon as the kvstore can be
   * reached. The master key is the collector's.
   */
  async release(labels: Labels): Promise<ReleaseOutcome> {
    const key = formatLabels(labels);
    while (this.#underWay.has(key)) await this.#ended(key);
    const local = this.#local.get(key);
    if (local === undefined) return 'not-found';
    local.references--;
    if (local.references > 0) return 'still-used';
    this.#local.delete(key);
    this.#unreleased.set(key, labels);
    await this.#during(key, this.#deleteSlave(key, labels));
    return 'released';
  }

  /** What is under way for these labels has ended, well or not: whoever waited looks again, something else may be. */
  async #ended(key: string): Promise<void> {
    await this.#underWay.get(key)?.catch(() => {});
  }

  #during<T>(key: string, work: Promise<T>): Promise<T> {
    const done = work.finally(() => this.#underWay.delete(key));
    this.#underWay.set(key, done);
    return done;
  }

  async #deleteSlave(key: string, labels: Labels): Promise<void> {
    try {
      await this.#keys.deleteSlave(labels, { signal: this.#signal });
      this.#unreleased.delete(key);
    } catch {
      // kept in mind, and tried again with the next round
    }
  }

  // ── Allocation ─────────────────────────────────────────────────────────────────────────────────────────

  async #allocate(key: string, labels: Labels, signal: AbortSignal | undefined): Promise<AllocatedIdentity> {
    const { clock, random } = this.#options;
    const leasesLost = this.#leasesLost;
    // An attempt that fails may have put the slave key all the same.
    this.#unreleased.set(key, labels);
    for (let attempt = 1; ; attempt++) {
      const lock = await this.#keys.lock(labels, signal);
      try {
        const allocated = await this.#allocateLocked(labels, lock, signal);
        if (allocated !== undefined) {
          this.#unreleased.delete(key);
          const local = { id: allocated.id, labels, references: 1 };
          this.#local.set(key, local);
          if (this.#leasesLost > leasesLost) void this.#sync(local);
          return allocated;
        }
      } catch (error) {
        const again = error instanceof KvstoreError && error.code === 'lock-lost';
        if (!again || attempt === ATTEMPTS) throw error;
      } finally {
        await lock.release();
      }
      if (attempt === ATTEMPTS)
        throw new KvstoreError('unavailable', `no identity for ${key}: others were faster`);
      await sleep(clock, backoffDelay(attempt, BACKOFF, random), signal);
    }
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
  }

  /** A master key is gone. If this node uses it, it is written again: somebody has collected too much. */
  #gone(number: number): void {
    const labels = this.cache.lookupByID(number);
    const id = parseIdentityText(String(number));
    if (labels === undefined || id === undefined) return;
    this.cache.delete(id);
    this.#listeners.notify((one, gone) => one.onIdentityGone(id, gone), labels);
    const local = this.#local.get(formatLabels(labels));
    if (local?.id === id) void this.#sync(local);
  }

  async #syncPeriodically(signal: AbortSignal): Promise<void> {
    const { clock, syncIntervalMs = SYNC_INTERVAL_MS } = this.#options;
    while (!signal.aborted) {
      await sleep(clock, syncIntervalMs, signal);
      if (!signal.aborted) await this.#syncAll();
    }
  }

  async #syncAll(): Promise<void> {
    for (const local of [...this.#local.values()]) await this.#sync(local);
    for (const [key, labels] of [...this.#unreleased]) {
      // It may be in use again by now, or about to be.
      const isLeft = this.#unreleased.has(key) && !this.#underWay.has(key);
      if (isLeft) await this.#during(key, this.#deleteSlave(key, labels));
    }
  }

  /** Puts master and slave key in place; what fails is tried again with backoff while it is in use. */
  async #sync(local: LocalIdentity): Promise<void> {
    const { clock, random } = this.#options;
    const key = formatLabels(local.labels);
    const signal = this.#signal;
    for (let failures = 1; ; failures++) {
      while (this.#underWay.has(key)) await this.#ended(key);
      if (this.#local.get(key) !== local || signal?.aborted === true) return;
      try {
        await this.#during(key, this.#putKeys(local));
        return;
      } catch {
        await sleep(clock, backoffDelay(failures, BACKOFF, random), signal); // the backend's status shows it
      }
    }
  }

  async #putKeys({ id, labels }: LocalIdentity): Promise<void> {
    const call = { signal: this.#signal };
    if (await this.#keys.ensureMaster(id, labels, call)) await this.#keys.putSlave(id, labels, call);
  }
}
