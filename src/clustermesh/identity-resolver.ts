import {
  checkArgument,
  FUNCTION,
  LIST,
  NUMBER,
  OBJECT,
  objectWith,
  oneOf,
  optional,
} from '../base/arguments.ts';
import type { ClusterIdentity, IdentityCache } from '../model/identity-cache.ts';
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

/** The identities of a checkpoint, such as those of `Restoration`. */
export interface RestoredIdentities {
  readonly clusters: readonly string[];
  identities(): Iterable<ClusterIdentity>;
  labelsOf(identity: number): Labels | undefined;
}

/** Options of {@link IdentityResolver}. */
export interface IdentityResolverOptions {
  /** Default: no identities of a local cluster. */
  readonly local?: Pick<LocalCluster, 'names' | 'identities' | 'clusterID'> | undefined;
  /** Id of the local cluster; 0 if it has none. Default: the id of its configuration in the kvstore. */
  readonly clusterID?: number | undefined;
  /** Default: no identities of remote clusters. */
  readonly mesh?: Pick<ClusterMesh, 'names' | 'identitiesOf' | 'identitiesFor'> | undefined;
  /** Identities of a checkpoint, used until the clusters deliver them. Default: none. */
  readonly restored?: RestoredIdentities | undefined;
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
   * identity is not allocated or not received yet, and for node-local identities (CIDRs, remote nodes) unless they are
   * restored.
   */
  resolve(identity: number): Labels | undefined {
    return this.#received(identity) ?? this.#options.restored?.labelsOf(identity);
  }

  /**
   * Yields all identities except reserved ones: of the local cluster, of the remote clusters, then the restored ones
   * that no cluster has. Pass them to `checkpointSections` and `whatIf`.
   */
  entries(): Generator<ClusterIdentity, void, void> {
    return withRestored(this.#receivedEntries(), this.#options.restored);
  }

  /** A text that changes with {@link IdentityResolver.entries}, and when a cluster joins or leaves. */
  get version(): string {
    const { restored } = this.#options;
    const changes = this.#caches().map(([cluster, { changes }]) => `${cluster} ${changes}`);
    return [...changes, ...(restored?.clusters ?? [])].join(' ');
  }

  /** Returns the identities of each cluster by its name, the local one first. */
  #caches(): readonly (readonly [cluster: string, identities: IdentityCache])[] {
    const { local, mesh } = this.#options;
    return [
      ...(local?.names.map((name) => [name, local.identities] as const) ?? []),
      ...(mesh?.names.flatMap((name) => {
        const identities = mesh.identitiesOf(name);
        return identities === undefined ? [] : [[name, identities] as const];
      }) ?? []),
    ];
  }

  *#receivedEntries(): Generator<ClusterIdentity, void, void> {
    for (const [cluster, identities] of this.#caches())
      for (const [identity, labels] of identities.entries()) yield { cluster, identity, labels };
  }

  #received(identity: number): Labels | undefined {
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

/** Yields `received`, then the restored identities with other numbers. */
export function* withRestored(
  received: Iterable<ClusterIdentity>,
  restored: RestoredIdentities | undefined,
): Generator<ClusterIdentity, void, void> {
  // Without restored state, no set is needed, which takes 20 MB for 1,000,000 identities.
  if (restored === undefined || restored.clusters.length === 0) {
    yield* received;
    return;
  }
  const numbers = new Set<number>();
  for (const known of received) {
    numbers.add(known.identity);
    yield known;
  }
  for (const known of restored.identities()) if (!numbers.has(known.identity)) yield known;
}

const OPTIONS = objectWith({
  local: optional(objectWith({ names: LIST, identities: OBJECT })),
  clusterID: optional(NUMBER),
  mesh: optional(objectWith({ names: LIST, identitiesOf: FUNCTION, identitiesFor: FUNCTION })),
  restored: optional(objectWith({ clusters: LIST, identities: FUNCTION, labelsOf: FUNCTION })),
  maxConnectedClusters: optional(oneOf(255, 511)),
});
