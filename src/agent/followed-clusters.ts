import type { ClusterMetrics } from '../api/read-model.ts';
import type {
  ClusterDetailDocument,
  ClusterDocument,
  ReadProgress,
  StoreDocument,
} from '../api/status-document.ts';
import { quantileBound } from '../base/latency-histogram.ts';
import { type Unsubscribe, unsubscribeOnce } from '../base/subscription.ts';
import { isoTime } from '../base/system-clock.ts';
import type { ClusterCondition } from '../client/cluster-text.ts';
import type { ClusterMesh } from '../clustermesh/cluster-mesh.ts';
import type { OnClusterChange, RemoteClusterStatus } from '../clustermesh/cluster-status.ts';
import type { IdentityResolver } from '../clustermesh/identity-resolver.ts';
import type { LocalCluster, LocalClusterStatus } from '../clustermesh/local-cluster.ts';
import type { KeyVersion } from '../clustermesh/resource-stores.ts';
import type { SyncProgress } from '../clustermesh/sync-deadline.ts';
import type { ClusterConfig } from '../kvstore/codec/cluster-config.ts';
import { COPIED_RESOURCES, type CopiedResource, MESH_RESOURCES } from '../kvstore/codec/keys.ts';
import type { WatchStatus } from '../kvstore/session/backend.ts';
import type { WatchStoreStatus } from '../kvstore/stores/watch-store.ts';
import type { IdentityCache } from '../model/identity-cache.ts';

/** The status of a local or a remote cluster. */
type FollowedStatus = LocalClusterStatus & Partial<Pick<RemoteClusterStatus, 'servicesExpired'>>;

/** The local cluster and the remote clusters of an agent. Methods return undefined for an unknown cluster. */
export class FollowedClusters {
  readonly local: LocalCluster;
  readonly localID: number;
  readonly mesh: ClusterMesh;
  readonly identities: IdentityResolver;

  constructor(local: LocalCluster, localID: number, mesh: ClusterMesh, identities: IdentityResolver) {
    this.local = local;
    this.localID = localID;
    this.mesh = mesh;
    this.identities = identities;
  }

  /** Names of the clusters, the local one first. */
  get names(): readonly string[] {
    return [...this.local.names, ...this.mesh.names];
  }

  isLocal(name: string): boolean {
    return this.local.names.includes(name);
  }

  progressOf(name: string): SyncProgress | undefined {
    return this.isLocal(name) ? this.local.progressOf(name) : this.mesh.progressOf(name);
  }

  /** Returns the kvstore key of an object of a cluster and its revision. */
  versionOf(cluster: string, resource: CopiedResource, name: string): KeyVersion | undefined {
    return this.isLocal(cluster)
      ? this.local.versionOf(resource, name)
      : this.mesh.versionOf(cluster, resource, name);
  }

  identitiesOf(name: string): IdentityCache | undefined {
    return this.isLocal(name) ? this.local.identities : this.mesh.identitiesOf(name);
  }

  /** Returns the cluster whose kvstore contains an identity. */
  clusterOf(identity: number): string | undefined {
    return this.names.find((name) => this.identitiesOf(name)?.lookupByID(identity) !== undefined);
  }

  /** Calls back when a cluster joins or leaves the mesh, or its status changes. */
  onChange(callback: OnClusterChange): Unsubscribe {
    const subscriptions = [this.local.onChange(callback), this.mesh.onChange(callback)];
    return unsubscribeOnce(() => {
      for (const unsubscribe of subscriptions) unsubscribe();
    });
  }

