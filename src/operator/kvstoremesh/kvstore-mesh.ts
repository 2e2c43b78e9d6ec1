import { assert } from '../../base/assert.ts';
import { counted } from '../../base/show-value.ts';
import { Supervisor } from '../../base/supervisor.ts';
import type { Runtime } from '../../base/system-clock.ts';
import { type AddClusterOutcome, ClusterSet } from '../../clustermesh/cluster-set.ts';
import { NEW_CLUSTER } from '../../clustermesh/cluster-state.ts';
import type { RemoteClusterStatus } from '../../clustermesh/cluster-status.ts';
import {
  type ConnectKvstore,
  FollowedCluster,
  type FollowingOptions,
} from '../../clustermesh/followed-cluster.ts';
import { decodeClusterConfig } from '../../kvstore/codec/cluster-config.ts';
import { CLUSTER_CONFIG_PREFIX } from '../../kvstore/codec/keys.ts';
import type { KvstoreBackend, WatchEvent, WatchState } from '../../kvstore/session/backend.ts';
import { KvstoreError } from '../../kvstore/session/errors.ts';
import { ReturnedValues } from '../../kvstore/stores/returned-values.ts';
import { type MirrorStatus, MirrorStores } from './mirror-stores.ts';

export interface KvstoreMeshOptions extends Runtime, Pick<FollowingOptions, 'gate'> {
  /** The local cluster, which is never copied. */
  readonly clusterName: string;
  /** The id of the local cluster; undefined: the id in its configuration in the local kvstore. */
  readonly clusterID: number | undefined;
  /** Destination of the copies. The caller closes it after {@link KvstoreMesh.stop}, and keeps its leases. */
  readonly local: KvstoreBackend;
  /** Time for readers to release a removed cluster. Default 3 minutes. */
  readonly drainMs?: number | undefined;
  /**
   * Time after which the copied services and service exports of a cluster are deleted if its services cannot be
   * followed. They return when the cluster is reachable. Default: never.
   */
  readonly serviceTTLMs?: number | undefined;
}

export interface MirroredClusterStatus extends RemoteClusterStatus {
  readonly copy: MirrorStatus;
  /** True if the cluster was configured again during its removal, and waits for the end of the removal. */
  readonly rejoins: boolean;
}

export interface KvstoreMeshStatus {
  /** See {@link KvstoreMesh.isReady}. */
  readonly ready: boolean;
  /** By name, ascending. */
  readonly clusters: readonly MirroredClusterStatus[];
  /** Current problems, one sentence each. */
  readonly problems: readonly string[];
}

/** Time after which a disconnected cluster does not delay readiness (OPERATOR 46). */
const CONNECT_MS = 15_000;
/** Time after which no cluster delays readiness. */
const READY_MS = 600_000;

/**
 * Copies the state of remote clusters into the local kvstore, under `cilium/cache/`, where many agents can read it
 * (OPERATOR 44 to 47). Fail static: a copied key is deleted only if the kvstore of its cluster is complete, contains
 * the cluster's configuration and does not contain the key; if the cluster is removed; or by the service TTL. Copies
 * are kept over restarts of this process.
 */
export class KvstoreMesh extends ClusterSet {
  readonly #options: KvstoreMeshOptions;
  readonly #mirrored = new Map<string, { readonly stores: MirrorStores; readonly addedAt: number }>();
  /**
   * The next action for each cluster, which starts when the current action ends: copy it, or, if `undefined`, remove
   * it.
   */
  readonly #wanted = new Map<string, ConnectKvstore | undefined>();
  /** The running actions, by cluster. */
  readonly #reconciling = new Map<string, Promise<void>>();
  readonly #startedAt: number;
  readonly #tasks: Supervisor;
  /** The id in the configuration of the local cluster; 0 if it was never published. */
  #publishedID = 0;
  /** State of the watch of the local configurations; undefined before the first cluster. */
  #configState: WatchState | undefined;
  #hasAllAdded = false;
  #isReady = false;
  #stopped = false;

  constructor(options: KvstoreMeshOptions) {
    super(options);
    this.#options = options;
    this.#tasks = new Supervisor(options);
    this.#startedAt = options.clock.now();
  }

