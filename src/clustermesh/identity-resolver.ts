import type { Labels } from '../identity/labels.ts';
import {
  clusterIDOf,
  identityScope,
  isNumericIdentity,
  type MaxConnectedClusters,
  MINIMAL_ALLOCATED_IDENTITY,
  reservedIdentityName,
} from '../identity/numeric-identity.ts';
import type { ClusterMesh } from './cluster-mesh.ts';
import type { OwnCluster } from './own-cluster.ts';

/** Options of {@link IdentityResolver}. */
export interface IdentityResolverOptions {
  readonly own: Pick<OwnCluster, 'identities' | 'clusterID'>;
  /** The own cluster's id; 0 when it has none. Default: the one that its configuration in the kvstore says. */
  readonly clusterID?: number | undefined;
  readonly mesh: Pick<ClusterMesh, 'identitiesFor'>;
  /** As the mesh's: it decides which bits of a number name the cluster. Default 255. */
  readonly maxConnectedClusters?: MaxConnectedClusters | undefined;
}

/**
 * What the number of an identity stands for, over the own and all remote clusters. The number names its cluster: this is
 * a look-up there and no search, and what other clusters say of it does not count.
 */
export class IdentityResolver {
  readonly #options: IdentityResolverOptions;

  constructor(options: IdentityResolverOptions) {
    this.#options = options;
  }

  /**
   * The labels of an identity: `reserved:host` and the like for reserved ones. `undefined` for one that its cluster has
   * not allocated, or of which it is not known yet, and for those that only one node knows (CIDRs, remote nodes).
   */
  resolve(identity: number): Labels | undefined {
    if (!isNumericIdentity(identity) || identityScope(identity) !== 0) return undefined;
    if (identity < MINIMAL_ALLOCATED_IDENTITY) {
      const key = reservedIdentityName(identity);
      return key === undefined ? undefined : [{ source: 'reserved', key, value: '' }];
    }
    const { own, mesh, maxConnectedClusters } = this.#options;
    const { clusterID = own.clusterID } = this.#options;
    const cluster = clusterIDOf(identity, maxConnectedClusters);
    if (cluster === clusterID) return own.identities.lookupByID(identity);
    for (const identities of mesh.identitiesFor(cluster)) {
      const labels = identities.lookupByID(identity);
      if (labels !== undefined) return labels;
    }
    return undefined;
  }
}
