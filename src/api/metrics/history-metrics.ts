import { byLabel, type Description, type MetricSources, singleSample, timestamp } from './description.ts';

/** Returns the metrics of the history. They have no samples if no history is recorded. */
export function historyDescriptions({ status }: Pick<MetricSources, 'status'>): readonly Description[] {
  return [
    {
      name: 'dpcache_history_records_total',
      type: 'counter',
      labels: ['kind'],
      help: 'Records of the history by kind.',
      samples: () => byLabel('kind', status().history?.records ?? {}),
    },
    {
      name: 'dpcache_history_lost_total',
      type: 'counter',
      labels: ['reason'],
      help: 'Changes that the history does not contain, by reason.',
      samples: () => byLabel('reason', status().history?.lost ?? {}),
    },
    {
      name: 'dpcache_history_bytes',
      type: 'gauge',
      help: 'Memory of the history with its indexes.',
      samples: () => singleSample(status().history?.bytes),
    },
    {
      name: 'dpcache_history_disk_bytes',
      type: 'gauge',
      help: 'Size of the files of the history.',
      samples: () => singleSample(status().history?.disk?.bytes),
    },
    {
      name: 'dpcache_history_disk_failed',
      type: 'gauge',
      help: '1 if the history cannot be written to the disk; changes are then held in memory only.',
      samples: () => {
        const disk = status().history?.disk;
        return disk === undefined ? [] : singleSample(Number(disk.failure !== undefined));
      },
    },
    {
      name: 'dpcache_history_disk_damaged_total',
      type: 'counter',
      help: 'Files of the history that could not be read and were dropped.',
      samples: () => singleSample(status().history?.disk?.damaged),
    },
    {
      name: 'dpcache_history_held_from_timestamp_seconds',
      type: 'gauge',
      help: 'Oldest time for which the state can be queried.',
      samples: () => singleSample(timestamp(status().history?.heldFrom)),
    },
  ];
}
