import type { Ask } from '../api/api-client.ts';
import type { ClusterDocument, StatusDocument } from '../api/status-document.ts';

/** The fields of a cluster or API server that show whether it has a problem. */
export interface ClusterCondition
  extends Pick<
    ClusterDocument,
    'state' | 'ready' | 'connected' | 'knownAt' | 'servicesExpired' | 'lastFailure'
  > {
  /** Incomplete resources or kinds. */
  readonly missing: readonly string[];
}

/** Returns the state of a cluster in words: `unreachable, serving the state of 2026-11-20T12:00:00.000Z`. */
export function clusterStateText(cluster: ClusterCondition): string {
  const { state, ready, connected, knownAt, servicesExpired, missing } = cluster;
  if (ready) return 'connected, complete';
  const disconnected = knownAt === undefined ? 'not connected' : 'unreachable';
  const connection = connected ? 'connected' : disconnected;
  const text = state === 'no-configuration' ? 'no configuration in the kvstore' : connection;
  const lacks = missing.length === 0 ? '' : `, ${missing.join(', ')} missing`;
  const without = servicesExpired === true ? ' without services' : '';
  return `${text}${knownAt === undefined ? '' : `, serving the state of ${knownAt}${without}`}${lacks}`;
}

/** Returns {@link clusterStateText} followed by the last failure, if any. */
export function problemText(cluster: ClusterCondition): string {
  const reason = cluster.lastFailure === undefined ? '' : `: ${cluster.lastFailure}`;
  return `${clusterStateText(cluster)}${reason}`;
}

/** Returns one sentence for each cluster that is not ready. */
export function incompleteClusterTexts(clusters: readonly ClusterDocument[]): readonly string[] {
  return clusters
    .filter(({ ready }) => !ready)
    .map((cluster) => `cluster ${cluster.name} is incomplete: ${problemText(cluster)}`);
}

/** Maximum number of names of clusters in one sentence. */
const MAX_NAMED = 3;

/** Returns one sentence for all clusters that are not ready; undefined if at most {@link MAX_NAMED} are not. */
export function manyIncompleteText(clusters: readonly ClusterDocument[]): string | undefined {
  const missing = clusters.filter(({ ready }) => !ready);
  const [first] = missing;
  if (first === undefined || missing.length <= MAX_NAMED) return undefined;
  const named = missing.slice(0, MAX_NAMED).map(({ name }) => name);
  const others = missing.length - MAX_NAMED;
  return `${missing.length} of ${clusters.length} clusters are incomplete: ${named.join(', ')} and ${others} more; ${first.name}: ${problemText(first)}; see "dpcache clustermesh status"`;
}

/**
 * Returns the sentences about clusters that are not ready: one for each, or one for all if they are many. Considers
 * only clusters for which `isMeant` returns true.
 */
export async function incompleteTexts(
  ask: Ask,
  isMeant: (cluster: ClusterDocument) => boolean = () => true,
): Promise<readonly string[]> {
  const { clusters } = (await ask('/v1/status')) as StatusDocument;
  const meant = clusters.filter(isMeant);
  const text = manyIncompleteText(meant);
  return text === undefined ? incompleteClusterTexts(meant) : [text];
}
