import type { ClusterMetrics, WatchMetrics } from '../read-model.ts';
import { type Description, itemMetrics, type MetricSources } from './description.ts';

/** Returns the metrics of each cluster's kvstore client. */
export function kvstoreDescriptions({ metrics }: Pick<MetricSources, 'metrics'>): readonly Description[] {
  const clusters = itemMetrics('cluster', metrics);
  const sumOf =
    (read: (watch: WatchMetrics) => number) =>
    ({ watches }: ClusterMetrics): number =>
      watches.reduce((sum, watch) => sum + read(watch), 0);
  return [
    clusters.gauge(
      'dpcache_kvstore_queue_bytes',
      'Bytes received from a kvstore that the engines have not applied yet.',
      sumOf(({ queuedBytes }) => queuedBytes),
    ),
    clusters.counter(
      'dpcache_kvstore_listings_total',
      'Started lists.',
      sumOf(({ listings }) => listings),
    ),
    clusters.counter(
      'dpcache_kvstore_streams_total',
      'Watch streams of all resources; all except the first of each resource are reconnects.',
      sumOf(({ streams }) => streams),
    ),
    clusters.counter(
      'dpcache_kvstore_watch_failures_total',
      'Failed watches.',
      sumOf(({ failures }) => failures),
    ),
    {
      name: 'dpcache_kvstore_requests_total',
      type: 'counter',
      labels: ['cluster', 'outcome'],
      help: 'Requests to a kvstore by outcome: ok, or the code of the error.',
      samples: () =>
        metrics().flatMap(({ name, kvstore }) =>
          Object.entries(kvstore?.requests ?? {}).map(([outcome, value = 0]) => ({
            value,
            labels: { cluster: name, outcome },
          })),
        ),
    },
    clusters.gauge(
      'dpcache_kvstore_leases',
      'Current leases in a kvstore.',
      ({ kvstore }) => kvstore?.leases,
    ),
    clusters.counter(
      'dpcache_kvstore_leases_lost_total',
      'Leases in a kvstore that expired or were revoked while keys were bound to them.',
      ({ kvstore }) => kvstore?.leasesLost,
    ),
  ];
}
