import type { ClusterFigures, ReadModel } from '../read-model.ts';

/** One value of a metric, with its labels. */
export interface Sample {
  readonly value: number;
  readonly labels?: Readonly<Record<string, string>>;
}

/** A metric that is read from the agent when it is scraped. */
export interface Description {
  readonly name: string;
  readonly help: string;
  readonly type: 'gauge' | 'counter';
  readonly labels?: readonly string[];
  readonly samples: () => Iterable<Sample>;
}

/** What the metrics are read from: each status is asked for once a scrape, however many of them are made of it. */
export type Readings = {
  readonly [Engine in 'ipcache' | 'services' | 'nodes']: Pick<ReadModel[Engine], 'status'>;
} & Pick<ReadModel, 'status' | 'rejections'> & { readonly figures: () => readonly ClusterFigures[] };

/** A sample of each count, its name as the label. */
export function* byLabel(
  label: string,
  counts: Readonly<Record<string, number | undefined>>,
): Generator<Sample> {
  for (const [name, value = 0] of Object.entries(counts)) yield { value, labels: { [label]: name } };
}

/** The sample of a metric without labels. */
export function one(value: number): readonly Sample[] {
  return [{ value }];
}

/** A sample of each cluster of which there is a value. */
export function known(
  clusters: readonly ClusterFigures[],
  read: (cluster: ClusterFigures) => number | undefined,
): readonly Sample[] {
  return clusters.flatMap((cluster) => {
    const value = read(cluster);
    return value === undefined ? [] : { value, labels: { cluster: cluster.name } };
  });
}
