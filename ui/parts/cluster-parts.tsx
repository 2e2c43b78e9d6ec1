import type { VNode } from 'preact';
import type { ClusterDocument } from '../../src/api/status-document.ts';
import { durationText } from '../../src/base/show-value.ts';
import { Mark, type Tone } from './marks.tsx';

/** Returns how the state of a cluster is judged. A cluster whose last known state is served is a warning. */
export function clusterTone({ ready, knownAt, connected }: ClusterDocument): Tone {
  if (ready) return 'good';
  return connected || knownAt !== undefined ? 'warn' : 'bad';
}

/** Returns the state of a cluster as a phrase. */
export function clusterText(
  { ready, connected, knownAt, state }: ClusterDocument,
  now: number = Date.now(),
): string {
  if (ready) return 'ready';
  if (knownAt !== undefined)
    return `${connected ? state : 'unreachable'}, serves the state of ${durationText(now - Date.parse(knownAt))} ago`;
  return connected ? state : 'unreachable';
}

/** The state of a cluster as a mark. */
export function ClusterMark({ cluster }: { cluster: ClusterDocument }): VNode {
  return (
    <Mark
      tone={clusterTone(cluster)}
      {...(cluster.lastFailure !== undefined && { title: cluster.lastFailure })}
    >
      {clusterText(cluster)}
    </Mark>
  );
}
