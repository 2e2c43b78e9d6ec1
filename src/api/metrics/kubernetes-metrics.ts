import type { KindDocument } from '../status-document.ts';
import { type Description, inSeconds, itemMetrics, type MetricSources } from './description.ts';

/** Returns the metrics of each kind of Kubernetes objects. They have no samples if Kubernetes is not followed. */
export function kubernetesDescriptions(model: Pick<MetricSources, 'status'>): readonly Description[] {
  const kinds = itemMetrics('kind', () => model.status().kubernetes?.kinds ?? []);
  return [
    kinds.gauge(
      'dpcache_kubernetes_synced',
      '1 if all objects of a kind have been applied or rejected, else 0. Absent if no consumer needs the kind or the API server does not serve it.',
      ({ state, complete }) => (isFollowed(state) ? Number(complete) : undefined),
    ),
    kinds.gauge(
      'dpcache_kubernetes_watching',
      '1 if the objects of a kind are being watched, else 0.',
      ({ state }) => (isFollowed(state) ? Number(state === 'watching') : undefined),
    ),
    kinds.gauge(
      'dpcache_kubernetes_objects',
      'Objects of a kind that the agent uses. Not counted are rejected objects, and valid objects without effect, such as finished pods.',
      'objects',
    ),
    kinds.gauge(
      'dpcache_kubernetes_lag_seconds',
      'Time since the last message of the API server for a kind: the maximum age of its state.',
      ({ lagMs }) => inSeconds(lagMs),
    ),
    kinds.counter('dpcache_kubernetes_events_total', 'Puts and deletes of objects of a kind.', 'events'),
    kinds.counter(
      'dpcache_kubernetes_lists_total',
      'Completed lists of a kind; all except the first are relists.',
      'lists',
    ),
    kinds.counter('dpcache_kubernetes_failures_total', 'Failed lists and watches of a kind.', 'failures'),
    kinds.counter(
      'dpcache_kubernetes_rejections_total',
      'Rejected objects of a kind, and rejected fields of them.',
      'rejected',
    ),
  ];
}

/**
 * Returns true if a kind is followed. The API server does not serve a `missing` kind. The data of a `resting` kind
 * comes from a kvstore, or is not needed.
 */
function isFollowed(state: KindDocument['state']): boolean {
  return state !== 'resting' && state !== 'missing' && state !== 'stopped';
}
