import type { VNode } from 'preact';
import type { ClusterDocument } from '../../src/api/status-document.ts';
import { durationText } from '../../src/base/show-value.ts';
import { agentNow, MAX_IGNORED_MS } from '../agent/clock.ts';
import { useShared } from '../agent/live.ts';
import { Mark, type Tone } from './marks.tsx';
import { type Column, NONE } from './table.tsx';

/** The tones of states, worst first. */
export const WORST_FIRST: readonly Tone[] = ['bad', 'warn', 'idle', 'good'];

/**
 * Returns the tone of a cluster's state, as severe as its problem in the status. If the cluster is not ready, the tone
 * is `warn` while it is connected or its last known state is served, and `bad` if its services have expired.
 */
export function clusterTone({
  ready,
  knownAt,
  connected,
  servicesExpired,
  heartbeat,
}: ClusterDocument): Tone {
  if (ready) return heartbeat === 'stale' ? 'warn' : 'good';
  return servicesExpired !== true && (connected || knownAt !== undefined) ? 'warn' : 'bad';
}

/** Returns the duration since a time of the agent. It is unknown if the agent's clock was set back since. */
export function sinceText(iso: string): string {
  const ms = agentNow() - Date.parse(iso);
  return ms < -MAX_IGNORED_MS ? 'an unknown time' : durationText(ms);
}

/** Returns the state of a cluster as a word. */
export function stateText({ ready, connected, state, heartbeat }: ClusterDocument): string {
  if (ready) return heartbeat === 'stale' ? 'stale heartbeat' : 'ready';
  return connected ? state : 'unreachable';
}

/** Returns the state of a cluster as a phrase. */
export function clusterText(cluster: ClusterDocument): string {
  const { ready, knownAt } = cluster;
  const served = ready || knownAt === undefined ? '' : `, serves the state of ${sinceText(knownAt)} ago`;
  return `${stateText(cluster)}${served}`;
}

/** Returns a bound of a latency as text; null: above all bounds. */
export function boundText(ms: number | null): string {
  if (ms === null) return '> 30 s';
  return ms < 1_000 ? `≤ ${ms} ms` : `≤ ${ms / 1_000} s`;
}

/** Returns a column of latencies. A missing one is sorted first, and one above all bounds last. */
export function p99Column<T extends { readonly p99Ms?: number | null | undefined }>(): Column<T> {
  return {
    name: 'p99',
    number: true,
    by: ({ p99Ms }) => (p99Ms === undefined ? -1 : (p99Ms ?? Number.POSITIVE_INFINITY)),
    cell: ({ p99Ms }) => (p99Ms === undefined ? NONE : boundText(p99Ms)),
  };
}

/** Returns a number of bytes with a unit: `2 kB`. */
export function bytesText(bytes: number): string {
  return bytes < 1_000_000 ? `${Math.ceil(bytes / 1_000)} kB` : `${(bytes / 1_000_000).toFixed(1)} MB`;
}

/** Returns how far the applied state is behind the kvstore, as far as it is known. */
export function lagText({ ready, knownAt, queuedBytes = 0 }: ClusterDocument): string {
  if (knownAt !== undefined) return `${sinceText(knownAt)} behind`;
  if (queuedBytes > 0) return `${bytesText(queuedBytes)} waiting`;
  return ready ? 'no lag' : '';
}

/** The duration since a time of the agent, rendered again with each status. */
export function Since({ time }: { time: string }): VNode {
  useShared();
  return <>{sinceText(time)}</>;
}

/** The lag of a cluster, rendered again with each status. */
export function Lag({ cluster }: { cluster: ClusterDocument }): VNode {
  useShared();
  return <>{lagText(cluster) || NONE}</>;
}

/** The state of a cluster as a mark. */
export function ClusterMark({
  cluster,
  isShort = false,
}: {
  cluster: ClusterDocument;
  isShort?: boolean;
}): VNode {
  return (
    <Mark
      tone={clusterTone(cluster)}
      {...(cluster.lastFailure !== undefined && { title: cluster.lastFailure })}
    >
      {isShort ? stateText(cluster) : clusterText(cluster)}
    </Mark>
  );
}
