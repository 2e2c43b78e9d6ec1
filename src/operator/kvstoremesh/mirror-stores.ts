import { assert } from '../../base/assert.ts';
import { sleep } from '../../base/sleep.ts';
import { interruptible, Supervisor } from '../../base/supervisor.ts';
import { type FollowEnd, type FollowRequest, ResourceStores } from '../../clustermesh/resource-stores.ts';
import {
  type ClusterConfig,
  decodeClusterConfig,
  encodeClusterConfig,
} from '../../kvstore/codec/cluster-config.ts';
import {
  CLUSTER_CONFIG_PREFIX,
  clusterConfigKey,
  MESH_RESOURCES,
  type MeshResource,
} from '../../kvstore/codec/keys.ts';
import { SyncStore, type SyncStoreStatus } from '../../kvstore/store/sync-store.ts';
import { Mirror, type MirrorOptions } from './mirror.ts';

/** Options of {@link MirrorStores}. */
export interface MirrorStoresOptions extends Omit<MirrorOptions, 'resource'> {
  /** Readers have so long to let go of a cluster that is removed. Default {@link DRAIN_MS}. */
  readonly drainMs?: number | undefined;
}

/** How the copy of a cluster is doing. */
export interface MirrorStatus {
  /** Keys of the copy that are to exist, and those that the local kvstore does not yet hold as they are to be. */
  readonly keys: number;
  readonly pending: number;
  /** Of each resource, whether the local canary says that it is complete. */
  readonly canaries: Readonly<Partial<Record<MeshResource, boolean>>>;
  /** Writes into the local kvstore that have failed; the last may have been overcome since. */
  readonly failures: number;
  readonly lastFailure: string | undefined;
  readonly lastFailureAt: number | undefined;
}

/** How long readers have to disconnect from a cluster that is removed (OPERATOR 45). */
export const DRAIN_MS = 180_000;
/** How often the configuration is looked at (OPERATOR 44). */
const CONFIG_INTERVAL_MS = 5 * 60_000;
/** Of what the local kvstore refuses: 2 s, doubling (OPERATOR 45), without end, as our lease would keep the rest for ever. */
const BACKOFF = { baseMs: 2_000, capMs: 60_000 };

/** The copy of one remote cluster in the local kvstore: its configuration, and a {@link Mirror} of each resource. */
export class MirrorStores extends ResourceStores {
  readonly #options: MirrorStoresOptions;
  readonly #mirrors: ReadonlyMap<MeshResource, Mirror>;
  readonly #config: SyncStore;
  readonly #tasks: Supervisor;
  readonly #closing = new AbortController();
  /** The id in the local configuration; 0: none. */
  #id = 0;
  #inherited: Promise<void> = Promise.resolve();
  #isLeaving = false;
  /** Runs while the mirrors write. */
  #writing: { readonly stop: AbortController; readonly ended: Promise<unknown> } | undefined;

  constructor(options: MirrorStoresOptions) {
    const { cluster, local: backend, clock, random } = options;
    super(cluster);
    this.#options = options;
    this.#tasks = new Supervisor({ clock, random });
    const prefix = CLUSTER_CONFIG_PREFIX;
    this.#config = new SyncStore({ backend, prefix, clock, random, leased: 'first' });
    this.#mirrors = new Map(
      MESH_RESOURCES.map((resource) => [resource, new Mirror({ ...options, resource })] as const),
    );
    for (const [resource, { store }] of this.#mirrors) this.stores.set(resource, store);
  }

  /** Begins to write, and takes over what an earlier process has left. Once only. */
  start(): void {
    void this.#tasks.keep('configuration', (signal) => this.#config.run(signal));
    void this.#tasks.keep('interval', (signal) => this.#lookAtConfig(signal));
    this.#write();
    this.#inherited = this.#tasks.keep('inherit', (signal) => this.#inherit(signal), { backoff: BACKOFF });
  }

  /** The cluster leaves the mesh: what is withdrawn next is withdrawn for good, and after a wait. */
  leave(): void {
    this.#isLeaving = true;
  }

  /** Ends writing. What is there stays, also of a cluster that is leaving (OPERATOR 45). */
  async close(): Promise<void> {
    this.#closing.abort();
    await this.#stopWriting();
    await this.#tasks.stop();
  }

