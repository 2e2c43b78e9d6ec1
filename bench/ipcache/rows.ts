import { medianCost } from '../meter.ts';
import type { Costs } from './lives.ts';
import type { Row } from './report.ts';

const WRITES: ReadonlySet<string> = new Set([
  'fresh',
  'unchanged',
  'identityChange',
  'delete',
  'batch256',
  'churn',
  'mapSet',
]);

/** Suffix of rows in the order of texts, and of their yardsticks. */
export const SORTED = 'Sorted';

/** The rows of the same rounds that are yardsticks. */
export interface Yardsticks {
  readonly writes: string;
  readonly reads: string;
}

/** Returns the medians over the rounds, and their ratios to the medians of the yardsticks. */
export function rowsOf(rounds: readonly Costs[], yardsticks: Yardsticks): Record<string, Row> {
  const median = (name: string): ReturnType<typeof medianCost> =>
    medianCost(rounds.flatMap((costs) => costs[name] ?? []));
  const rows: Record<string, Row> = {};
  for (const name of Object.keys(rounds[0] ?? {})) {
    const { cpuNs, helperNs, wallNs, gcNs } = median(name);
    const [, , plain = '', order = ''] = /^(.*\.)?(.*?)(Sorted)?$/.exec(name) ?? [];
    const yardstick = median((WRITES.has(plain) ? yardsticks.writes : yardsticks.reads) + order);
    const [ratio, wallRatio] = [cpuNs / yardstick.cpuNs, wallNs / yardstick.wallNs];
    rows[name] = { ns: cpuNs, ratio, wallNs, wallRatio, gcNs, helperNs };
  }
  return rows;
}
