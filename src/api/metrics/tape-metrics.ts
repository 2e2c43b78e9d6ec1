import type { TapeDocument } from '../status-document.ts';
import { type Description, type MetricSources, type Sample, singleSample } from './description.ts';

/** Returns the metrics of the tape. Without a tape they have no samples. */
export function tapeDescriptions({ status }: Pick<MetricSources, 'status'>): readonly Description[] {
  const sampled = (read: (tape: TapeDocument) => number): (() => readonly Sample[]) => {
    return () => {
      const { tape } = status();
      return tape === undefined ? [] : singleSample(read(tape));
    };
  };
  return [
    {
      name: 'dpcache_tape_bytes',
      type: 'gauge',
      help: 'Size of the files of the tape.',
      samples: sampled(({ bytes }) => bytes),
    },
    {
      name: 'dpcache_tape_lines_total',
      type: 'counter',
      help: 'Lines of the tape since the start, lost ones included.',
      samples: sampled(({ lines }) => lines),
    },
    {
      name: 'dpcache_tape_lost_total',
      type: 'counter',
      help: 'Lines that the tape has lost because of a failure of the disk.',
      samples: sampled(({ lost }) => lost),
    },
  ];
}
