import { assert } from '../../base/assert.ts';
import { type Failure, laterFailure } from '../../base/failure.ts';
import { EitherSignal } from '../../base/follow-signal.ts';
import { sleep } from '../../base/sleep.ts';
import { interruptible, Supervisor } from '../../base/supervisor.ts';
import {
  EXPIRING_RESOURCES,
  type FollowEnd,
  type FollowRequest,
  ResourceStores,
} from '../../clustermesh/resource-stores.ts';
import {
  type ClusterCapabilities,
  type ClusterConfig,
  decodeClusterConfig,
  encodeClusterConfig,
  exportsResource,
} from '../../kvstore/codec/cluster-config.ts';
import {
  CLUSTER_CONFIG_PREFIX,
  COPIED_RESOURCES,
  type CopiedResource,
  clusterConfigKey,
  isServiceResource,
  syncedPrefix,
} from '../../kvstore/codec/keys.ts';
import type { WatchEvent, WatchState } from '../../kvstore/session/backend.ts';
import { SyncStore, type SyncStoreStatus } from '../../kvstore/stores/sync-store.ts';
import { Mirror, type MirrorOptions } from './mirror.ts';

export interface MirrorStoresOptions extends Omit<MirrorOptions, 'resource'> {
  /** Time for readers to disconnect from a removed cluster. Default {@link DRAIN_MS}. */
  readonly drainMs?: number | undefined;
}

/** The status of the copy of a cluster. */
export interface MirrorStatus extends Pick<SyncStoreStatus, 'keys' | 'pending' | 'failures' | 'isFailing'> {
  /** By resource: true if the local canary declares it complete. */
  readonly canaries: Readonly<Partial<Record<CopiedResource, boolean>>>;
  /** The last failure. A retry may have resolved it, unless `isFailing` is true. */
  readonly lastFailure: Failure | undefined;
}

/** Time for readers to disconnect from a removed cluster (OPERATOR 45). */
export const DRAIN_MS = 180_000;
/**
 * Retries of refused writes: after 2 s, doubling (OPERATOR 45). Their number is not limited, because the lease of this
 * process would keep the remaining keys alive.
 */
const BACKOFF = { baseMs: 2_000, capMs: 60_000 };

/** The copy of one remote cluster in the local kvstore: its configuration, and a {@link Mirror} for each resource. */
export class MirrorStores extends ResourceStores {
  readonly #options: MirrorStoresOptions;
  readonly #mirrors: ReadonlyMap<CopiedResource, Mirror>;
  readonly #config: SyncStore;
  readonly #tasks: Supervisor;
  readonly #closing = new AbortController();
  /** The id in the local configuration; 0 if there is none. */
  #id = 0;
  /** The capabilities in the local configuration; undefined if there is none. */
  #capabilities: ClusterCapabilities | undefined;
  /** Resolves when the keys of an earlier process are adopted or deleted. */
  #inherited: Promise<void> = Promise.resolve();
  /** True if keys of an unknown id may be left, because there was no local configuration. */
  #mustClear = false;
  #isLeaving = false;
  /** Set while the mirrors write. */
  #writing: { readonly stop: AbortController; readonly ended: Promise<unknown> } | undefined;

