import type { VNode } from 'preact';
import { useMemo } from 'preact/hooks';
import type { RatesDocument } from '../../src/api/change-rates.ts';
import { useAnswer } from '../agent/ask.ts';
import type { ChangeType } from '../agent/feed.ts';
import { useTick } from '../agent/live.ts';
import { Chart } from '../parts/chart.tsx';
import { Panel } from '../parts/panel.tsx';

const HOUR_MS = 3_600_000;

/** Length of an interval of the agent's counts. */
const INTERVAL_MS = 10_000;

/** The charts: the type of their changes and their title. */
const CHARTS = [
  ['ip', 'Prefixes'],
  ['service', 'Services'],
  ['node', 'Nodes'],
] as const;

/** Shows the changes per second of the last hour. */
export function Charts(): VNode {
  const { document } = useAnswer<RatesDocument>('/v1/rates', useTick(INTERVAL_MS));
  const { times, rates } = useMemo(() => ratesOf(document), [document]);
  return (
    <Panel title="Changes per second, last hour">
      <div class="charts">
        {CHARTS.map(([type, title]) => (
          <Chart key={type} title={title} times={times} values={rates[type]} />
        ))}
      </div>
    </Panel>
  );
}

/**
 * Returns the start of each interval of the last hour in seconds since 1970, and the changes per second of each type;
 * null before the agent started.
 */
function ratesOf(document: RatesDocument | undefined): {
  readonly times: readonly number[];
  readonly rates: Readonly<Record<ChangeType, readonly (number | null)[]>>;
} {
  const { intervalMs = INTERVAL_MS, from, counts } = document ?? {};
  const { ip = [], service = [], node = [] } = counts ?? {};
  const intervals = HOUR_MS / intervalMs;
  const missing = intervals - ip.length;
  const start = (from === undefined ? Date.now() : Date.parse(from)) - missing * intervalMs;
  const ratesOfType = (countsOfType: readonly number[]): readonly (number | null)[] => [
    ...new Array<null>(missing).fill(null),
    ...countsOfType.map((count) => count / (intervalMs / 1_000)),
  ];
  return {
    times: Array.from({ length: intervals }, (_, at) => (start + at * intervalMs) / 1_000),
    rates: { ip: ratesOfType(ip), service: ratesOfType(service), node: ratesOfType(node) },
  };
}
