import { type Description, itemMetrics, type MetricSources } from './description.ts';

/** Returns the metrics of the datapath. They have no samples if no datapath is configured. */
export function datapathDescriptions({ status }: Pick<MetricSources, 'status'>): readonly Description[] {
  const tables = itemMetrics('table', () => status().datapath?.tables ?? []);
  const parts = itemMetrics('part', () => status().datapath?.parts ?? []);
  return [
    tables.gauge(
      'dpcache_datapath_desired_items',
      'Items that a table of the kernel should contain.',
      'desired',
    ),
    tables.gauge('dpcache_datapath_items', 'Items of dpcache that a table of the kernel contains.', 'actual'),
    tables.gauge(
      'dpcache_datapath_capacity_items',
      'Maximum number of items in a table of the kernel, if it is limited.',
      'capacity',
    ),
    tables.gauge('dpcache_datapath_pressure_ratio', 'Used share of a table, 0 to 1.', 'pressure'),
    tables.gauge('dpcache_datapath_pending_keys', 'Keys with a pending write.', 'pending'),
    tables.gauge(
      'dpcache_datapath_held_keys',
      'Keys of an earlier agent that no cache contains. They are deleted when the caches are complete.',
      'held',
    ),
    tables.gauge(
      'dpcache_datapath_failing_keys',
      'Keys that the kernel has rejected and that are retried.',
      'failing',
    ),
    tables.gauge(
      'dpcache_datapath_keys_without_room',
      'Keys that are not written, because a table of the kernel is full.',
      'noRoom',
    ),
    {
      name: 'dpcache_datapath_writes_total',
      type: 'counter',
      labels: ['table', 'kind'],
      help: 'Items written to a table of the kernel.',
      *samples() {
        for (const { name, upserts, deletes } of status().datapath?.tables ?? []) {
          yield { value: upserts, labels: { table: name, kind: 'upsert' } };
          yield { value: deletes, labels: { table: name, kind: 'delete' } };
        }
      },
    },
    tables.counter(
      'dpcache_datapath_repairs_total',
      'Items of a table of the kernel that another program changed and dpcache repaired.',
      'repairs',
    ),
    parts.gauge(
      'dpcache_datapath_part_runs',
      '1 if an enabled part of the datapath runs, else 0.',
      ({ state }) => (state === 'off' ? undefined : Number(state === 'running')),
    ),
  ];
}
