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

/** Returns the sample of a metric without labels. */
export function singleSample(value: number): readonly Sample[] {
  return [{ value }];
}

/** Returns a sample for each cluster with a value. */
export function byCluster(
  clusters: readonly ClusterMetrics[],
  read: (cluster: ClusterMetrics) => number | undefined,
): readonly Sample[] {
  return clusters.flatMap((cluster) => {
    const value = read(cluster);
    return value === undefined ? [] : { value, labels: { cluster: cluster.name } };
  });
}
