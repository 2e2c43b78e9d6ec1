import type { ClusterMetrics } from '../api/read-model.ts';
import type {
  ClusterDetailDocument,
  ClusterDocument,
  ReadProgress,
  StatusDocument,
  StoreDocument,
} from '../api/status-document.ts';
import { quantileBound } from '../base/latency-histogram.ts';
import type { RejectionStatus } from '../base/rejection.ts';
import type { ClusterCondition } from '../client/cluster-text.ts';
import type { ClusterMesh } from '../clustermesh/cluster-mesh.ts';
import type { RemoteClusterStatus } from '../clustermesh/cluster-status.ts';
import type { IdentityResolver } from '../clustermesh/identity-resolver.ts';
import type { LocalCluster, LocalClusterStatus } from '../clustermesh/local-cluster.ts';
import type { ClusterConfig } from '../kvstore/codec/cluster-config.ts';
import { COPIED_RESOURCES, type CopiedResource, MESH_RESOURCES } from '../kvstore/codec/keys.ts';
import type { WatchStatus } from '../kvstore/session/backend.ts';
import type { WatchStoreStatus } from '../kvstore/stores/watch-store.ts';
import type { AgentEngines } from './agent.ts';
import type { AgentOptions } from './options.ts';

export interface FollowedClusters {
  readonly local: LocalCluster;
  readonly localID: number;
  readonly mesh: ClusterMesh;
  readonly identities: IdentityResolver;
}

/** The status of a local or a remote cluster. */
type FollowedStatus = LocalClusterStatus & Partial<Pick<RemoteClusterStatus, 'servicesExpired'>>;

/** Input of {@link agentStatus}. Its fields of the document are returned unchanged. */
export interface StatusParts
  extends Pick<
    StatusDocument,
    'steps' | 'syncedMs' | 'configProblems' | 'kubernetes' | 'checkpoint' | 'datapath' | 'history' | 'tape'
  > {
  readonly options: AgentOptions;
  readonly engines: AgentEngines;
  readonly followed: FollowedClusters | undefined;
  readonly rejected: RejectionStatus;
}

/** Returns a wall time as ISO 8601; `undefined` if there is none. */
export function isoTime(at: number | undefined): string | undefined {
  return at === undefined ? undefined : new Date(at).toISOString();
}

function progressOf(watches: readonly WatchStatus[]): ReadProgress {
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
    ...progressOf(watch === undefined ? [] : [watch]),
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

function clusterDocument(
  cluster: FollowedStatus,
  { local, localID }: Pick<FollowedClusters, 'local' | 'localID'>,
): ClusterDocument {
  const { name, failures, resources } = cluster;
  const counts = Object.entries(resources).map(([resource, { keys }]) => [resource, keys] as const);
  const isLocal = local.names.includes(name);
  return {
    name,
    local: isLocal,
    id: isLocal ? localID : (cluster.config?.id ?? 0),
    ...clusterCondition(cluster),
    failures,
    rejected: cluster.rejections.total,
    connectedSince: new Date(cluster.connectedSince).toISOString(),
    servicesExpired: cluster.servicesExpired,
    heartbeat: cluster.heartbeat,
    lastFailureAt: isoTime(cluster.lastFailure?.at),
    keys: Object.fromEntries(counts),
    ...progressOf(watchesOf(cluster)),
  };
}

export function clusterStatus(followed: FollowedClusters, name: string): ClusterDocument | undefined {
  const status = followedStatus(followed, name);
  return status && clusterDocument(status, followed);
}

/** Returns the status of a followed cluster and of its stores; `undefined` if the name is unknown. */
export function clusterDetail(followed: FollowedClusters, name: string): ClusterDetailDocument | undefined {
  const status = followedStatus(followed, name);
  if (status === undefined) return undefined;
  const { config, resources } = status;
  const stores = COPIED_RESOURCES.flatMap((resource) => {
    const store = resources[resource];
    return store === undefined ? [] : [storeDocument(resource, store)];
  });
  return { ...clusterDocument(status, followed), stores, ...(config && { config: configDocument(config) }) };
}

function followedStatus(
  { local, mesh }: Pick<FollowedClusters, 'local' | 'mesh'>,
  name: string,
): FollowedStatus | undefined {
  return local.names.includes(name) ? local.status() : mesh.statusOf(name);
}

export function clusterStatuses(followed: FollowedClusters): readonly ClusterDocument[] {
  const names = [...followed.local.names, ...followed.mesh.names];
  return names.flatMap((name) => clusterStatus(followed, name) ?? []);
}

/** Yields the metrics of all followed clusters. */
export function* clusterMetrics({
  local,
  mesh,
}: Pick<FollowedClusters, 'local' | 'mesh'>): Generator<ClusterMetrics, void, void> {
  for (const name of [...local.names, ...mesh.names]) {
    const status = followedStatus({ local, mesh }, name);
    if (status === undefined) continue;
    const { firstSyncMs, lastSyncMs, kvstore } = status;
    yield { name, firstSyncMs, lastSyncMs, kvstore, watches: watchesOf(status) };
  }
}

/** Returns the status. Costs one pass over services and nodes. */
export function agentStatus({
  options,
  engines,
  followed,
  rejected,
  steps,
  syncedMs,
  configProblems,
  ...parts
}: StatusParts): StatusDocument {
  const ipcache = engines.ipcache.status();
  const nodes = engines.nodes.status();
  const { announced, backends, contested, unknown, listenerFaults } = engines.services.status();
  return {
    cluster: options.clusterName,
    clusterID: followed?.localID ?? 0,
    kvstore: options.kvstore,
    steps,
    syncedMs,
    clusters: followed === undefined ? [] : clusterStatuses(followed),
    configProblems,
    ...parts,
    ipcache: {
      prefixes: ipcache.entries - ipcache.shadowed,
      shadowed: ipcache.shadowed,
      overruled: ipcache.overruledClaims,
      revision: ipcache.revision,
      listenerFaults: ipcache.listenerFaults,
    },
    nodes: { nodes: nodes.nodes, overruled: nodes.overruledClaims, heldBack: nodes.heldBack },
    services: { announced, backends, contested, unknown, listenerFaults },
    rejected: {
      total: rejected.total,
      byReason: rejected.byReason,
      recent: rejected.recent.map(({ message }) => message),
    },
  };
}