  constructor(options: MirrorStoresOptions) {
    const { cluster, local: backend, clock, random } = options;
    super(cluster);
    this.#options = options;
    this.#tasks = new Supervisor({ clock, random });
    this.#config = new SyncStore({
      backend,
      prefix: CLUSTER_CONFIG_PREFIX,
      clock,
      random,
      leased: 'expires-first',
      follow: false,
    });
    this.#mirrors = new Map(
      COPIED_RESOURCES.map((resource) => [resource, new Mirror({ ...options, resource })] as const),
    );
    for (const [resource, { store }] of this.#mirrors) this.stores.set(resource, store);
  }

  /**
   * Adopts the keys of an earlier process. If there is no local configuration, only the read that finds this is sent
   * before {@link MirrorStores.configure}, because a cluster that was never reached would otherwise cost seven watches
   * and fifteen writes. Call it once.
   */
  start(): void {
    void this.#tasks.runWithRestart('configuration', (signal) => this.#config.run(signal));
    this.#inherited = this.#tasks.runWithRestart('inherit', (signal) => this.#inherit(signal), {
      backoff: BACKOFF,
    });
  }

  /** Receives an event of the local configuration of this cluster. The owner must pass each of them. */
  receiveConfigEvent(event: WatchEvent): void {
    if (event.type !== 'list-done') this.#config.receiveEvent(this.#options.cluster, event);
  }

  /** Receives each state of the watch of the local configurations. */
  receiveConfigWatchState(state: WatchState): void {
    void this.#config.receiveWatchState(state, this.#closing.signal);
  }

  /**
   * Marks the cluster as removed: the next {@link withdraw} waits for readers to disconnect, and then deletes all keys.
   */
  leave(): void {
    this.#isLeaving = true;
  }

  /** Stops writing. The keys are kept, also those of a removed cluster (OPERATOR 45). */
  async close(): Promise<void> {
    this.#closing.abort();
    await this.#stopWriting();
    await this.#tasks.stop();
  }

  /** True if every resource has been complete in the local kvstore. */
  override get isSynced(): boolean {
    return [...this.#mirrors.values()].every((mirror) => mirror.isSynced);
  }

  mirrorStatus(): MirrorStatus {
    const mirrors = [...this.#mirrors].map(([resource, mirror]) => [resource, mirror.status()] as const);
    const all: SyncStoreStatus[] = [this.#config.status(), ...mirrors.map(([, status]) => status)];
    const failing = all.filter(({ isFailing }) => isFailing);
    let last: Failure | undefined;
    for (const { lastFailure } of failing.length > 0 ? failing : all) last = laterFailure(last, lastFailure);
    const sum = (field: 'keys' | 'pending' | 'failures'): number =>
      all.reduce((total, status) => total + status[field], 0);
    return {
      keys: sum('keys'),
      pending: sum('pending'),
      canaries: Object.fromEntries(mirrors.map(([resource, { canaryWritten }]) => [resource, canaryWritten])),
      failures: sum('failures'),
      lastFailure: last,
      isFailing: failing.length > 0,
    };
  }

  /**
   * Writes the local configuration. Nothing is copied before, because readers need it to read the keys (OPERATOR 44).
   */
  async configure(config: ClusterConfig | undefined, signal: AbortSignal): Promise<void> {
    assert(config !== undefined, 'a cluster without a configuration is not copied');
    await settledOrAborted(this.#inherited, signal);
    // Keys of another id belong to another cluster (OPERATOR 47).
    const hasOtherID = this.#id !== 0 && config.id !== 0 && this.#id !== config.id;
    if (hasOtherID || this.#mustClear) await this.#clear(signal);
    await this.#clearNewlyExported(config, signal);
    if (signal.aborted) return;
    this.#id = config.id;
    this.#capabilities = config.capabilities;
    this.#startWriting();
    this.skipped = new Set(
      COPIED_RESOURCES.filter((resource) => !exportsResource(resource, config.capabilities)),
    );
    const capabilities = { ...config.capabilities, syncedCanaries: true, cached: true };
    this.#config.upsert(this.#options.cluster, encodeClusterConfig({ id: config.id, capabilities }));
    await settledOrAborted(this.#config.markSynced(), signal);
  }

  /**
   * Clears resources that the cluster did not export until now. Their canaries were written for an empty copy, which
   * readers would consider complete as soon as the configuration names the resource.
   */
  async #clearNewlyExported({ capabilities: next }: ClusterConfig, signal: AbortSignal): Promise<void> {
    const known = this.#capabilities;
    if (known === undefined) return;
    const added = [...this.#mirrors].flatMap(([resource, mirror]) =>
      exportsResource(resource, next) && !exportsResource(resource, known) ? mirror : [],
    );
    if (added.length === 0 || signal.aborted) return;
    await this.#stopWriting();
    await this.#clearMirrors(added, signal);
  }

  /**
   * Copies one resource. Services have two formats. When one of them is complete in the local kvstore, and the cluster
   * does not export the other, the copy of the other is deleted and its canary is written, because readers may wait
   * for it.
   */
  override async follow(resource: CopiedResource, request: FollowRequest): Promise<FollowEnd> {
    const { signal } = request;
    let skipped: Promise<void> | undefined;
    const onListed = (listed: CopiedResource): void => {
      const canaryWritten = this.#mirrors.get(listed)?.markListed();
      if (isServiceResource(listed) && canaryWritten !== undefined)
        skipped = settledOrAborted(canaryWritten, signal).then(() => this.#markSkippedEmpty(signal));
      request.onListed(listed);
    };
    const end = await super.follow(resource, { ...request, onListed });
    await skipped;
    return end;
  }

  async #markSkippedEmpty(signal: AbortSignal): Promise<void> {
    for (const resource of this.skipped) {
      if (signal.aborted) return;
      await this.#mirrors.get(resource)?.markEmpty(signal);
    }
  }

  /** Deletes the copied services and service exports. Their canaries stay, so that readers delete them, too. */
  async withdrawServices(signal: AbortSignal): Promise<void> {
    await settledOrAborted(this.#inherited, signal);
    for (const resource of EXPIRING_RESOURCES) await this.#mirrors.get(resource)?.deleteKeys(signal);
  }

  /** Deletes the configuration first, because readers do not apply deletes while it is absent. */
  async withdraw(signal: AbortSignal): Promise<void> {
    const { clock, drainMs = DRAIN_MS } = this.#options;
    using either = new EitherSignal(signal, this.#closing.signal);
    await settledOrAborted(this.#inherited, either.signal);
    await this.#deleteConfig(either.signal);
    if (this.#isLeaving) await sleep(clock, drainMs, either.signal);
    await this.#clear(either.signal);
    if (this.#isLeaving && !either.signal.aborted) await this.close();
  }

  async #deleteConfig(signal: AbortSignal): Promise<void> {
    if (signal.aborted) return;
    this.#config.delete(this.#options.cluster);
    await settledOrAborted(this.#config.markSynced(), signal);
    this.#id = 0;
    this.#capabilities = undefined;
  }

  /** Deletes the copy. Retries until it has succeeded or the signal fires. */
  async #clear(signal: AbortSignal): Promise<void> {
    await this.#deleteConfig(signal);
    if (signal.aborted) return;
    await this.#stopWriting();
    await this.#clearMirrors([...this.#mirrors.values()], signal);
    if (!signal.aborted) this.#mustClear = false;
  }

  /** Clears mirrors that do not run. Retries until it has succeeded or the signal fires. */
  async #clearMirrors(mirrors: readonly Mirror[], signal: AbortSignal): Promise<void> {
    const clear = async (runSignal: AbortSignal): Promise<void> => {
      for (const mirror of mirrors) await mirror.clear(runSignal);
    };
    await this.#tasks.runWithRestart('clear', clear, { signal, backoff: BACKOFF });
  }

  /** Starts to write the keys and canaries. */
  #startWriting(): void {
    if (this.#closing.signal.aborted || this.#writing !== undefined) return;
    const stop = new AbortController();
    const running = [...this.#mirrors].map(([resource, mirror]) =>
      this.#tasks.runWithRestart(resource, (signal) => mirror.run(signal), { signal: stop.signal }),
    );
    const follow = (signal: AbortSignal): Promise<void> => this.#followCanaries(signal);
    running.push(this.#tasks.runWithRestart('canaries', follow, { signal: stop.signal }));
    this.#writing = { stop, ended: Promise.all(running) };
  }

  /** Follows the local canaries of all resources with one watch. */
  async #followCanaries(signal: AbortSignal): Promise<void> {
    const { cluster, local } = this.#options;
    for await (const events of local.watch(syncedPrefix(cluster), { signal }))
      for (const event of events)
        for (const mirror of this.#mirrors.values()) mirror.receiveCanaryEvent(event);
  }

  async #stopWriting(): Promise<void> {
    this.#writing?.stop.abort();
    await this.#writing?.ended;
    this.#writing = undefined;
  }

  /** Adopts the keys and the configuration of an earlier process. */
  async #inherit(signal: AbortSignal): Promise<void> {
    const { cluster, local } = this.#options;
    const key = clusterConfigKey(cluster);
    const kv = await local.get(key, { signal });
    const config = kv && decodeClusterConfig(kv.value, key);
    this.#mustClear = kv === undefined;
    if (kv === undefined) return;
    // The id of the keys is unknown without a valid configuration of a copy.
    if (config?.ok !== true || !config.value.capabilities.cached) return await this.#clear(signal);
    this.#startWriting();
    this.#id = config.value.id;
    this.#capabilities = config.value.capabilities;
    const inherited = await Promise.all([...this.#mirrors.values()].map((mirror) => mirror.inherit(signal)));
    // The configuration must not outlive the keys, because readers apply deletes while it exists.
    await settledOrAborted(Promise.all(inherited.map(({ flushed }) => flushed)), signal);
    if (signal.aborted) return;
    if (this.#config.get(cluster) === undefined) this.#config.upsert(cluster, kv.value.slice());
  }
}

/** Resolves when the promise is settled or the signal fires. Never rejects. */
function settledOrAborted(promise: Promise<unknown>, signal: AbortSignal): Promise<unknown> {
  return interruptible(() => promise, signal).catch(() => {});
}
