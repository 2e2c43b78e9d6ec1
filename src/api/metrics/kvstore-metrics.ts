import type { ClusterMetrics, WatchMetrics } from '../read-model.ts';
import { inSeconds, itemMetrics, type MetricSources, type Metrics } from './metric.ts';

/** Returns the metrics of each cluster's kvstore client, and the durations of its syncs. */
export function kvstoreMetrics(sources: Pick<MetricSources, 'clusters'>): Metrics {
  const clusters = itemMetrics('cluster', sources.clusters);
  const sumOf =
    (field: 'queuedBytes' | 'listings' | 'streams' | 'failures') =>
    ({ watches }: ClusterMetrics): number =>
      watches.reduce((sum: number, watch: WatchMetrics) => sum + watch[field], 0);
  return {
    dpcache_kvstore_queue_bytes: clusters.gauge(
      'Bytes received from a kvstore that the engines have not applied yet.',
      sumOf('queuedBytes'),
    ),
    dpcache_kvstore_listings_total: clusters.counter('Started lists.', sumOf('listings')),
    dpcache_kvstore_streams_total: clusters.counter(
      'Watch streams of all resources; all except the first of each resource are reconnects.',
      sumOf('streams'),
    ),
    dpcache_kvstore_watch_failures_total: clusters.counter('Failed watches.', sumOf('failures')),
    dpcache_kvstore_requests_total: {
      type: 'counter',
      help: 'Requests to a kvstore by outcome: ok, or the code of the error.',
      labels: ['cluster', 'outcome'],
      *samples() {
        for (const { name, kvstore } of sources.clusters())
          for (const [outcome, value = 0] of Object.entries(kvstore?.requests ?? {}))
            yield { value, labels: { cluster: name, outcome } };
      },
    },
    dpcache_kvstore_leases: clusters.gauge('Current leases in a kvstore.', ({ kvstore }) => kvstore?.leases),
    dpcache_kvstore_leases_lost_total: clusters.counter(
      'Leases in a kvstore that expired or were revoked while keys were bound to them.',
      ({ kvstore }) => kvstore?.leasesLost,
    ),
    dpcache_cluster_first_sync_duration_seconds: clusters.gauge(
      'Duration of the initial sync of a cluster.',
      ({ firstSyncMs }) => inSeconds(firstSyncMs),
    ),
    dpcache_cluster_last_sync_duration_seconds: clusters.gauge(
      'Duration of the last full sync of a cluster.',
      ({ lastSyncMs }) => inSeconds(lastSyncMs),
    ),
  };
}
