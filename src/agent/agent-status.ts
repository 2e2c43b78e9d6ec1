import type { DatapathDocument } from '../api/datapath-document.ts';
import type { ClusterMetrics } from '../api/read-model.ts';
import type {
  CheckpointDocument,
  ClusterDocument,
  HistoryStatusDocument,
  KubernetesDocument,
  StatusDocument,
  StepDocument,
} from '../api/status-document.ts';
import type { RejectionStatus } from '../base/rejection.ts';
import type { ClusterMesh } from '../clustermesh/cluster-mesh.ts';
import type { IdentityResolver } from '../clustermesh/identity-resolver.ts';
import type { OwnCluster, OwnClusterStatus } from '../clustermesh/own-cluster.ts';
import type { IPCache } from '../ipcache/ipcache.ts';
import { MESH_RESOURCES } from '../kvstore/codec/keys.ts';
import type { NodeManager } from '../nodemanager/node-manager.ts';
import type { ServiceCache } from '../servicecache/service-cache.ts';
import type { AgentOptions } from './options.ts';

/** The clusters that an agent follows. */
export interface Followed {
  readonly own: OwnCluster;
  readonly ownID: number;
  readonly mesh: ClusterMesh;
  readonly identities: IdentityResolver;
}

/** Input of {@link agentStatus}. */
export interface StatusParts {
  readonly options: AgentOptions;
  readonly engines: {
    readonly ipcache: IPCache;
    readonly nodes: NodeManager;
    readonly services: ServiceCache;
  };
  readonly followed: Followed | undefined;
  readonly rejected: RejectionStatus;
  readonly steps: readonly StepDocument[];
  readonly syncedMs: number | undefined;
  readonly configProblems: readonly string[];
  readonly checkpoint: CheckpointDocument | undefined;
  readonly datapath: DatapathDocument | undefined;
  readonly history: HistoryStatusDocument | undefined;
  readonly kubernetes: KubernetesDocument | undefined;
}

/** Returns a wall time as ISO 8601; `undefined` if there is none. */
export function isoTime(at: number | undefined): string | undefined {
  return at === undefined ? undefined : new Date(at).toISOString();
}

function statusOfCluster(cluster: OwnClusterStatus, own: boolean, id: number): ClusterDocument {
  const { name, state, ready, connected, failures, lastFailure, resources } = cluster;
  const counts = Object.entries(resources).map(([resource, { keys }]) => [resource, keys] as const);
  return {
    name,
    own,
    id,
    state,
    ready,
    connected,
    failures,
    lastFailure,
    rejected: cluster.rejections.total,
    knownAt: isoTime(cluster.knownAt),
    connectedSince: new Date(cluster.connectedSince).toISOString(),
    lastFailureAt: isoTime(cluster.lastFailureAt),
    keys: Object.fromEntries(counts),
    missing: MESH_RESOURCES.filter((resource) => resources[resource]?.synced === false),
  };
}

/** Returns the status of a followed cluster; `undefined` if the name is unknown. */
export function clusterStatus({ own, ownID, mesh }: Followed, name: string): ClusterDocument | undefined {
  if (own.names.includes(name)) return statusOfCluster(own.status(), true, ownID);
  const status = mesh.statusOf(name);
  return status && statusOfCluster(status, false, status.config?.id ?? 0);
}

/** Returns the status of all followed clusters, the own one first. */
export function clusterStatuses(followed: Followed): readonly ClusterDocument[] {
  const names = [...followed.own.names, ...followed.mesh.names];
  return names.flatMap((name) => clusterStatus(followed, name) ?? []);
}

/** Yields the metrics of all followed clusters. */
export function* clusterMetrics({
  own,
  mesh,
}: Pick<Followed, 'own' | 'mesh'>): Generator<ClusterMetrics, void, void> {
  const statuses = [
    ...(own.names.length > 0 ? [own.status()] : []),
    ...mesh.names.map((name) => mesh.statusOf(name)),
  ];
  for (const status of statuses) {
    if (status === undefined) continue;
    const { name, firstSyncMs, lastSyncMs, kvstore, resources } = status;
    const watches = Object.values(resources).flatMap(({ watch }) => watch ?? []);
    yield { name, firstSyncMs, lastSyncMs, kvstore, watches };
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
  checkpoint,
  datapath,
  history,
  kubernetes,
}: StatusParts): StatusDocument {
  const ipcache = engines.ipcache.status();
  const nodes = engines.nodes.status();
  const { announced, backends, contested, unknown, listenerFaults } = engines.services.status();
  return {
    cluster: options.clusterName,
    clusterID: followed?.ownID ?? 0,
    kvstore: options.kvstore,
    steps,
    syncedMs,
    clusters: followed === undefined ? [] : clusterStatuses(followed),
    configProblems,
    ...(kubernetes && { kubernetes }),
    ...(checkpoint && { checkpoint }),
    ...(datapath && { datapath }),
    ...(history && { history }),
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
