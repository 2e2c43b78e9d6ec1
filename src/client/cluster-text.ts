import type { ClusterDocument } from '../api/status-document.ts';

/** Returns the state of a cluster in words: `unreachable, serving what was known at 2026-11-20T12:00:00.000Z`. */
export function clusterStateText({ state, ready, connected, knownAt, missing }: ClusterDocument): string {
  if (ready) return 'connected, complete';
  const reached = knownAt === undefined ? 'not connected' : 'unreachable';
  const text =
    state === 'no-configuration' ? 'no configuration in the kvstore' : connected ? 'connected' : reached;
  const lacks = missing.length === 0 ? '' : `, ${missing.join(', ')} missing`;
  return `${text}${knownAt === undefined ? '' : `, serving the state of ${knownAt}`}${lacks}`;
}

/** Returns {@link clusterStateText} followed by the last failure, if any. */
export function troubleText(cluster: ClusterDocument): string {
  const reason = cluster.lastFailure === undefined ? '' : `: ${cluster.lastFailure}`;
  return `${clusterStateText(cluster)}${reason}`;
}

/** Returns one sentence for each cluster that is not ready. */
export function missingClusters(clusters: readonly ClusterDocument[]): readonly string[] {
  return clusters
    .filter(({ ready }) => !ready)
    .map((cluster) => `cluster ${cluster.name} is incomplete: ${troubleText(cluster)}`);
}
