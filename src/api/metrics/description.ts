import type { ClusterMetrics, ReadModel } from '../read-model.ts';

/** A value of a metric with its labels. */
export interface Sample {
  readonly value: number;
  readonly labels?: Readonly<Record<string, string>>;
}

/** A metric whose samples are read at each scrape. */
export interface Description {
  readonly name: string;
  readonly help: string;
  readonly type: 'gauge' | 'counter';
  readonly labels?: readonly string[];
  readonly samples: () => Iterable<Sample>;
}

/** Sources of the metrics. Each status is read once per scrape, because many metrics share it. */
export type MetricSources = {
  readonly [Engine in 'ipcache' | 'services' | 'nodes']: Pick<ReadModel[Engine], 'status'>;
} & Pick<ReadModel, 'status' | 'rejections'> & { readonly metrics: () => readonly ClusterMetrics[] };

/** Returns a metric with a sample for each count, whose name is the label. Without counts, it has no samples. */
export function countsByLabel(
  type: Description['type'],
  name: string,
  help: string,
  label: string,
  counts: () => Readonly<Record<string, number | undefined>> | undefined,
): Description {
  return {
    name,
    help,
    type,
    labels: [label],
    *samples() {
      for (const [key, value = 0] of Object.entries(counts() ?? {}))
        yield { value, labels: { [label]: key } };
    },
  };
}

/** Returns the value of a metric without labels; undefined if there is none. */
type ReadValue = () => number | undefined;

function single(type: Description['type'], name: string, help: string, read: ReadValue): Description {
  return {
    name,
    help,
    type,
    samples: () => {
      const value = read();
      return value === undefined ? [] : [{ value }];
    },
  };
}

/** Returns a gauge without labels. */
export function gauge(name: string, help: string, read: ReadValue): Description {
  return single('gauge', name, help, read);
}

/** Returns a counter without labels. */
export function counter(name: string, help: string, read: ReadValue): Description {
  return single('counter', name, help, read);
}

/** Returns a metric with a sample for each item with a value. */
type ItemMetric<T> = (name: string, help: string, read: (item: T) => number | undefined) => Description;

/** Functions that create metrics of items. */
export interface ItemMetrics<T> {
  readonly gauge: ItemMetric<T>;
  readonly counter: ItemMetric<T>;
}

/** Returns the functions that create metrics of items. The label of a sample is the name of its item. */
export function itemMetrics<T extends { readonly name?: string | undefined }>(
  label: string,
  items: () => readonly T[],
): ItemMetrics<T> {
  const metricOf =
    (type: Description['type']): ItemMetric<T> =>
    (name, help, read) => ({
      name,
      help,
      type,
      labels: [label],
      samples: () =>
        items().flatMap((item) => {
          const value = read(item);
          return value === undefined ? [] : { value, labels: { [label]: item.name ?? '' } };
        }),
    });
  return { gauge: metricOf('gauge'), counter: metricOf('counter') };
}

/** Returns a duration in seconds. */
export function inSeconds(ms: number | undefined): number | undefined {
  return ms === undefined ? undefined : ms / 1000;
}

/** Returns an ISO 8601 time in seconds since 1970. */
export function timestamp(iso: string | undefined): number | undefined {
  return iso === undefined ? undefined : Date.parse(iso) / 1000;
}
