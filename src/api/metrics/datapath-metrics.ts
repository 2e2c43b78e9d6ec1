import { itemMetrics, type MetricSources, type Metrics } from './metric.ts';

/** Returns the metrics of the datapath. They have no samples if no datapath is configured. */
export function datapathMetrics({ status }: Pick<MetricSources, 'status'>): Metrics {
  const tables = itemMetrics('table', () => status().datapath?.tables ?? []);
  const parts = itemMetrics('part', () => status().datapath?.parts ?? []);
  return {
    dpcache_datapath_desired_items: tables.gauge(
      'Items that a table of the kernel should contain.',
      'desired',
    ),
    dpcache_datapath_items: tables.gauge('Items of dpcache that a table of the kernel contains.', 'actual'),
    dpcache_datapath_capacity_items: tables.gauge(
      'Maximum number of items in a table of the kernel, if it is limited.',
      'capacity',
    ),
    dpcache_datapath_pressure_ratio: tables.gauge('Used share of a table, 0 to 1.', 'pressure'),
    dpcache_datapath_pending_keys: tables.gauge('Keys with a pending write.', 'pending'),
    dpcache_datapath_unconfirmed_keys: tables.gauge(
      'Keys of an earlier agent that no cache has confirmed yet. They are deleted when the caches are complete.',
      'unconfirmed',
    ),
    dpcache_datapath_failing_keys: tables.gauge(
      'Keys that the kernel has rejected and that are retried.',
      'failing',
    ),
    dpcache_datapath_keys_without_room: tables.gauge(
      'Keys that are not written, because a table of the kernel is full.',
      'noRoom',
    ),
    dpcache_datapath_writes_total: {
      type: 'counter',
      help: 'Items written to a table of the kernel.',
      labels: ['table', 'kind'],
      *samples() {
        for (const { name, upserts, deletes } of status().datapath?.tables ?? []) {
          yield { value: upserts, labels: { table: name, kind: 'upsert' } };
          yield { value: deletes, labels: { table: name, kind: 'delete' } };
        }
      },
    },
    dpcache_datapath_repairs_total: tables.counter(
      'Items of a table of the kernel that another program changed and dpcache repaired.',
      'repairs',
    ),
    dpcache_datapath_part_runs: parts.gauge(
      '1 if an enabled part of the datapath runs, else 0.',
      ({ state }) => (state === 'off' ? undefined : state === 'running'),
    ),
  };
}
