import {
  atLeast,
  BOOLEAN,
  checkArgument,
  NUMBER,
  oneOf,
  optional,
  optionsWith,
  TEXT,
} from '../base/arguments.ts';
import { type Runtime, type RuntimeOptions, withRuntime } from '../base/system-clock.ts';
import type { ClusterConfig } from '../kvstore/codec/cluster-config.ts';
import type { CopiedResource } from '../kvstore/codec/keys.ts';
import type { IdentityCache } from '../model/identity-cache.ts';
import { type MaxConnectedClusters, requireClusterID } from '../model/numeric-identity.ts';
import { ClusterSet, type ClusterSetOptions } from './cluster-set.ts';
import { NEW_CLUSTER } from './cluster-state.ts';
import type { RemoteClusterStatus } from './cluster-status.ts';
import { ClusterStores } from './cluster-stores.ts';
import { clusterLimits } from './decoders.ts';
import { MESH_ENGINES, type MeshEngines } from './engines.ts';
import { FollowedCluster, type FollowingOptions } from './followed-cluster.ts';
import type { KeyVersion } from './resource-stores.ts';
import type { ServiceFormat } from './service-format.ts';

/** Options of {@link ClusterMesh}. */
export interface ClusterMeshOptions extends ClusterSetOptions, RuntimeOptions, MeshEngines, FollowingOptions {
  /** Id of the local cluster, which no other may have; 0 if it has none. */
  readonly clusterID: number;
  /**
   * Maximum number of clusters in the mesh; default 255. Clusters with another maximum are rejected, because their
   * identities have a different layout.
   */
  readonly maxConnectedClusters?: MaxConnectedClusters | undefined;
  /**
   * Time after which the service backends and service exports of a cluster are withdrawn if its services cannot be
   * followed. They return when the cluster is reachable. Its nodes, IPs and identities stay. Default: nothing is
   * withdrawn.
   */
  readonly serviceTTLMs?: number | undefined;
  /** The format of the services to read. Default `auto`. */
  readonly serviceV2?: ServiceFormat | undefined;
  /**
   * If true, a cluster is followed only when its kvstore contains its configuration, which Cilium 1.13 and later write.
   * If false, a cluster that never had a configuration is followed, too, as one of an older version. With an empty
   * kvstore, its initial sync then ends without keys. Default false.
   */
  readonly needsConfig?: boolean | undefined;
}

/** Status of the mesh. */
export interface ClusterMeshStatus {
  /** True if every remote cluster is ready. */
  readonly ready: boolean;
  /** Remote clusters by name, ascending. */
  readonly clusters: readonly RemoteClusterStatus[];
}

/**
 * Follows the remote clusters of a mesh into the engines (SEMANTICS 6). `add` and `remove` change the set of clusters.
 * Faults of one cluster do not affect the others.
 */
export class ClusterMesh extends ClusterSet {
  readonly #options: ClusterMeshOptions & Runtime;
  /** Results of `identitiesFor`. Each is checked before use, because a cluster may change its id or be removed. */
  readonly #byID = new Map<number, FollowedCluster>();

  constructor(options: ClusterMeshOptions) {
    checkArgument('new ClusterMesh: options', options, OPTIONS);
    requireClusterID('new ClusterMesh: options.clusterID', options.clusterID, options.maxConnectedClusters);
    super(options);
    this.#options = withRuntime(options);
  }

  /** Returns the identities of a cluster; `undefined` if the cluster is unknown. */
  identitiesOf(name: string): IdentityCache | undefined {
    return this.clusters.get(name)?.identities;
  }

  /**
   * Returns the caches to search for identities of the cluster with this id: the cache of that cluster, or, if there is
   * none, those of all clusters without an id (older than 1.13, or not read yet). Costs a map lookup; if no cluster has
   * the id, a pass over all clusters.
   */
  identitiesFor(clusterID: number): readonly IdentityCache[] {
    const known = this.#byID.get(clusterID);
    if (known !== undefined && known.clusterID === clusterID) return [known.identities];
    const clusters = [...this.clusters.values()];
    const found = clusters.find((cluster) => cluster.clusterID === clusterID && clusterID !== 0);
    if (found === undefined) {
      this.#byID.delete(clusterID);
      return clusters.filter((cluster) => cluster.clusterID === 0).map(({ identities }) => identities);
    }
    this.#byID.set(clusterID, found);
    return [found.identities];
  }

  /**
   * Returns the kvstore key and revision of a name of a resource; `undefined` if the cluster is unknown or does not
   * have the name.
   */
  versionOf(cluster: string, resource: CopiedResource, name: string): KeyVersion | undefined {
    return this.clusters.get(cluster)?.versionOf(resource, name);
  }

  /** Returns the status of the mesh. Costs a few µs per cluster, independent of its size. */
  status(): ClusterMeshStatus {
    const clusters = this.statuses();
    return { ready: clusters.every(({ ready }) => ready), clusters };
  }

  /** @internal */
  protected override newCluster(name: string): FollowedCluster {
    const engines: MeshEngines = this.#options;
    const { clock, random, gate, valueLimits, onReject } = this.#options;
    const { serviceTTLMs, serviceV2, needsConfig = false, maxConnectedClusters = 255 } = this.#options;
    return new FollowedCluster({
      name,
      clock,
      random,
      serviceTTLMs,
      onReject,
      retries: this.retries,
      initial: { ...NEW_CLUSTER, needsConfig },
      gate,
      stores: (hooks) =>
        new ClusterStores({
          ...hooks,
          cluster: name,
          gate,
          valueLimits,
          serviceV2,
          writer: { source: 'clustermesh', owner: name },
          engines,
          limits: (config) => clusterLimits(config?.id ?? 0, maxConnectedClusters),
        }),
      objection: (config) => this.#objection(name, config),
      onChange: () => this.notify(name),
    });
  }

  /** Returns the reason why a cluster with this configuration cannot be part of the mesh. */
  #objection(name: string, config: ClusterConfig | undefined): string | undefined {
    if (config === undefined) return undefined;
    const { maxConnectedClusters: localMax = 255 } = this.#options;
    const { maxConnectedClusters: remoteMax = 255 } = config.capabilities;
    if (remoteMax !== localMax)
      return `cluster ${name} has maxConnectedClusters ${remoteMax}, but this cluster has ${localMax}`;
    if (config.id > localMax) return `cluster ${name} has id ${config.id}, but the maximum is ${localMax}`;
    return this.#conflict(name, config.id);
  }

  /**
   * Returns the reason why `name` may not have this id. Ids are exclusive, because identities would otherwise be
   * ambiguous.
   */
  #conflict(name: string, id: number): string | undefined {
    if (id === 0) return undefined;
    const { clusterID, clusterName } = this.#options;
    const remedy = 'give each cluster of the mesh another id';
    if (id === clusterID)
      return `cluster ${name} has id ${id}, the same as this cluster (${clusterName}); ${remedy}`;
    for (const other of this.clusters.values())
      if (other.name !== name && other.clusterID === id)
        return `cluster ${name} has id ${id}, the same as cluster ${other.name}; ${remedy}`;
    return undefined;
  }
}

const OPTIONS = optionsWith({
  ...MESH_ENGINES,
  clusterName: TEXT,
  clusterID: NUMBER,
  maxConnectedClusters: optional(oneOf(255, 511)),
  serviceTTLMs: optional(atLeast(0)),
  needsConfig: optional(BOOLEAN),
});
