import type { KindDocument } from '../status-document.ts';
import { inSeconds, itemMetrics, type MetricSources, type Metrics } from './metric.ts';

/** Returns the metrics of each kind of Kubernetes objects. They have no samples if Kubernetes is not followed. */
export function kubernetesMetrics({ status }: Pick<MetricSources, 'status'>): Metrics {
  const kinds = itemMetrics('kind', () => status().kubernetes?.kinds ?? []);
  return {
    dpcache_kubernetes_synced: kinds.gauge(
      '1 if all objects of a kind have been applied or rejected, else 0. Absent if no consumer needs the kind or the API server does not serve it.',
      ({ state, complete }) => (isFollowed(state) ? complete : undefined),
    ),
    dpcache_kubernetes_watching: kinds.gauge(
      '1 if the objects of a kind are being watched, else 0.',
      ({ state }) => (isFollowed(state) ? state === 'watching' : undefined),
    ),
    dpcache_kubernetes_objects: kinds.gauge(
      'Objects of a kind that the agent uses. Not counted are rejected objects, and valid objects without effect, such as finished pods.',
      'objects',
    ),
    dpcache_kubernetes_lag_seconds: kinds.gauge(
      'Time since the last message of the API server for a kind: the maximum age of its state.',
      ({ lagMs }) => inSeconds(lagMs),
    ),
    dpcache_kubernetes_events_total: kinds.counter('Puts and deletes of objects of a kind.', 'events'),
    dpcache_kubernetes_lists_total: kinds.counter(
      'Completed lists of a kind; all except the first are relists.',
      'lists',
    ),
    dpcache_kubernetes_failures_total: kinds.counter('Failed lists and watches of a kind.', 'failures'),
    dpcache_kubernetes_rejections_total: kinds.counter(
      'Rejected objects of a kind, and rejected fields of them.',
      'rejected',
    ),
  };
}

/**
 * Returns true if a kind is followed. The API server does not serve a `missing` kind. The data of a `resting` kind
 * comes from a kvstore, or is not needed.
 */
function isFollowed(state: KindDocument['state']): boolean {
  return state !== 'resting' && state !== 'missing' && state !== 'stopped';
}
