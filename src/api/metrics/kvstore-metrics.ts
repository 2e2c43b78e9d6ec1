import type { WatchMetrics } from '../read-model.ts';
import { byName, type Description, type MetricSources, type Sample } from './description.ts';

/** Returns the metrics of each cluster's kvstore client. */
export function kvstoreDescriptions({ metrics }: Pick<MetricSources, 'metrics'>): readonly Description[] {
  const sums = (read: (watch: WatchMetrics) => number): readonly Sample[] =>
    byName('cluster', metrics(), ({ watches }) => watches.reduce((sum, watch) => sum + read(watch), 0));
  const labels = ['cluster'];
  return [
    {
      name: 'dpcache_kvstore_queue_bytes',
      type: 'gauge',
      labels,
      help: 'Bytes received from a kvstore that the engines have not applied yet.',
      samples: () => sums(({ queuedBytes }) => queuedBytes),
    },
    {
      name: 'dpcache_kvstore_listings_total',
      type: 'counter',
      labels,
      help: 'Started lists of all resources.',
      samples: () => sums(({ listings }) => listings),
    },
    {
      name: 'dpcache_kvstore_streams_total',
      type: 'counter',
      labels,
      help: 'Watch streams of all resources; all except the first of each resource are reconnects.',
      samples: () => sums(({ resumptions }) => resumptions),
    },
    {
      name: 'dpcache_kvstore_watch_failures_total',
      type: 'counter',
      labels,
      help: 'Failed watches.',
      samples: () => sums(({ failures }) => failures),
    },
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
    {
      name: 'dpcache_kvstore_leases',
      type: 'gauge',
      labels,
      help: 'Current leases in a kvstore.',
      samples: () => byName('cluster', metrics(), ({ kvstore }) => kvstore?.leases),
    },
    {
      name: 'dpcache_kvstore_leases_lost_total',
      type: 'counter',
      labels,
      help: 'Leases in a kvstore that expired or were revoked while keys were bound to them.',
      samples: () => byName('cluster', metrics(), ({ kvstore }) => kvstore?.leasesLost),
    },
  ];
}
