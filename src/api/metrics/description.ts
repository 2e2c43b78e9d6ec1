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

/** Yields a sample for each count, with its name as the label. */
export function* byLabel(
  label: string,
  counts: Readonly<Record<string, number | undefined>>,
): Generator<Sample> {
  for (const [name, value = 0] of Object.entries(counts)) yield { value, labels: { [label]: name } };
}

/** Returns the sample of a metric without labels; none if there is no value. */
export function singleSample(value: number | undefined): readonly Sample[] {
  return value === undefined ? [] : [{ value }];
}

/** Returns a sample for each item with a value, with the name of the item as the label. */
export function byName<T extends { readonly name?: string | undefined }>(
  label: string,
  items: readonly T[],
  read: (item: T) => number | undefined,
): readonly Sample[] {
  return items.flatMap((item) => {
    const value = read(item);
    return value === undefined ? [] : { value, labels: { [label]: item.name ?? '' } };
  });
}

/** Returns a duration in seconds. */
export function inSeconds(ms: number | undefined): number | undefined {
  return ms === undefined ? undefined : ms / 1000;
}

/** Returns an ISO 8601 time in seconds since 1970. */
export function timestamp(iso: string | undefined): number | undefined {
  return iso === undefined ? undefined : Date.parse(iso) / 1000;
}
