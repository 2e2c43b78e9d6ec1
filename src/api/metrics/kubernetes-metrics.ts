import type { KindDocument } from '../status-document.ts';
import { byName, type Description, inSeconds, type MetricSources, type Sample } from './description.ts';

/** Returns the metrics of each kind of Kubernetes objects. They have no samples if Kubernetes is not followed. */
export function kubernetesDescriptions(model: Pick<MetricSources, 'status'>): readonly Description[] {
  const samples = (read: (kind: KindDocument) => number | undefined) => (): readonly Sample[] =>
    byName('kind', model.status().kubernetes?.kinds ?? [], read);
  const labels = ['kind'];
  return [
    {
      name: 'dpcache_kubernetes_synced',
      type: 'gauge',
      labels,
      help: '1 if all objects of a kind have been applied or rejected, else 0. Absent if no consumer needs the kind or the API server does not serve it.',
      samples: samples(({ state, complete }) => (isFollowed(state) ? Number(complete) : undefined)),
    },
    {
      name: 'dpcache_kubernetes_watching',
      type: 'gauge',
      labels,
      help: '1 if the objects of a kind are being watched, else 0.',
      samples: samples(({ state }) => (isFollowed(state) ? Number(state === 'watching') : undefined)),
    },
    {
      name: 'dpcache_kubernetes_objects',
      type: 'gauge',
      labels,
      help: 'Objects of a kind that the agent uses. Not counted are rejected objects, and valid objects without effect, such as finished pods.',
      samples: samples(({ objects }) => objects),
    },
    {
      name: 'dpcache_kubernetes_lag_seconds',
      type: 'gauge',
      labels,
      help: 'Time since the last message of the API server for a kind: the maximum age of its state.',
      samples: samples(({ lagMs }) => inSeconds(lagMs)),
    },
    {
      name: 'dpcache_kubernetes_events_total',
      type: 'counter',
      labels,
      help: 'Puts and deletes of objects of a kind.',
      samples: samples(({ events }) => events),
    },
    {
      name: 'dpcache_kubernetes_lists_total',
      type: 'counter',
      labels,
      help: 'Completed lists of a kind; all except the first are relists.',
      samples: samples(({ lists }) => lists),
    },
    {
      name: 'dpcache_kubernetes_failures_total',
      type: 'counter',
      labels,
      help: 'Failed lists and watches of a kind.',
      samples: samples(({ failures }) => failures),
    },
    {
      name: 'dpcache_kubernetes_rejections_total',
      type: 'counter',
      labels,
      help: 'Rejected objects of a kind, and rejected fields of them.',
      samples: samples(({ rejected }) => rejected),
    },
  ];
}

/**
 * Returns true if a kind is followed. The API server does not serve a `missing` kind. The data of a `resting` kind
 * comes from a kvstore, or is not needed.
 */
function isFollowed(state: KindDocument['state']): boolean {
  return state !== 'resting' && state !== 'missing' && state !== 'stopped';
}
