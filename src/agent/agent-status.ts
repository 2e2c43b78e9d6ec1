import type { RejectionStatus } from '../base/rejection.ts';
import type { ClusterMesh } from '../clustermesh/cluster-mesh.ts';
import type { ResourceStatuses } from '../clustermesh/cluster-stores.ts';
import type { ConfigFollowerStatus } from '../clustermesh/config-follower.ts';
import type { OwnCluster } from '../clustermesh/own-cluster.ts';
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
}

/** One cluster of the mesh, as plain data. */
export interface ClusterStatus {
  readonly name: string;
  readonly own: boolean;
  /** 0 when it has none, or is not known yet. */
  readonly id: number;
  readonly state: string;
  /** Whether everything of it has been complete once. */
  readonly ready: boolean;
  /** Keys that are held, by resource; a resource that is not followed is left out. */
  readonly keys: Readonly<Partial<Record<MeshResource, number>>>;
  /** Resources that have not been complete yet. */
  readonly missing: readonly MeshResource[];
  /** Values rejected since the cluster joined. */
  readonly rejected: number;
  /** Whether its kvstore answers now. */
  readonly connected: boolean;
  readonly failures: number;
  readonly lastFailure: string | undefined;
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
  /** What is wrong in the folder of `--clustermesh-config`, a sentence for each file. */
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

/** What a status is made of. */
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
  readonly folder?: ConfigFollowerStatus | undefined;
}

function heldKeys(resources: ResourceStatuses): ClusterStatus['keys'] {
  return Object.fromEntries(Object.entries(resources).map(([resource, { keys }]) => [resource, keys]));
}

function missingOf(resources: ResourceStatuses): readonly MeshResource[] {
  return MESH_RESOURCES.filter((resource) => resources[resource]?.synced === false);
}

function isWatching(resources: ResourceStatuses): boolean {
  return Object.values(resources).some(({ watch }) => watch?.state === 'watching');
}

/** What the watches of a cluster that is followed, and out of reach now, have failed at. */
function watchFailure(resources: ResourceStatuses): string | undefined {
  if (isWatching(resources)) return undefined;
  return Object.values(resources)
    .map(({ watch }) => watch?.lastFailure?.message)
    .find(Boolean);
}

/** Every cluster that is followed, the own one first. */
export function clusterStatuses({ own, ownID, mesh }: Followed): readonly ClusterStatus[] {
  const { name, ready, resources, rejections } = own.status();
  const state = ready ? 'ready' : 'watching';
  const first: ClusterStatus = {
    ...{ name, own: true, id: ownID, state, ready, keys: heldKeys(resources), missing: missingOf(resources) },
    ...{ rejected: rejections.total, connected: isWatching(resources), failures: 0 },
    lastFailure: watchFailure(resources),
  };
  const others = mesh.status().clusters.map(
    ({ config, resources, rejections, name, state, ready, ...how }): ClusterStatus => ({
      ...{ name, own: false, id: config?.id ?? 0, state, ready, connected: how.connected },
      ...{ failures: how.failures, lastFailure: watchFailure(resources) ?? how.lastFailure },
      ...{ keys: heldKeys(resources), missing: missingOf(resources), rejected: rejections.total },
    }),
  );
  return [first, ...others];
}

/** What is not complete, a sentence for each cluster. */
export function missingClusters(clusters: readonly ClusterStatus[]): readonly string[] {
  return clusters
    .filter(({ ready }) => !ready)
    .map(({ name, missing, lastFailure }) => {
      const why = lastFailure === undefined ? '' : `: ${lastFailure}`;
      return `cluster ${name} is not complete, ${missing.join(', ')} missing${why}`;
    });
}

/** Collects the status. Cost: one pass over services and nodes. */
export function agentStatus({
  options,
  engines,
  followed,
  rejected,
  syncedMs,
  folder,
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
    configProblems: Object.entries(folder?.problems ?? {}).map(
      ([name, why]) => `${name || 'the folder'}: ${why}`,
    ),
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
