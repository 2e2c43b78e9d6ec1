import {
  countsByLabel,
  type Description,
  type MetricSources,
  statusMetrics,
  timestamp,
} from './description.ts';

/** Returns the metrics of the history. They have no samples if no history is recorded. */
export function historyDescriptions({ status }: Pick<MetricSources, 'status'>): readonly Description[] {
  const history = statusMetrics(() => status().history);
  const disk = statusMetrics(() => status().history?.disk);
  return [
    countsByLabel(
      'counter',
      'dpcache_history_records_total',
      'Records of the history by kind.',
      'kind',
      () => status().history?.records,
    ),
    countsByLabel(
      'counter',
      'dpcache_history_lost_total',
      'Changes that the history does not contain, by reason.',
      'reason',
      () => status().history?.lost,
    ),
    history.gauge('dpcache_history_bytes', 'Memory of the history with its indexes.', 'bytes'),
    disk.gauge('dpcache_history_disk_bytes', 'Size of the files of the history.', 'bytes'),
    disk.gauge(
      'dpcache_history_disk_failed',
      '1 if the history cannot be written to the disk; changes are then held in memory only.',
      ({ failure }) => failure !== undefined,
    ),
    disk.counter(
      'dpcache_history_disk_damaged_total',
      'Files of the history that could not be read and were dropped.',
      'damaged',
    ),
    history.gauge(
      'dpcache_history_held_from_timestamp_seconds',
      'Oldest time for which the state can be queried.',
      ({ heldFrom }) => timestamp(heldFrom),
    ),
  ];
}
