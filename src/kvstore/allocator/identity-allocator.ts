import {
  checkArgument,
  checkArguments,
  FUNCTION,
  isObjectOrList,
  matching,
  OBJECT,
  objectWith,
  optional,
  optionsWith,
  SIGNAL,
} from '../../base/arguments.ts';
import { backoffDelay } from '../../base/backoff.ts';
import { DeliveryQueue } from '../../base/delivery-queue.ts';
import { CallbackGuard } from '../../base/guard.ts';
import { ListenerSet } from '../../base/listener-set.ts';
import { sleep } from '../../base/sleep.ts';
import { type ListenerResult, type Unsubscribe, unsubscribeOnce } from '../../base/subscription.ts';
import { Supervisor, type SupervisorStatus } from '../../base/supervisor.ts';
import { type Runtime, type RuntimeOptions, withRuntime } from '../../base/system-clock.ts';
import { IdentityCache, type IdentityListener } from '../../model/identity-cache.ts';
import { formatLabels, LABELS, type Labels } from '../../model/labels.ts';
import {
  isNumericIdentity,
  MINIMAL_ALLOCATED_IDENTITY,
  type NumericIdentity,
} from '../../model/numeric-identity.ts';
import { decodeIdentity, parseIdentityText } from '../codec/identity.ts';
import { IDENTITIES_PREFIX, parseKvstoreKey } from '../codec/keys.ts';
import type { KvstoreLock } from '../session/backend.ts';
import { KvstoreError } from '../session/errors.ts';
import { untilAborted } from '../session/until-aborted.ts';
import type { RetryQueueStatus } from '../stores/retry-queue.ts';
import { WatchStore, type WatchStoreStatus } from '../stores/watch-store.ts';
import { IdentityKeys, type IdentityKeysOptions, MASTER_PREFIX } from './identity-keys.ts';
import { IdentityPool } from './identity-pool.ts';
import { LocalKeys, type ReleaseOutcome } from './local-keys.ts';

/** Options of {@link IdentityAllocator}. */
export interface IdentityAllocatorOptions extends RuntimeOptions, IdentityKeysOptions {
  /** Receives background failures and errors of listeners, with the name of the task. */
  readonly onFailure?: ((error: unknown, task: string) => void) | undefined;
}

/** Receives the identities of the cluster, and the reassigned numbers of this node. */
export interface IdentityAllocatorListener extends IdentityListener {
  /**
   * Called if a number that this node uses for these labels now belongs to other labels. This can happen if the lease
   * of the node was lost and the number was then collected and allocated again. Allocate the labels again, then release
   * the previous allocation.
   */
  onIdentityReassigned?(id: NumericIdentity, labels: Labels): ListenerResult;
}

/** Result of {@link IdentityAllocator.allocate}. */
export interface AllocatedIdentity {
  readonly id: NumericIdentity;
  /** True if no node of the cluster used the identity before. */
  readonly isNew: boolean;
}

/** Status of an {@link IdentityAllocator}, as plain data. */
export interface IdentityAllocatorStatus {
  /** Number of label sets in use on this node. */
  readonly used: number;
  /** Number of label sets whose number now belongs to other labels. */
  readonly reassigned: number;
  /** Labels whose keys need a repair, and failures. */
  readonly repairs: RetryQueueStatus;
  readonly identities: WatchStoreStatus;
  /** Number of errors thrown by listeners. */
  readonly faults: number;
  readonly background: SupervisorStatus;
}

const SYNC_INTERVAL_MS = 5 * 60_000;
// An attempt fails if another node takes the same random number, or if the lock is lost. Both are rare.
const ATTEMPTS = 8;
const BACKOFF = { baseMs: 50, capMs: 1000 };

/**
 * Allocates a number for each set of labels. The number is the same on every node of a cluster (SEMANTICS 5).
 *
 * An allocation holds a lock on the labels. References to identities in use are counted. The keys of identities in use
 * are written again: a master key if it was deleted, and slave keys if they were lost with their lease. The identities
 * of the cluster are cached.
 *
 * For clusters whose nodes write their own keys, as agents of Cilium do with `identity-allocation-mode=kvstore`. Must
 * not be used with a `ClusterPublisher` of the same cluster, because the publisher deletes identities of other writers.
 */
