import { type Description, type MetricSources, statusMetrics } from './description.ts';

/** Returns the metrics of the tape. Without a tape they have no samples. */
export function tapeDescriptions({ status }: Pick<MetricSources, 'status'>): readonly Description[] {
  const tape = statusMetrics(() => status().tape);
  return [
    tape.gauge('dpcache_tape_bytes', 'Size of the files of the tape.', 'bytes'),
    tape.counter(
      'dpcache_tape_lines_total',
      'Lines of the tape since the start, lost ones included.',
      'lines',
    ),
    tape.counter(
      'dpcache_tape_lost_total',
      'Lines that the tape has lost because of a failure of the disk.',
      'lost',
    ),
  ];
}
