import { countsMetric, type MetricSources, type Metrics, statusMetrics, timestamp } from './metric.ts';

/** Returns the metrics of the history. They have no samples if none is recorded. */
export function historyMetrics({ status }: Pick<MetricSources, 'status'>): Metrics {
  const history = statusMetrics(() => status().history);
  const disk = statusMetrics(() => status().history?.disk);
  return {
    dpcache_history_records_total: countsMetric(
      'counter',
      'Records of the history by kind.',
      'kind',
      () => status().history?.records,
    ),
    dpcache_history_lost_total: countsMetric(
      'counter',
      'Changes that the history does not contain, by reason.',
      'reason',
      () => status().history?.lost,
    ),
    dpcache_history_bytes: history.gauge('Memory of the history with its indexes.', 'bytes'),
    dpcache_history_disk_bytes: disk.gauge('Size of the files of the history.', 'bytes'),
    dpcache_history_disk_failed: disk.gauge(
      '1 if the history cannot be written to the disk; changes are then kept in memory only.',
      ({ failure }) => failure !== undefined,
    ),
    dpcache_history_disk_damaged_total: disk.counter(
      'Files of the history that could not be read and were dropped.',
      'damaged',
    ),
    dpcache_history_retained_from_timestamp_seconds: history.gauge(
      'Oldest time for which the state can be queried.',
      ({ retainedFrom }) => timestamp(retainedFrom),
    ),
  };
}

/** Returns the metrics of the tape. They have no samples if none is recorded. */
export function tapeMetrics({ status }: Pick<MetricSources, 'status'>): Metrics {
  const tape = statusMetrics(() => status().tape);
  return {
    dpcache_tape_bytes: tape.gauge('Size of the files of the tape.', 'bytes'),
    dpcache_tape_lines_total: tape.counter('Lines of the tape since the start, lost ones included.', 'lines'),
    dpcache_tape_lost_total: tape.counter(
      'Lines that the tape has lost because of a failure of the disk.',
      'lost',
    ),
  };
}
