import type { DatapathTableDocument } from '../datapath-document.ts';
import { byName, type Description, type MetricSources, type Sample } from './description.ts';

/** Returns the metrics of the datapath. They have no samples if no datapath is configured. */
export function datapathDescriptions({ status }: Pick<MetricSources, 'status'>): readonly Description[] {
  const tables = (read: (table: DatapathTableDocument) => number | undefined): readonly Sample[] =>
    byName('table', status().datapath?.tables ?? [], read);
  const labels = ['table'];
  return [
    {
      name: 'dpcache_datapath_desired_items',
      type: 'gauge',
      labels,
      help: 'Desired items of a table of the kernel.',
      samples: () => tables(({ desired }) => desired),
    },
    {
      name: 'dpcache_datapath_items',
      type: 'gauge',
      labels,
      help: 'Items of dpcache in a table of the kernel.',
      samples: () => tables(({ actual }) => actual),
    },
    {
      name: 'dpcache_datapath_capacity_items',
      type: 'gauge',
      labels,
      help: 'Capacity of a table of the kernel, if it is limited.',
      samples: () => tables(({ capacity }) => capacity),
    },
    {
      name: 'dpcache_datapath_pressure_ratio',
      type: 'gauge',
      labels,
      help: 'Usage of a table of the kernel, 0 to 1.',
      samples: () => tables(({ pressure }) => pressure),
    },
    {
      name: 'dpcache_datapath_pending_keys',
      type: 'gauge',
      labels,
      help: 'Keys with a pending write.',
      samples: () => tables(({ pending }) => pending),
    },
    {
      name: 'dpcache_datapath_held_keys',
      type: 'gauge',
      labels,
      help: 'Keys of an earlier agent that no cache contains, kept until the caches are complete.',
      samples: () => tables(({ held }) => held),
    },
    {
      name: 'dpcache_datapath_failing_keys',
      type: 'gauge',
      labels,
      help: 'Keys that the kernel has rejected and that are retried.',
      samples: () => tables(({ failing }) => failing),
    },
    {
      name: 'dpcache_datapath_keys_without_room',
      type: 'gauge',
      labels,
      help: 'Keys without room in a table of the kernel.',
      samples: () => tables(({ noRoom }) => noRoom),
    },
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
    {
      name: 'dpcache_datapath_repairs_total',
      type: 'counter',
      labels,
      help: 'Items of a table of the kernel that another program changed and dpcache repaired.',
      samples: () => tables(({ repairs }) => repairs),
    },
    {
      name: 'dpcache_datapath_part_runs',
      help: '1 if an enabled part of the datapath can run, else 0.',
      type: 'gauge',
      labels: ['part'],
      samples: () =>
        byName('part', status().datapath?.parts ?? [], ({ state }) =>
          state === 'off' ? undefined : Number(state === 'running'),
        ),
    },
  ];
}
