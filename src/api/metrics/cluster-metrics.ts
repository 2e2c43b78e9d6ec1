import type { ReadModel } from '../read-model.ts';
import { byCluster, type Description, type MetricSources, singleSample } from './description.ts';

export function clusterDescriptions(model: MetricSources): readonly Description[] {
  const clusters = function* (
    value: (cluster: ReturnType<ReadModel['status']>['clusters'][number]) => number,
  ) {
    for (const cluster of model.status().clusters)
      yield { value: value(cluster), labels: { cluster: cluster.name } };
  };
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
      *samples() {
        for (const { name, knownAt } of model.status().clusters)
          if (knownAt !== undefined) yield { value: Date.parse(knownAt) / 1000, labels: { cluster: name } };
      },
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
      samples: () => {
        const { syncedMs } = model.status();
        return syncedMs === undefined ? [] : singleSample(syncedMs / 1000);
      },
    },
  ];
}

/** Returns the sync durations of each cluster. */
export function syncDescriptions({ metrics }: Pick<MetricSources, 'metrics'>): readonly Description[] {
  const inSeconds = (ms: number | undefined): number | undefined => (ms === undefined ? ms : ms / 1000);
  const labels = ['cluster'];
  return [
    {
      name: 'dpcache_cluster_first_sync_duration_seconds',
      type: 'gauge',
      labels,
      help: 'Duration of the initial sync of a cluster.',
      samples: () => byCluster(metrics(), ({ firstSyncMs }) => inSeconds(firstSyncMs)),
    },
    {
      name: 'dpcache_cluster_last_sync_duration_seconds',
      type: 'gauge',
      labels,
      help: 'Duration of the last full sync of a cluster.',
      samples: () => byCluster(metrics(), ({ lastSyncMs }) => inSeconds(lastSyncMs)),
    },
  ];
}
