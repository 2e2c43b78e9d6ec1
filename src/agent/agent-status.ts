import type { StatusDocument } from '../api/status-document.ts';
import type { RejectionReportStatus } from '../process/rejection-report.ts';
import type { AgentEngines } from './agent.ts';
import type { FollowedClusters } from './followed-clusters.ts';
import type { AgentOptions } from './options.ts';

/** Input of {@link agentStatus}. The fields of `StatusDocument` are returned unchanged. */
export interface StatusParts
  extends Pick<
    StatusDocument,
    'steps' | 'syncedMs' | 'configProblems' | 'kubernetes' | 'checkpoint' | 'datapath' | 'history' | 'tape'
  > {
  readonly options: AgentOptions;
  readonly engines: AgentEngines;
  readonly followed: FollowedClusters | undefined;
  readonly rejected: RejectionReportStatus;
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
    clusters: followed?.statuses() ?? [],
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
      lastAt: rejected.lastAt,
    },
  };
}
