import type { RejectionStatus } from '../base/rejection.ts';
import type { ClusterMesh } from '../clustermesh/cluster-mesh.ts';
import type { IdentityResolver } from '../clustermesh/identity-resolver.ts';
import type { OwnCluster, OwnClusterStatus } from '../clustermesh/own-cluster.ts';
import type { IPCache } from '../ipcache/ipcache.ts';
import { MESH_RESOURCES, type MeshResource } from '../kvstore/codec/keys.ts';
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

/** One cluster of the mesh, as plain data. */
export interface ClusterStatus {
  readonly name: string;
  readonly own: boolean;
  /** 0 when it has none, or is not known yet. */
  readonly id: number;
  readonly state: string;
  /** Whether what is known of it is complete and follows its kvstore now. */
  readonly ready: boolean;
  /** While it is not, but was before: when that was, ISO 8601. What was known then is served. */
  readonly knownAt: string | undefined;
  /** Keys that are held, by resource; a resource that is not followed is left out. */
  readonly keys: Readonly<Partial<Record<MeshResource, number>>>;
  /** Resources that have not been complete yet. */
  readonly missing: readonly MeshResource[];
  /** Values rejected since the cluster joined. */
  readonly rejected: number;
  /** Whether its kvstore answers now. */
  readonly connected: boolean;
  /** Since when `connected` is what it is, ISO 8601. */
  readonly connectedSince: string;
  readonly failures: number;
  /** It may have been overcome since. */
  readonly lastFailure: string | undefined;
  readonly lastFailureAt: string | undefined;
}

/** How an agent stands, as plain data: fit for JSON. */
export interface AgentStatus {
  readonly cluster: string;
  readonly clusterID: number;
  readonly kvstore: string;
  /** How long the first sync took; undefined while it lasts. */
  readonly syncedMs: number | undefined;
  /** The own cluster first, the others by name. */
  readonly clusters: readonly ClusterStatus[];
  /** What is wrong with the files of `--kvstore-config` and `--clustermesh-config` now, a sentence for each. */
  readonly configProblems: readonly string[];
  readonly ipcache: {
    readonly prefixes: number;
    readonly shadowed: number;
    readonly overruled: number;
    readonly revision: number;
    readonly listenerFaults: number;
  };
  readonly nodes: {
    readonly nodes: number;
    readonly overruled: number;
    readonly heldBack: readonly string[];
  };
  readonly services: {
    readonly announced: number;
    readonly backends: number;
    readonly contested: number;
    readonly unknown: number;
    readonly listenerFaults: number;
  };
  readonly rejected: {
    readonly total: number;
    readonly byReason: Readonly<Record<string, number>>;
    /** The last ones, oldest first. */
    readonly recent: readonly string[];
  };
}

/** What {@link agentStatus} reads. */
export interface StatusParts {
  readonly options: AgentOptions;
  readonly engines: {
    readonly ipcache: IPCache;
    readonly nodes: NodeManager;
    readonly services: ServiceCache;
  };
  readonly followed: Followed | undefined;
  readonly rejected: RejectionStatus;
  readonly syncedMs: number | undefined;
  readonly configProblems: readonly string[];
}

function isoTime(at: number | undefined): string | undefined {
  return at === undefined ? undefined : new Date(at).toISOString();
}

function statusOfCluster(cluster: OwnClusterStatus, own: boolean, id: number): ClusterStatus {
  const { name, state, ready, connected, failures, lastFailure, resources } = cluster;
  const held = Object.entries(resources).map(([resource, { keys }]) => [resource, keys] as const);
  return {
    ...{ name, own, id, state, ready, connected, failures, lastFailure },
    rejected: cluster.rejections.total,
    knownAt: isoTime(cluster.knownAt),
    connectedSince: new Date(cluster.connectedSince).toISOString(),
    lastFailureAt: isoTime(cluster.lastFailureAt),
    keys: Object.fromEntries(held),
    missing: MESH_RESOURCES.filter((resource) => resources[resource]?.synced === false),
  };
}

/** A cluster that is followed, by its name. */
export function clusterStatus({ own, ownID, mesh }: Followed, name: string): ClusterStatus | undefined {
  if (own.names.includes(name)) return statusOfCluster(own.status(), true, ownID);
  const status = mesh.statusOf(name);
  return status && statusOfCluster(status, false, status.config?.id ?? 0);
}

/** Every cluster that is followed, the own one first. */
export function clusterStatuses(followed: Followed): readonly ClusterStatus[] {
  const names = [...followed.own.names, ...followed.mesh.names];
  return names.flatMap((name) => clusterStatus(followed, name) ?? []);
}

/** How a cluster stands, for people: `unreachable, serving what was known at 2026-11-20T12:00:00.000Z`. */
export function standingText({ state, ready, connected, knownAt, missing }: ClusterStatus): string {
  if (ready) return 'connected, complete';
  const reached = knownAt === undefined ? 'not connected' : 'unreachable';
  const how =
    state === 'no-configuration' ? 'no configuration in its kvstore' : connected ? 'connected' : reached;
  const lacks = missing.length === 0 ? '' : `, ${missing.join(', ')} missing`;
  return `${how}${knownAt === undefined ? '' : `, serving what was known at ${knownAt}`}${lacks}`;
}

/** The same with the latest failure. */
export function troubleText(cluster: ClusterStatus): string {
  const why = cluster.lastFailure === undefined ? '' : `: ${cluster.lastFailure}`;
  return `${standingText(cluster)}${why}`;
}

/** What is not complete, a sentence for each cluster. */
export function missingClusters(clusters: readonly ClusterStatus[]): readonly string[] {
  return clusters
    .filter(({ ready }) => !ready)
    .map((cluster) => `cluster ${cluster.name} is not complete, ${troubleText(cluster)}`);
}

/** Collects the status. Cost: one pass over services and nodes. */
export function agentStatus({
  options,
  engines,
  followed,
  rejected,
  syncedMs,
  configProblems,
}: StatusParts): AgentStatus {
  const ipcache = engines.ipcache.status();
  const nodes = engines.nodes.status();
  const { announced, backends, contested, unknown, listenerFaults } = engines.services.status();
  return {
    cluster: options.clusterName,
    clusterID: followed?.ownID ?? 0,
    kvstore: options.kvstore,
    syncedMs,
    clusters: followed === undefined ? [] : clusterStatuses(followed),
    configProblems,
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