  statusOf(name: string): ClusterDocument | undefined {
    const status = this.#statusOf(name);
    return status && clusterDocument(status, this.#localIDOf(name));
  }

  statuses(): readonly ClusterDocument[] {
    return this.names.flatMap((name) => this.statusOf(name) ?? []);
  }

  /** Returns the status of a cluster and of its stores. */
  detailOf(name: string): ClusterDetailDocument | undefined {
    const status = this.#statusOf(name);
    if (status === undefined) return undefined;
    const { config, resources } = status;
    const stores = COPIED_RESOURCES.flatMap((resource) => {
      const store = resources[resource];
      return store === undefined ? [] : [storeDocument(resource, store)];
    });
    return {
      ...clusterDocument(status, this.#localIDOf(name)),
      stores,
      ...(config && { config: configDocument(config) }),
    };
  }

  /** Yields the metrics of all clusters. */
  *metrics(): Generator<ClusterMetrics, void, void> {
    for (const name of this.names) {
      const status = this.#statusOf(name);
      if (status === undefined) continue;
      const { firstSyncMs, lastSyncMs, kvstore } = status;
      yield { name, firstSyncMs, lastSyncMs, kvstore, watches: watchesOf(status) };
    }
  }

  #statusOf(name: string): FollowedStatus | undefined {
    return this.isLocal(name) ? this.local.status() : this.mesh.statusOf(name);
  }

  /** Returns the local id if the cluster is the local one. */
  #localIDOf(name: string): number | undefined {
    return this.isLocal(name) ? this.localID : undefined;
  }
}

/** Returns the status of a cluster as plain data. `localID`: the local id; undefined for a remote cluster. */
export function clusterDocument(cluster: FollowedStatus, localID?: number): ClusterDocument {
  const { name, failures, resources } = cluster;
  const counts = Object.entries(resources).map(([resource, { keys }]) => [resource, keys] as const);
  return {
    name,
    local: localID !== undefined,
    id: localID ?? cluster.config?.id ?? cluster.refusedID ?? 0,
    ...clusterCondition(cluster),
    failures,
    rejected: cluster.rejections.total,
    connectionChangedAt: isoTime(cluster.connectionChangedAt),
    servicesExpired: cluster.servicesExpired,
    heartbeat: cluster.heartbeat,
    lastFailureAt: isoTime(cluster.lastFailure?.at),
    keys: Object.fromEntries(counts),
    ...readProgress(watchesOf(cluster)),
  };
}

/** Returns how far the watches have read. */
function readProgress(watches: readonly WatchStatus[]): ReadProgress {
  if (watches.length === 0) return {};
  const revision = Math.max(...watches.map(({ nextRevision }) => nextRevision)) - 1;
  return {
    ...(revision > 0 && { revision }),
    queuedBytes: watches.reduce((sum, watch) => sum + watch.queuedBytes, 0),
    p99Ms: quantileBound(
      watches.map(({ delays }) => delays),
      0.99,
    ),
  };
}

function storeDocument(
  resource: CopiedResource,
  { watch, synced, keys, rejected }: WatchStoreStatus,
): StoreDocument {
  return {
    resource,
    state: watch?.state ?? 'stopped',
    complete: synced,
    keys,
    rejected,
    lists: watch?.listings ?? 0,
    failures: watch?.failures ?? 0,
    lastFailure: watch?.lastFailure?.message,
    lastFailureAt: isoTime(watch?.lastFailure?.at),
    ...readProgress(watch === undefined ? [] : [watch]),
  };
}

function configDocument({ id, capabilities }: ClusterConfig): ClusterDetailDocument['config'] {
  const { others, ...known } = capabilities;
  return { id, capabilities: { ...known, ...others } };
}

function watchesOf({ resources }: Pick<FollowedStatus, 'resources'>): readonly WatchStatus[] {
  return Object.values(resources).flatMap(({ watch }) => watch ?? []);
}

/** Returns the fields of a cluster which show if it has a problem. */
export function clusterCondition({
  state,
  ready,
  connected,
  knownAt,
  resources,
  lastFailure,
}: FollowedStatus): ClusterCondition & Pick<ClusterDocument, 'missing'> {
  const missing = MESH_RESOURCES.filter((resource) => resources[resource]?.synced === false);
  return { state, ready, connected, knownAt: isoTime(knownAt), missing, lastFailure: lastFailure?.message };
}
