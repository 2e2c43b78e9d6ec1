import { checkArgument, FUNCTION, NUMBER, OBJECT, objectWith, oneOf, optional } from '../base/arguments.ts';
import type { Labels } from '../model/labels.ts';
import {
  clusterIDOf,
  identityScope,
  isNumericIdentity,
  type MaxConnectedClusters,
  MINIMAL_ALLOCATED_IDENTITY,
  reservedIdentityName,
} from '../model/numeric-identity.ts';
import type { ClusterMesh } from './cluster-mesh.ts';
import type { LocalCluster } from './local-cluster.ts';

/** Options of {@link IdentityResolver}. */
export interface IdentityResolverOptions {
  /** Default: no identities of a local cluster. */
  readonly local?: Pick<LocalCluster, 'identities' | 'clusterID'> | undefined;
  /** Id of the local cluster; 0 if it has none. Default: the id of its configuration in the kvstore. */
  readonly clusterID?: number | undefined;
  /** Default: no identities of remote clusters. */
  readonly mesh?: Pick<ClusterMesh, 'identitiesFor'> | undefined;
  /**
   * Maximum number of clusters in the mesh. It determines which bits of an identity are the cluster id. Default 255.
   */
  readonly maxConnectedClusters?: MaxConnectedClusters | undefined;
}

/**
 * Resolves identities of the local and all remote clusters to labels. An identity contains the id of its cluster, so
 * only that cluster is searched. If no cluster has the id, all remote clusters without an id are searched.
 */
export class IdentityResolver {
  readonly #options: IdentityResolverOptions;

  constructor(options: IdentityResolverOptions) {
    checkArgument('new IdentityResolver: options', options, OPTIONS);
    this.#options = options;
  }

  /**
   * Returns the labels of an identity; labels such as `reserved:host` if it is reserved. Returns `undefined` if the
   * identity is not allocated or not received yet, and for node-local identities (CIDRs, remote nodes).
   */
  resolve(identity: number): Labels | undefined {
    if (!isNumericIdentity(identity) || identityScope(identity) !== 0) return undefined;
    if (identity < MINIMAL_ALLOCATED_IDENTITY) {
      const key = reservedIdentityName(identity);
      return key === undefined ? undefined : [{ source: 'reserved', key, value: '' }];
    }
    const { local, mesh, maxConnectedClusters } = this.#options;
    const { clusterID = local?.clusterID } = this.#options;
    const cluster = clusterIDOf(identity, maxConnectedClusters);
    if (local !== undefined && cluster === clusterID) return local.identities.lookupByID(identity);
    for (const identities of mesh?.identitiesFor(cluster) ?? []) {
      const labels = identities.lookupByID(identity);
      if (labels !== undefined) return labels;
    }
    return undefined;
  }
}

const OPTIONS = objectWith({
  local: optional(objectWith({ identities: OBJECT })),
  clusterID: optional(NUMBER),
  mesh: optional(objectWith({ identitiesFor: FUNCTION })),
  maxConnectedClusters: optional(oneOf(255, 511)),
});