  /**
   * Starts to copy the cluster `name` from the client of `connect`. If the cluster is being removed, the copy
   * starts after the removal. Returns without waiting; returns `stopped` after {@link stop}.
   */
  override add(name: string, connect: ConnectKvstore): Promise<AddClusterOutcome> {
    const fault = this.#stopped ? 'stopped' : this.check(name);
    if (fault !== undefined) return Promise.resolve(fault);
    const isKnown = this.#mirrored.has(name);
    this.#want(name, connect);
    return Promise.resolve(isKnown ? 'reconnected' : 'added');
  }

  /**
   * Stops copying a cluster. Its configuration is deleted immediately, the other keys after the time for readers to
   * disconnect. Returns without waiting; returns false if the cluster is unknown.
   */
  override remove(name: string): Promise<boolean> {
    if (this.#stopped || (!this.#mirrored.has(name) && !this.#reconciling.has(name)))
      return Promise.resolve(false);
    this.#want(name, undefined);
    return Promise.resolve(true);
  }

  /** Declares that all initially configured clusters have been added. Before that, `isReady` is false. */
  markAllAdded(): void {
    this.#hasAllAdded = true;
  }

  /**
   * True if the copy of every cluster has been complete once. Always false before {@link markAllAdded}. Clusters that
   * are not connected 15 s after they were added are ignored, and 10 minutes after the start all clusters are ignored.
   * Once true, always true.
   */
  get isReady(): boolean {
    this.#isReady ||= this.#hasAllAdded && this.#unready().length === 0;
    return this.#isReady;
  }

  status(): KvstoreMeshStatus {
    const clusters = this.#statuses();
    return {
      ready: this.isReady,
      clusters,
      problems: [...this.#sharedIDs(clusters), ...clusters.flatMap(problemsOf)],
    };
  }

  /** Stops copying. The copies remain until the leases of the local kvstore's client expire. */
  override async stop(): Promise<void> {
    this.#stopped = true;
    this.#wanted.clear();
    await Promise.all([...this.#mirrored.values()].map(({ stores }) => stores.close()));
    await Promise.all(this.#reconciling.values());
    await super.stop();
    await this.#tasks.stop();
  }

  #statuses(): readonly MirroredClusterStatus[] {
    return this.statuses().flatMap((status) => {
      const mirrored = this.#mirrored.get(status.name);
      if (mirrored === undefined) return [];
      const rejoins = this.#wanted.get(status.name) !== undefined;
      return { ...status, copy: mirrored.stores.mirrorStatus(), rejoins };
    });
  }

  /** Returns a problem for each id that several clusters use, because readers follow only one of them. */
  #sharedIDs(clusters: readonly MirroredClusterStatus[]): readonly string[] {
    const { clusterName, clusterID = this.#publishedID } = this.#options;
    const names = new Map([[clusterID, `this cluster (${clusterName})`]]);
    const problems: string[] = [];
    for (const { name, config } of clusters) {
      const id = config?.id ?? 0;
      const other = names.get(id);
      if (id === 0) continue;
      if (other === undefined) names.set(id, `cluster ${name}`);
      else
        problems.push(`cluster ${name} has id ${id}, the same as ${other}: agents follow only one of them`);
    }
    return problems;
  }

  /** Returns the names of the clusters that delay readiness. */
  #unready(): readonly string[] {
    const now = this.#options.clock.now();
    if (now - this.#startedAt >= READY_MS) return [];
    const notStarted = [...this.#reconciling.keys()].filter((name) => !this.#mirrored.has(name));
    const incomplete = this.statuses().flatMap(({ name, connected }) => {
      const mirrored = this.#mirrored.get(name);
      if (mirrored === undefined || mirrored.stores.isSynced) return [];
      return !connected && now - mirrored.addedAt >= CONNECT_MS ? [] : name;
    });
    return [...notStarted, ...incomplete];
  }

  #want(name: string, connect: ConnectKvstore | undefined): void {
    this.#wanted.set(name, connect);
    if (!this.#reconciling.has(name)) this.#reconciling.set(name, this.#reconcile(name));
  }

  /** Performs the latest requested action for a cluster. Skips earlier requests. */
  async #reconcile(name: string): Promise<void> {
    while (this.#wanted.has(name)) {
      const connect = this.#wanted.get(name);
      this.#wanted.delete(name);
      if (connect !== undefined) await super.add(name, connect);
      else {
        this.#mirrored.get(name)?.stores.leave();
        await super.remove(name);
        if (!this.#stopped) this.#mirrored.delete(name);
      }
    }
    this.#reconciling.delete(name);
  }

  /**
   * Follows the local configurations of all clusters with one watch. With a watch for each cluster, the cost would be
   * quadratic.
   */
  #followConfigs(): void {
    if (this.#configState !== undefined) return;
    this.#configState = 'listing';
    void this.#tasks.runWithRestart('configurations', (signal) => this.#watchConfigs(signal));
  }

  async #watchConfigs(signal: AbortSignal): Promise<void> {
    const returned = new ReturnedValues();
    const onState = (state: WatchState): void => {
      returned.recordState(state);
      this.#setConfigState(state);
    };
    for await (const events of this.#options.local.watch(CLUSTER_CONFIG_PREFIX, { signal, onState }))
      for (const event of events) {
        const name = event.key.slice(CLUSTER_CONFIG_PREFIX.length);
        this.#mirrored.get(name)?.stores.receiveConfigEvent(event);
        if (name === this.#options.clusterName) this.#readOwnConfig(event);
        if (returned.recordEvent(event.modRevision)) this.#removeReturned(name, event);
      }
  }

  /** Reads the id of the local cluster. A deleted or invalid configuration keeps the last id. */
  #readOwnConfig({ key, value }: WatchEvent): void {
    const config = decodeClusterConfig(value, key);
    if (config.ok) this.#publishedID = config.value.id;
  }

  /**
   * Removes the copy of a removed cluster that a restore of the local kvstore from a backup has brought back. Its lease
   * is one of this process, so it would not expire.
   */
  #removeReturned(name: string, { key, value }: WatchEvent): void {
    const config = decodeClusterConfig(value, key);
    const isCopy = config.ok && config.value.capabilities.cached === true;
    const isLocal = name === this.#options.clusterName;
    if (this.#stopped || !isCopy || isLocal || this.#mirrored.has(name) || this.#reconciling.has(name))
      return;
    // Only an added cluster can be removed.
    this.#want(name, () => Promise.reject(new KvstoreError('unavailable', 'removed cluster')));
    this.#want(name, undefined);
  }

  #setConfigState(state: WatchState): void {
    this.#configState = state;
    for (const { stores } of this.#mirrored.values()) stores.receiveConfigWatchState(state);
  }

  protected override newCluster(name: string): FollowedCluster {
    const { clock, random, gate, serviceTTLMs } = this.#options;
    return new FollowedCluster({
      name,
      clock,
      random,
      gate,
      serviceTTLMs,
      retries: this.retries,
      initial: { ...NEW_CLUSTER, needsConfig: true },
      stores: (hooks) => {
        assert(!this.#mirrored.has(name), 'the cluster is copied once');
        const stores = new MirrorStores({ ...this.#options, ...hooks, cluster: name });
        this.#mirrored.set(name, { stores, addedAt: clock.now() });
        this.#followConfigs();
        stores.receiveConfigWatchState(this.#configState ?? 'listing');
        stores.start();
        return stores;
      },
      // The readers check values and ids (OPERATOR 47).
      objection: () => undefined,
      onChange: () => this.notify(name),
    });
  }
}

function problemsOf({ name, servicesExpired, copy }: MirroredClusterStatus): readonly string[] {
  const problems: string[] = [];
  if (servicesExpired)
    problems.push(
      `the copied services of cluster ${name} were deleted, because it was unreachable or empty for the time of --clustermesh-cache-ttl`,
    );
  const { isFailing, pending, lastFailure } = copy;
  if (isFailing)
    problems.push(
      `cannot write the copy of cluster ${name} to the kvstore of this cluster: ${counted(pending, 'key is', 'keys are')} pending: ${lastFailure?.message}`,
    );
  return problems;
}