export class IdentityAllocator {
  /** The identities of this cluster, as in the kvstore. */
  readonly cache: IdentityCache;
  readonly #options: IdentityAllocatorOptions & Runtime;
  readonly #keys: IdentityKeys;
  readonly #pool: IdentityPool;
  readonly #local: LocalKeys;
  readonly #store: WatchStore<{ readonly id: NumericIdentity; readonly labels: Labels }>;
  readonly #guard: CallbackGuard;
  readonly #listeners: ListenerSet<IdentityAllocatorListener>;
  readonly #tasks: Supervisor;

  constructor(options: IdentityAllocatorOptions) {
    checkArgument('new IdentityAllocator: options', options, OPTIONS);
    this.#options = withRuntime(options);
    const { clock, random, rejections, onFailure } = this.#options;
    this.#keys = new IdentityKeys(options);
    this.#pool = new IdentityPool(options.range, random);
    this.#guard = new CallbackGuard((error) => onFailure?.(error, 'identity listener'));
    this.cache = new IdentityCache(undefined, this.#guard);
    this.#listeners = new ListenerSet(new DeliveryQueue(this.#guard));
    this.#tasks = new Supervisor({ clock, random, onFailure });
    this.#local = new LocalKeys({
      keys: this.#keys,
      clock,
      random,
      onReassigned: (reassigned) =>
        this.#listeners.notify(
          (listener, { id, labels }) => listener.onIdentityReassigned?.(id, labels),
          reassigned,
        ),
    });
    this.#store = new WatchStore({
      decode: decodeIdentity,
      rejections,
      observer: {
        onUpdate: (_name, { id, labels }) => {
          if (this.cache.upsert(id, labels)) this.#checkOwnNumber(id, labels);
        },
        onDelete: (name) => {
          const id = parseIdentityText(name);
          if (id !== undefined && this.cache.delete(id)) this.#checkOwnNumber(id, undefined);
        },
      },
    });
  }

  /** Resolves when the identities of the cluster are known. Until then, an allocation may read all of them. */
  get synced(): Promise<void> {
    return this.#store.synced;
  }

  /** Number of label sets in use on this node. */
  get size(): number {
    return this.#local.size;
  }

  status(): IdentityAllocatorStatus {
    return {
      used: this.#local.size,
      reassigned: this.#local.reassigned,
      repairs: this.#local.status(),
      identities: this.#store.status(),
      faults: this.#guard.faults,
      background: this.#tasks.status(),
    };
  }

  /** Follows the identities of the cluster and maintains the keys of this node until the signal fires. */
  async run(signal: AbortSignal): Promise<void> {
    const { backend } = this.#options;
    const unsubscribe = backend.onLeaseLost({
      scopes: [IDENTITIES_PREFIX],
      onLeaseLost: (keys) => {
        for (const key of keys) {
          const parsed = parseKvstoreKey(key);
          if (parsed?.kind === 'identity-value') this.#local.check(parsed.labels);
        }
      },
    });
    const follow = async (until: AbortSignal): Promise<void> => {
      await this.#store.run({ backend, prefix: MASTER_PREFIX, signal: until });
    };
    await Promise.all([
      this.#tasks.runWithRestart('identities of the cluster', follow, { signal }),
      this.#tasks.runWithRestart('repairs', (until) => this.#local.run(until), { signal }),
      this.#tasks.runWithRestart('resync', (until) => this.#checkPeriodically(until), { signal }),
    ]);
    unsubscribe();
  }

  /**
   * Subscribes a listener, which receives the replay and then changes. An error that a listener throws does not affect
   * others. An error during the replay ends the subscription.
   */
  subscribe(listener: IdentityAllocatorListener): Unsubscribe {
    const subscriptions = [this.cache.subscribe(listener), this.#listeners.subscribe(listener)];
    return unsubscribeOnce(() => {
      for (const unsubscribe of subscriptions) unsubscribe();
    });
  }

  /** Returns the labels of an identity; undefined if the identity is not known. */
  lookupByID(id: number): Labels | undefined {
    return this.cache.lookupByID(id) ?? this.#local.byID(id)?.labels;
  }

  /** Returns the identity of exactly these labels. */
  lookupByLabels(labels: Labels): NumericIdentity | undefined {
    return this.#local.get(formatLabels(labels))?.id ?? this.cache.lookupByLabels(labels);
  }

  /**
   * Returns the identity of these labels and adds one reference. If no node has an identity for the labels, allocates a
   * number. Rejects if the kvstore is unreachable, or with `invalid-request` if no number is left.
   */
  async allocate(labels: Labels, signal?: AbortSignal): Promise<AllocatedIdentity> {
    const key = formatLabels(labels);
    while (this.#local.get(key) === undefined && this.#local.isBusy(key))
      await untilAborted(this.#local.untilIdle(key), signal);
    const local = this.#local.get(key);
    if (local === undefined) return this.#local.block(key, this.#allocate(key, labels, signal));
    local.references++;
    return { id: local.id, isNew: false };
  }

  /**
   * Removes one reference. If it was the last, deletes the slave key, now or as soon as the kvstore is reachable. The
   * garbage collector deletes the master key later.
   */
  release(labels: Labels): Promise<ReleaseOutcome> {
    return this.#local.release(labels);
  }

  // ── Allocation ─────────────────────────────────────────────────────────────────────────────────────────

  async #allocate(key: string, labels: Labels, signal: AbortSignal | undefined): Promise<AllocatedIdentity> {
    this.#local.announce(key, labels);
    try {
      const allocated = await this.#tryToAllocate(labels, signal);
      this.#local.assign(key, allocated.id, labels);
      return allocated;
    } catch (error) {
      this.#local.check(key); // a failed attempt may have written the slave key
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
    throw new KvstoreError(
      'unavailable',
      `no identity was allocated for ${formatLabels(labels)}: too many conflicts with other nodes`,
    );
  }

  /** Allocates while the lock is held. Returns undefined if another node took the number at the same time. */
  async #allocateLocked(
    labels: Labels,
    lock: KvstoreLock,
    signal: AbortSignal | undefined,
  ): Promise<AllocatedIdentity | undefined> {
    const call = { ifLocked: lock, signal };
    const known = { cached: this.cache.lookupByLabels(labels), revision: this.#store.cursor };
    for await (const existing of this.#keys.find(labels, known, signal)) {
      // The garbage collector may have deleted the master key, or be about to. Write the master key again. The slave
      // key then protects it. The number of a deleted master key may already belong to other labels.
      if (!(await this.#keys.ensureMaster(existing, labels, call))) continue;
      await this.#keys.putSlave(existing, labels, call);
      return { id: existing, isNew: false };
    }
    const id = this.#pool.reserve((candidate) => this.lookupByID(candidate) !== undefined);
    if (id === undefined) {
      const { min, max } = this.#options.range;
      throw new KvstoreError('invalid-request', `all identities from ${min} to ${max} are in use`);
    }
    try {
      if (!(await this.#keys.createMaster(id, labels, call))) return undefined;
      await this.#keys.putSlave(id, labels, call);
      return { id, isNew: true };
    } finally {
      this.#pool.release(id);
    }
  }

  // ── Maintenance ────────────────────────────────────────────────────────────────────────────────────────

  /**
   * Queues a check of the keys if this node uses the number for other labels than those of its watched master key, or
   * if the master key was deleted. The check reads the kvstore, because the watch may be behind.
   *
   * @param watched labels of the master key; undefined if it was deleted
   */
  #checkOwnNumber(id: NumericIdentity, watched: Labels | undefined): void {
    const local = this.#local.byID(id);
    if (local === undefined) return;
    const key = formatLabels(local.labels);
    if (watched === undefined || formatLabels(watched) !== key) this.#local.check(key);
  }

  async #checkPeriodically(signal: AbortSignal): Promise<void> {
    const { clock } = this.#options;
    while (!signal.aborted) {
      await sleep(clock, SYNC_INTERVAL_MS, signal);
      if (!signal.aborted) this.#local.checkAll();
    }
  }
}

function isAllocated(value: unknown): value is NumericIdentity {
  return isNumericIdentity(value) && value >= MINIMAL_ALLOCATED_IDENTITY;
}

const OPTIONS = optionsWith({
  backend: OBJECT,
  nodeSuffix: matching(
    'must be a name without /',
    (value) => typeof value === 'string' && /^[^/]+$/.test(value),
  ),
  range: matching(
    'must be a result of clusterIdentityRange',
    (value) =>
      isObjectOrList(value) &&
      isAllocated(value['min']) &&
      isAllocated(value['max']) &&
      value['min'] <= value['max'],
  ),
  rejections: objectWith({ add: FUNCTION }),
});

checkArguments(IdentityAllocator, {
  run: { signal: SIGNAL },
  subscribe: { listener: objectWith({ onIdentity: FUNCTION, onIdentityGone: FUNCTION }) },
  lookupByLabels: { labels: LABELS },
  allocate: { labels: LABELS, signal: optional(SIGNAL) },
  release: { labels: LABELS },
});
