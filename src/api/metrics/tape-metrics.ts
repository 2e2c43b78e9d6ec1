import { type Description, type MetricSources, singleSample } from './description.ts';

/** Returns the metrics of the tape. Without a tape they have no samples. */
export function tapeDescriptions({ status }: Pick<MetricSources, 'status'>): readonly Description[] {
  return [
    {
      name: 'dpcache_tape_bytes',
      type: 'gauge',
      help: 'Size of the files of the tape.',
      samples: () => singleSample(status().tape?.bytes),
    },
    {
      name: 'dpcache_tape_lines_total',
      type: 'counter',
      help: 'Lines of the tape since the start, lost ones included.',
      samples: () => singleSample(status().tape?.lines),
    },
    {
      name: 'dpcache_tape_lost_total',
      type: 'counter',
      help: 'Lines that the tape has lost because of a failure of the disk.',
      samples: () => singleSample(status().tape?.lost),
    },
  ];
}
