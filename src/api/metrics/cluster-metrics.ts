import type { ClusterDocument } from '../status-document.ts';
import {
  type Description,
  type ItemMetrics,
  inSeconds,
  itemMetrics,
  type MetricSources,
  statusMetrics,
  timestamp,
} from './description.ts';

/** Returns the metrics of the state of each cluster: ready, connected, services expired, heartbeat stale. */
export function stateDescriptions<
  T extends Pick<ClusterDocument, 'ready' | 'connected' | 'servicesExpired' | 'heartbeat'>,
>(clusters: ItemMetrics<T>): readonly Description[] {
  return [
    clusters.gauge(
      'dpcache_cluster_ready',
      '1 if the state of a cluster is complete and its kvstore answers, else 0.',
      ({ ready }) => ready,
    ),
    clusters.gauge(
      'dpcache_cluster_connected',
      '1 if the kvstore of a cluster answers, else 0.',
      ({ connected }) => connected,
    ),
    clusters.gauge(
      'dpcache_cluster_services_expired',
      '1 if the services of a remote cluster were withdrawn because their TTL has ended, else 0.',
      ({ servicesExpired }) => servicesExpired,
    ),
    clusters.gauge(
      'dpcache_cluster_heartbeat_stale',
      '1 if the heartbeat in the kvstore of a cluster has not changed for 2 minutes, else 0.',
      ({ heartbeat }) => (heartbeat === undefined ? undefined : heartbeat === 'stale'),
    ),
  ];
}

export function clusterDescriptions(model: MetricSources): readonly Description[] {
  const clusters = itemMetrics('cluster', () => model.status().clusters);
  return [
    ...stateDescriptions(clusters),
    clusters.gauge(
      'dpcache_cluster_stale_since_timestamp_seconds',
      'Time since which the state of a cluster is stale, present only if stale state is served.',
      ({ knownAt }) => timestamp(knownAt),
    ),
    clusters.counter(
      'dpcache_cluster_failures_total',
      'Failed requests to the kvstore of a cluster.',
      'failures',
    ),
    clusters.counter('dpcache_cluster_rejections_total', 'Rejected values of a cluster.', 'rejected'),
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
    statusMetrics(model.status).gauge(
      'dpcache_sync_duration_seconds',
      'Duration of the initial sync of the agent, over all inputs.',
      ({ syncedMs }) => inSeconds(syncedMs),
    ),
  ];
}

/** Returns the sync durations of each cluster. */
export function syncDescriptions({ metrics }: Pick<MetricSources, 'metrics'>): readonly Description[] {
  const clusters = itemMetrics('cluster', metrics);
  return [
    clusters.gauge(
      'dpcache_cluster_first_sync_duration_seconds',
      'Duration of the initial sync of a cluster.',
      ({ firstSyncMs }) => inSeconds(firstSyncMs),
    ),
    clusters.gauge(
      'dpcache_cluster_last_sync_duration_seconds',
      'Duration of the last full sync of a cluster.',
      ({ lastSyncMs }) => inSeconds(lastSyncMs),
    ),
  ];
}
