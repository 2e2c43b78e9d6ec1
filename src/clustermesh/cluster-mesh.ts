import { checkArguments, FUNCTION, NUMBER, objectWith, optional, SIGNAL, TEXT } from '../base/arguments.ts';
import { assert } from '../base/assert.ts';
import type { Clock, Random } from '../base/clock.ts';
import type { Unsubscribe } from '../base/subscription.ts';
import { clusterIdentityRange, type MaxConnectedClusters } from '../identity/numeric-identity.ts';
import type { RemoteIdentityCache } from '../identity/remote-identity-cache.ts';
import type { ClusterConfig } from '../kvstore/codec/cluster-config.ts';
import { ClusterChanges, type OnClusterChange } from './cluster-changes.ts';
import { NEW_CLUSTER } from './cluster-state.ts';
import type { RemoteClusterStatus } from './cluster-status.ts';
import { type ClusterLimits, NO_LIMITS } from './decoders.ts';
import type { MeshEngines } from './engines.ts';
import { type ConnectKvstore, FollowedCluster, type FollowingOptions } from './followed-cluster.ts';
import { GlobalServices } from './global-services.ts';
import { RetryQueue } from './retry-queue.ts';
import {
  type SyncDeadline,
  type SyncingClusters,
  type SyncProgress,
  waitForClusters,
} from './sync-deadline.ts';

/** Options of {@link ClusterMesh}. */
export interface ClusterMeshOptions extends MeshEngines, FollowingOptions {
  /** The own cluster: it is never followed as a remote one. */
  readonly clusterName: string;
  /** The own cluster's id, which no other may have; 0 when it has none. */
  readonly clusterID: number;
  /** Default 255. Clusters of another kind of mesh are rejected: their identities mean something else. */
  readonly maxConnectedClusters?: MaxConnectedClusters | undefined;
  readonly clock: Clock;
  readonly random: Random;
  /**
   * A cluster whose services could not be followed for so long loses its service backends, until it is reached again;
   * its nodes, IPs and identities stay. Default: they all stay.
   */
  readonly serviceTTLMs?: number | undefined;
}

/** What became of {@link ClusterMesh.add}; but for the first two, nothing was added. */
export type AddClusterOutcome = 'added' | 'reconnected' | 'own-cluster' | 'invalid-name' | 'stopped';

/** The mesh as data. */
export interface ClusterMeshStatus {
  /** Whether every remote cluster is ready. */
  readonly ready: boolean;
  /** By name, ascending. */
  readonly clusters: readonly RemoteClusterStatus[];
}

// A name is a part of kvstore keys.
const CLUSTER_NAME = /^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$/;

/**
 * The remote clusters of a mesh, each followed into the engines (SEMANTICS 6). Clusters come and go by `add`
 * and `remove`; the faults of one do not touch the others.
 */
export class ClusterMesh implements SyncingClusters {
  readonly #options: ClusterMeshOptions;
  readonly #clusters = new Map<string, FollowedCluster>();
  /** Which remote clusters share which services. Its content is the mesh's to change. */
  readonly globalServices: GlobalServices = new GlobalServices();
  readonly #turns = new Map<string, Promise<void>>();
  readonly #changes = new ClusterChanges();
  readonly #retries: RetryQueue;
  /** By id, as last looked up: a cluster may have gone or changed its id since. */
  readonly #byID = new Map<number, FollowedCluster>();
  #stopped = false;

  constructor(options: ClusterMeshOptions) {
    this.#options = options;
    this.#retries = new RetryQueue(options.clock);
  }

  /** The clusters that are known, by name, ascending. */
  get names(): readonly string[] {
    return [...this.#clusters.keys()].sort();
  }

  /**
   * Follows the cluster `name` on the client that `connect` makes. A cluster that is known already goes over to
   * the new client: what it has said stays until the new list shows what is gone. Resolves once what was there
   * before has been left; does not wait for the connection.
   */
  add(name: string, connect: ConnectKvstore): Promise<AddClusterOutcome> {
    assert(!this.#stopped, 'the mesh has been stopped');
    const fault = this.check(name);
    if (fault !== undefined) return Promise.resolve(fault);
    return this.#inTurn(name, async () => {
      if (this.#stopped) return 'stopped';
      const known = this.#clusters.get(name);
      const cluster = known ?? this.#newCluster(name);
      this.#clusters.set(name, cluster);
      const connecting = cluster.connect(connect);
      this.#changes.notify(name);
      await connecting;
      return known === undefined ? 'added' : 'reconnected';
    });
  }

  /** Why a cluster of this name cannot be added, if so. */
  check(name: string): 'own-cluster' | 'invalid-name' | undefined {
    if (name === this.#options.clusterName) return 'own-cluster';
    return CLUSTER_NAME.test(name) ? undefined : 'invalid-name';
  }

  /** Lets go of a cluster and takes back all that it has said (I10). False when it is not known. */
  remove(name: string): Promise<boolean> {
    return this.#inTurn(name, async () => {
      const cluster = this.#clusters.get(name);
      if (cluster === undefined) return false;
      await cluster.remove();
      this.#clusters.delete(name);
      this.#changes.notify(name);
      return true;
    });
  }

