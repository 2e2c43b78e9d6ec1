import type { RejectionStatus } from '../../base/rejection.ts';
import { type HealthProblem, SEVERITIES } from '../problems.ts';
import type { ClusterMetrics, ReadModel } from '../read-model.ts';

/** A value of a metric with its labels. */
export interface Sample {
  readonly value: number;
  readonly labels?: Readonly<Record<string, string>>;
}

/** A metric whose samples are read at each scrape. */
export interface Metric {
  readonly type: 'gauge' | 'counter';
  readonly help: string;
  readonly labels?: readonly string[];
  readonly samples: () => Iterable<Sample>;
}

/** Metrics by name. */
export type Metrics = Readonly<Record<string, Metric>>;

/** Sources of the metrics. Many metrics call the same source, so the caller should compute it once per scrape. */
export type MetricSources = {
  readonly [Engine in 'ipcache' | 'services' | 'nodes']: Pick<ReadModel[Engine], 'status'>;
} & Pick<ReadModel, 'status' | 'rejections'> & { readonly clusters: () => readonly ClusterMetrics[] };

/** Returns a metric with a sample for each count. The label of a sample is the name of its count. */
export function countsMetric(
  type: Metric['type'],
  help: string,
  label: string,
  counts: () => Readonly<Record<string, number | undefined>> | undefined,
): Metric {
  return {
    type,
    help,
    labels: [label],
    *samples() {
      for (const [key, value = 0] of Object.entries(counts() ?? {}))
        yield { value, labels: { [label]: key } };
    },
  };
}

/** Returns the metric of the current problems of a process, without samples if they are undefined. */
export function problemsMetric(problems: () => readonly HealthProblem[] | undefined): Metric {
  const help = 'Current problems of the process, as in `/v1/problems`.';
  return countsMetric('gauge', help, 'severity', () => {
    const current = problems();
    const countOf = (name: string): number =>
      current?.filter(({ severity }) => severity === name).length ?? 0;
    return current && Object.fromEntries(SEVERITIES.map((name) => [name, countOf(name)]));
  });
}

/** Returns the metric of the rejected inputs of a process. */
export function rejectionsMetric(rejections: () => Pick<RejectionStatus, 'byReason'>): Metric {
  return countsMetric('counter', 'Rejected inputs by reason.', 'reason', () => rejections().byReason);
}

/** Names of the fields of `T` that are numbers or booleans, and may be undefined. */
type ValueField<T> = {
  [F in keyof T]-?: T[F] extends number | boolean | undefined ? F : never;
}[keyof T];

/**
 * Returns a metric with a sample for each item. The value is a field of the item or the result of `read`. An item
 * without a value has no sample.
 */
type ItemMetric<T> = (
  help: string,
  read: ValueField<T> | ((item: T) => number | boolean | undefined),
) => Metric;

/** Functions that create metrics of items. True is the value 1, false 0. */
export interface ItemMetrics<T> {
  readonly gauge: ItemMetric<T>;
  readonly counter: ItemMetric<T>;
}

function metricsOf<T>(
  labels: readonly string[],
  items: () => readonly T[],
  labelsOf: (item: T) => Readonly<Record<string, string>>,
): ItemMetrics<T> {
  const metricOf =
    (type: Metric['type']): ItemMetric<T> =>
    (help, read) => ({
      type,
      help,
      labels,
      samples: () =>
        items().flatMap((item) => {
          const value: unknown = typeof read === 'function' ? read(item) : item[read];
          return value === undefined ? [] : { value: Number(value), labels: labelsOf(item) };
        }),
    });
  return { gauge: metricOf('gauge'), counter: metricOf('counter') };
}

/** Returns the functions that create metrics of items. The label of a sample is the name of its item. */
export function itemMetrics<T extends { readonly name?: string | undefined }>(
  label: string,
  items: () => readonly T[],
): ItemMetrics<T> {
  return metricsOf([label], items, ({ name = '' }) => ({ [label]: name }));
}

/** Returns the functions that create metrics of a status, without labels. They have no samples without a status. */
export function statusMetrics<T extends object>(status: () => T | undefined): ItemMetrics<T> {
  return metricsOf(
    [],
    () => [status()].filter((one) => one !== undefined),
    () => ({}),
  );
}

export function inSeconds(ms: number | undefined): number | undefined {
  return ms === undefined ? undefined : ms / 1000;
}

/** Returns an ISO 8601 time in seconds since 1970. */
export function timestamp(iso: string | undefined): number | undefined {
  return iso === undefined ? undefined : Date.parse(iso) / 1000;
}
