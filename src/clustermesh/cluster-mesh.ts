import { checkArguments, FUNCTION, NUMBER, objectWith, optional, SIGNAL, TEXT } from '../base/arguments.ts';
import type { Clock, Random } from '../base/clock.ts';
import type { Unsubscribe } from '../base/subscription.ts';
import { clusterIdentityRange, type MaxConnectedClusters } from '../identity/numeric-identity.ts';
import type { RemoteIdentityCache } from '../identity/remote-identity-cache.ts';
import type { ClusterConfig } from '../kvstore/codec/cluster-config.ts';
import type { OnClusterChange } from './cluster-changes.ts';
import { type AddClusterOutcome, ClusterSet } from './cluster-set.ts';
import { NEW_CLUSTER } from './cluster-state.ts';
import type { RemoteClusterStatus } from './cluster-status.ts';
import { ClusterStores } from './cluster-stores.ts';
import { type ClusterLimits, NO_LIMITS } from './decoders.ts';
import type { MeshEngines } from './engines.ts';
import { type ConnectKvstore, FollowedCluster, type FollowingOptions } from './followed-cluster.ts';
import { GlobalServices } from './global-services.ts';
import type { SyncDeadline, SyncingClusters, SyncProgress } from './sync-deadline.ts';

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

/** The mesh as data. */
export interface ClusterMeshStatus {
  /** Whether every remote cluster is ready. */
  readonly ready: boolean;
  /** By name, ascending. */
  readonly clusters: readonly RemoteClusterStatus[];
}

/**
 * The remote clusters of a mesh, each followed into the engines (SEMANTICS 6). Clusters come and go by `add`
 * and `remove`; the faults of one do not touch the others.
 */
export class ClusterMesh implements SyncingClusters {
  readonly #options: ClusterMeshOptions;
  readonly #clusters: ClusterSet;
  /** Which remote clusters share which services. Its content is the mesh's to change. */
  readonly globalServices: GlobalServices = new GlobalServices();
  /** By id, as last looked up: a cluster may have changed its id since, and has none when it is gone. */
  readonly #byID = new Map<number, FollowedCluster>();

  constructor(options: ClusterMeshOptions) {
    this.#options = options;
    const { clusterName, clock } = options;
    this.#clusters = new ClusterSet({ clusterName, clock, create: (name) => this.#newCluster(name) });
  }

  /** The clusters that are known, by name, ascending. */
  get names(): readonly string[] {
    return this.#clusters.names;
  }

  /**
   * Follows the cluster `name` on the client that `connect` makes. A cluster that is known already goes over to
   * the new client: what it has said stays until the new list shows what is gone. Resolves once what was there
   * before has been left; does not wait for the connection.
   */
  add(name: string, connect: ConnectKvstore): Promise<AddClusterOutcome> {
    return this.#clusters.add(name, connect);
  }

  /** Why a cluster of this name cannot be added, if so. */
  check(name: string): 'own-cluster' | 'invalid-name' | undefined {
    return this.#clusters.check(name);
  }

  /** Lets go of a cluster and takes back all that it has said (I10). False when it is not known. */
  remove(name: string): Promise<boolean> {
    return this.#clusters.remove(name);
  }

  /** Resolves once every cluster known now has been complete. */
  synced(): Promise<void> {
    return this.#clusters.synced();
  }

  /**
   * Waits until every cluster, also one that is added meanwhile, has been complete, or has stood still for the
   * deadline. Gives the names of those that are not complete, ascending; empty when all are. Never rejects: when
   * the signal fires it gives what is not complete by then.
   */
  clustersSynced(deadline: SyncDeadline): Promise<readonly string[]> {
    return this.#clusters.clustersSynced(deadline);
  }

  /** How far the first sync of a cluster has come; `undefined` when it is not known. */
  progressOf(name: string): SyncProgress | undefined {
    return this.#clusters.progressOf(name);
  }

  /** Calls back when a cluster has come or gone, or what its status shows has changed: state, connected, failures. */
  onChange(callback: OnClusterChange): Unsubscribe {
    return this.#clusters.onChange(callback);
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
    if (known !== undefined && known.clusterID === clusterID) return [known.identities];
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
    const clusters = this.#clusters.statuses();
    return { ready: clusters.every(({ ready }) => ready), clusters };
  }

  /** Ends following; the engines keep what they know (SEMANTICS 6: stopping the agent withdraws nothing). */
  stop(): Promise<void> {
    return this.#clusters.stop();
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
      ...{ name, clock, random, serviceTTLMs, onReject, retries: this.#clusters.retries },
      ...{ initial: NEW_CLUSTER, gate },
      stores: (hooks) =>
        new ClusterStores({
          ...{ ...hooks, cluster: name, gate, valueLimits },
          writer: { source: 'clustermesh', owner: name },
          engines: { ipcache, services, nodes, remoteNodeIdentities },
          globalServices: this.globalServices,
          limits: (config) => limitsOf(config, maxConnectedClusters),
        }),
      objection: (config) => this.#objection(name, config),
      onChange: () => this.#clusters.notify(name),
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