  /** Resolves once every cluster known now has been complete. */
  async synced(): Promise<void> {
    await Promise.all([...this.#clusters.values()].map((cluster) => cluster.synced()));
  }

  /**
   * Waits until every cluster, also one that is added meanwhile, has been complete, or has stood still for the
   * deadline. Gives the names of those that are not complete, ascending; empty when all are. Never rejects: when
   * the signal fires it gives what is not complete by then.
   */
  clustersSynced(deadline: SyncDeadline): Promise<readonly string[]> {
    return waitForClusters(this, { ...deadline, clock: this.#options.clock });
  }

  /** How far the first sync of a cluster has come; `undefined` when it is not known. */
  progressOf(name: string): SyncProgress | undefined {
    return this.#clusters.get(name)?.progress();
  }

  /** Calls back when a cluster has come or gone, or what its status shows has changed: state, connected, failures. */
  onChange(callback: OnClusterChange): Unsubscribe {
    return this.#changes.add(callback);
  }

  /** The identities of a cluster; `undefined` when it is not known. */
  identitiesOf(name: string): RemoteIdentityCache | undefined {
    return this.#clusters.get(name)?.identities;
  }

  /**
   * Where the identities of the cluster with this id are known: its own cache; without such a cluster, those of the
   * clusters that have no id (older than 1.13, or not read yet). Costs a map look-up; for an id of no cluster, a look at
   * each.
   */
  identitiesFor(clusterID: number): readonly RemoteIdentityCache[] {
    const known = this.#byID.get(clusterID);
    if (known !== undefined && known.clusterID === clusterID && this.#clusters.get(known.name) === known)
      return [known.identities];
    const clusters = [...this.#clusters.values()];
    const found = clusters.find((cluster) => cluster.clusterID === clusterID && clusterID !== 0);
    if (found === undefined) {
      this.#byID.delete(clusterID);
      return clusters.filter((cluster) => cluster.clusterID === 0).map(({ identities }) => identities);
    }
    this.#byID.set(clusterID, found);
    return [found.identities];
  }

  /** One cluster as data; `undefined` when it is not known. */
  statusOf(name: string): RemoteClusterStatus | undefined {
    return this.#clusters.get(name)?.status();
  }

  /** The mesh as data. Costs some µs a cluster, however much it holds. */
  status(): ClusterMeshStatus {
    const clusters = this.names.flatMap((name) => this.statusOf(name) ?? []);
    return { ready: clusters.every(({ ready }) => ready), clusters };
  }

  /** Ends following; the engines keep what they know (SEMANTICS 6: stopping the agent withdraws nothing). */
  async stop(): Promise<void> {
    this.#stopped = true;
    await Promise.all(this.#turns.values());
    await Promise.all([...this.#clusters.values()].map((cluster) => cluster.stop()));
  }

  /**
   * One thing after the other for each cluster: one that comes back while it is being removed must not meet its
   * own withdrawal. Clusters do not wait for each other.
   */
  #inTurn<T>(name: string, work: () => Promise<T>): Promise<T> {
    const turn = (this.#turns.get(name) ?? Promise.resolve()).then(work);
    const over = turn.then(
      () => {},
      () => {},
    );
    this.#turns.set(name, over);
    void over.then(() => {
      if (this.#turns.get(name) === over) this.#turns.delete(name);
    });
    return turn;
  }

  #newCluster(name: string): FollowedCluster {
    const {
      clock,
      random,
      gate,
      valueLimits,
      onReject,
      serviceTTLMs,
      maxConnectedClusters = 255,
    } = this.#options;
    const { ipcache, services, nodes, remoteNodeIdentities } = this.#options;
    return new FollowedCluster({
      ...{ name, clock, random, gate, valueLimits, serviceTTLMs, onReject, retries: this.#retries },
      initial: NEW_CLUSTER,
      writer: { source: 'clustermesh', owner: name },
      engines: { ipcache, services, nodes, remoteNodeIdentities },
      globalServices: this.globalServices,
      objection: (config) => this.#objection(name, config),
      limits: (config) => limitsOf(config, maxConnectedClusters),
      onChange: () => this.#changes.notify(name),
    });
  }

  /** Why a cluster with this configuration cannot be part of the mesh. */
  #objection(name: string, config: ClusterConfig | undefined): string | undefined {
    if (config === undefined) return undefined;
    const { maxConnectedClusters: own = 255 } = this.#options;
    const { maxConnectedClusters: theirs = 255 } = config.capabilities;
    if (theirs !== own) return `cluster ${name} is of a mesh of ${theirs} clusters, this one of ${own}`;
    if (config.id > own) return `cluster ${name} has id ${config.id}, above ${own}`;
    return this.#conflict(name, config.id);
  }

  /** Why `name` may not have this id. Ids are exclusive: an identity must not mean two things. */
  #conflict(name: string, id: number): string | undefined {
    if (id === 0) return undefined;
    const { clusterID, clusterName } = this.#options;
    if (id === clusterID)
      return `cluster ${name} has id ${id}, which is that of this cluster, ${clusterName}`;
    for (const other of this.#clusters.values()) {
      if (other.name !== name && other.clusterID === id) {
        return `cluster ${name} has id ${id}, which is that of cluster ${other.name}`;
      }
    }
    return undefined;
  }
}

checkArguments(ClusterMesh, {
  add: { name: TEXT, connect: FUNCTION },
  remove: { name: TEXT },
  clustersSynced: { deadline: objectWith({ deadlineMs: NUMBER, signal: optional(SIGNAL) }) },
  onChange: { callback: FUNCTION },
});

/** A cluster with an id may say nothing of others. */
function limitsOf(config: ClusterConfig | undefined, max: MaxConnectedClusters): ClusterLimits {
  const clusterID = config?.id ?? 0;
  return clusterID === 0 ? NO_LIMITS : { clusterID, identities: clusterIdentityRange(clusterID, max) };
}
