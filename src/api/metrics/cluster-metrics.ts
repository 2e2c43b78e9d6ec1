import type { ClusterDocument } from '../status-document.ts';
import {
  byName,
  type Description,
  inSeconds,
  type MetricSources,
  type Sample,
  singleSample,
  timestamp,
} from './description.ts';

export function clusterDescriptions(model: MetricSources): readonly Description[] {
  const clusters = (read: (cluster: ClusterDocument) => number | undefined): readonly Sample[] =>
    byName('cluster', model.status().clusters, read);
  return [
    {
      name: 'dpcache_cluster_ready',
      help: '1 if the state of a cluster is complete and its kvstore answers, else 0.',
      type: 'gauge',
      labels: ['cluster'],
      samples: () => clusters(({ ready }) => Number(ready)),
    },
    {
      name: 'dpcache_cluster_connected',
      help: '1 if the kvstore of a cluster answers, else 0.',
      type: 'gauge',
      labels: ['cluster'],
      samples: () => clusters(({ connected }) => Number(connected)),
    },
    {
      name: 'dpcache_cluster_stale_since_timestamp_seconds',
      help: 'Time of the state of a cluster, present only if stale state is served.',
      type: 'gauge',
      labels: ['cluster'],
      samples: () => clusters(({ knownAt }) => timestamp(knownAt)),
    },
    {
      name: 'dpcache_cluster_failures_total',
      help: 'Failed requests to the kvstore of a cluster.',
      type: 'counter',
      labels: ['cluster'],
      samples: () => clusters(({ failures }) => failures),
    },
    {
      name: 'dpcache_cluster_rejections_total',
      help: 'Rejected values of a cluster.',
      type: 'counter',
      labels: ['cluster'],
      samples: () => clusters(({ rejected }) => rejected),
    },
    {
      name: 'dpcache_cluster_keys',
      help: 'Keys of a cluster by resource.',
      type: 'gauge',
      labels: ['cluster', 'resource'],
      *samples() {
        for (const { name, keys } of model.status().clusters)
          for (const [resource, value] of Object.entries(keys))
            yield { value, labels: { cluster: name, resource } };
      },
    },
    {
      name: 'dpcache_sync_duration_seconds',
      help: 'Duration of the initial sync.',
      type: 'gauge',
      samples: () => singleSample(inSeconds(model.status().syncedMs)),
    },
  ];
}

/** Returns the sync durations of each cluster. */
export function syncDescriptions({ metrics }: Pick<MetricSources, 'metrics'>): readonly Description[] {
  const labels = ['cluster'];
  return [
    {
      name: 'dpcache_cluster_first_sync_duration_seconds',
      type: 'gauge',
      labels,
      help: 'Duration of the initial sync of a cluster.',
      samples: () => byName('cluster', metrics(), ({ firstSyncMs }) => inSeconds(firstSyncMs)),
    },
    {
      name: 'dpcache_cluster_last_sync_duration_seconds',
      type: 'gauge',
      labels,
      help: 'Duration of the last full sync of a cluster.',
      samples: () => byName('cluster', metrics(), ({ lastSyncMs }) => inSeconds(lastSyncMs)),
    },
  ];
}