  /** Whether every resource has been complete, in the local kvstore. */
  override get isSynced(): boolean {
    return [...this.#mirrors.values()].every((mirror) => mirror.isSynced);
  }

  mirrorStatus(): MirrorStatus {
    const mirrors = [...this.#mirrors].map(([resource, mirror]) => [resource, mirror.status()] as const);
    const all: SyncStoreStatus[] = [this.#config.status(), ...mirrors.map(([, status]) => status)];
    const last = all.flatMap(({ lastFailure }) => lastFailure ?? []).sort((a, b) => b.at - a.at)[0];
    const sum = (of: 'keys' | 'pending' | 'failures'): number => all.reduce((n, status) => n + status[of], 0);
    return {
      keys: sum('keys'),
      pending: sum('pending'),
      canaries: Object.fromEntries(mirrors.map(([resource, { canaryWritten }]) => [resource, canaryWritten])),
      failures: sum('failures'),
      lastFailure: last?.message,
      lastFailureAt: last?.at,
    };
  }

  /** Nothing is copied before the local configuration says how to read it (OPERATOR 44). */
  async begin(config: ClusterConfig | undefined, signal: AbortSignal): Promise<void> {
    assert(config !== undefined, 'a cluster without a configuration is not copied');
    await until(this.#inherited, signal);
    // What is left of another id is not of this cluster any more (OPERATOR 47).
    if (this.#id !== 0 && config.id !== 0 && this.#id !== config.id) await this.#clear(signal);
    if (signal.aborted) return;
    this.#id = config.id;
    this.#write();
    const { maxConnectedClusters } = config.capabilities;
    const max = maxConnectedClusters === undefined ? {} : { maxConnectedClusters };
    const capabilities = { syncedCanaries: true, cached: true, ...max };
    this.#config.upsert(this.#options.cluster, encodeClusterConfig({ id: config.id, capabilities }));
    await until(this.#config.markSynced(), signal);
  }

  override follow(resource: MeshResource, request: FollowRequest): Promise<FollowEnd> {
    const onListed = (listed: MeshResource): void => {
      this.#mirrors.get(listed)?.listed();
      request.onListed(listed);
    };
    return super.follow(resource, { ...request, onListed });
  }

  /** Not asked for: services that could not be followed for long stay, as all else. */
  withdrawServices(): Promise<void> {
    return Promise.resolve();
  }

  /** The configuration first: readers take what goes after it for no change of the cluster. */
  async withdraw(signal: AbortSignal): Promise<void> {
    const { clock, drainMs = DRAIN_MS } = this.#options;
    const either = AbortSignal.any([signal, this.#closing.signal]);
    await until(this.#inherited, either);
    await this.#withdrawConfig(either);
    if (this.#isLeaving) await sleep(clock, drainMs, either);
    await this.#clear(either);
    if (this.#isLeaving && !either.aborted) await this.close();
  }

  async #withdrawConfig(signal: AbortSignal): Promise<void> {
    if (signal.aborted) return;
    this.#config.delete(this.#options.cluster);
    await until(this.#config.markSynced(), signal);
    this.#id = 0;
  }

  /** Tried until it has succeeded, or the signal fires. */
  async #clear(signal: AbortSignal): Promise<void> {
    await this.#withdrawConfig(signal);
    if (signal.aborted) return;
    await this.#stopWriting();
    const clear = async (left: AbortSignal): Promise<void> => {
      for (const mirror of this.#mirrors.values()) await mirror.clear(left);
    };
    await this.#tasks.keep('clear', clear, { signal, backoff: BACKOFF });
  }

  #write(): void {
    if (this.#closing.signal.aborted || this.#writing !== undefined) return;
    const stop = new AbortController();
    const running = [...this.#mirrors].map(([resource, mirror]) =>
      this.#tasks.keep(resource, (signal) => mirror.run(signal), { signal: stop.signal }),
    );
    this.#writing = { stop, ended: Promise.all(running) };
  }

  async #stopWriting(): Promise<void> {
    this.#writing?.stop.abort();
    await this.#writing?.ended;
    this.#writing = undefined;
  }

  async #inherit(signal: AbortSignal): Promise<void> {
    const { cluster, local } = this.#options;
    const key = clusterConfigKey(cluster);
    const kv = await local.get(key, { signal });
    const config = kv && decodeClusterConfig(kv.value, key);
    // Without its configuration its id is not known.
    if (kv === undefined || config?.ok !== true || !config.value.capabilities.cached) {
      return await this.#clear(signal);
    }
    this.#id = config.value.id;
    const inherited = await Promise.all([...this.#mirrors.values()].map((mirror) => mirror.inherit(signal)));
    // It must not outlive the keys: readers believe what goes while it is there.
    await until(Promise.all(inherited.map(({ landed }) => landed)), signal);
    if (signal.aborted) return;
    if (this.#config.get(cluster) === undefined) this.#config.upsert(cluster, kv.value.slice());
  }

  async #lookAtConfig(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await sleep(this.#options.clock, CONFIG_INTERVAL_MS, signal);
      this.#config.touchAll();
    }
  }
}

/** Resolves with the promise, or when the signal fires. */
function until(promise: Promise<unknown>, signal: AbortSignal): Promise<unknown> {
  return interruptible(() => promise, signal).catch(() => {});
}
