import { counter, type Description, gauge, type MetricSources } from './description.ts';

/** Returns the metrics of the tape. Without a tape they have no samples. */
export function tapeDescriptions({ status }: Pick<MetricSources, 'status'>): readonly Description[] {
  return [
    gauge('dpcache_tape_bytes', 'Size of the files of the tape.', () => status().tape?.bytes),
    counter(
      'dpcache_tape_lines_total',
      'Lines of the tape since the start, lost ones included.',
      () => status().tape?.lines,
    ),
    counter(
      'dpcache_tape_lost_total',
      'Lines that the tape has lost because of a failure of the disk.',
      () => status().tape?.lost,
    ),
  ];
}
