import type { ClusterDocument } from '../status-document.ts';
import {
  type ItemMetrics,
  inSeconds,
  itemMetrics,
  type MetricSources,
  type Metrics,
  statusMetrics,
  timestamp,
} from './metric.ts';

/** Returns the metrics of the state of each cluster: ready, connected, services expired, heartbeat stale. */
export function stateMetrics<
  T extends Pick<ClusterDocument, 'ready' | 'connected' | 'servicesExpired' | 'heartbeat'>,
>(clusters: ItemMetrics<T>): Metrics {
  return {
    dpcache_cluster_ready: clusters.gauge(
      '1 if the state of a cluster is complete and its kvstore answers, else 0.',
      ({ ready }) => ready,
    ),
    dpcache_cluster_connected: clusters.gauge(
      '1 if the kvstore of a cluster answers, else 0.',
      ({ connected }) => connected,
    ),
    dpcache_cluster_services_expired: clusters.gauge(
      '1 if the services of a remote cluster were withdrawn because their TTL has ended, else 0.',
      ({ servicesExpired }) => servicesExpired,
    ),
    dpcache_cluster_heartbeat_stale: clusters.gauge(
      '1 if the heartbeat in the kvstore of a cluster has not changed for 2 minutes, else 0.',
      ({ heartbeat }) => (heartbeat === undefined ? undefined : heartbeat === 'stale'),
    ),
  };
}

/** Returns the tables of the metrics of the clusters. */
export function clusterMetrics(model: MetricSources): readonly Metrics[] {
  const clusters = itemMetrics('cluster', () => model.status().clusters);
  const clusterTable: Metrics = {
    dpcache_cluster_stale_since_timestamp_seconds: clusters.gauge(
      'Time since which the state of a cluster is stale, present only if stale state is served.',
      ({ knownAt }) => timestamp(knownAt),
    ),
    dpcache_cluster_failures_total: clusters.counter(
      'Failed attempts to follow a cluster, without failed watches, which are retried.',
      'failures',
    ),
    dpcache_cluster_rejections_total: clusters.counter('Rejected values of a cluster.', 'rejected'),
    dpcache_cluster_keys: {
      type: 'gauge',
      help: 'Keys of a cluster by resource.',
      labels: ['cluster', 'resource'],
      *samples() {
        for (const { name, keys } of model.status().clusters)
          for (const [resource, value] of Object.entries(keys))
            yield { value, labels: { cluster: name, resource } };
      },
    },
    dpcache_sync_duration_seconds: statusMetrics(model.status).gauge(
      'Duration of the initial sync of the agent, over all inputs.',
      ({ syncedMs }) => inSeconds(syncedMs),
    ),
  };
  return [stateMetrics(clusters), clusterTable];
}
