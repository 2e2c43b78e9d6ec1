import { useMemo } from 'preact/hooks';
import type { RatesDocument } from '../../src/api/change-rates.ts';
import { useAnswer } from './ask.ts';
import type { ChangeType } from './feed.ts';
import { useTick } from './live.ts';

/**
 * Changes per second over the last hour, in intervals. Times are seconds since 1970. Null: before the agent started.
 */
export interface Rates {
  readonly times: readonly number[];
  readonly prefixes: readonly (number | null)[];
  readonly services: readonly (number | null)[];
  readonly nodes: readonly (number | null)[];
}

const HOUR_MS = 3_600_000;

/** Length of an interval of the agent's counts. */
const INTERVAL_MS = 10_000;

function ratesOf({ intervalMs, from, counts }: RatesDocument): Rates {
  const intervals = HOUR_MS / intervalMs;
  const missing = intervals - counts.ip.length;
  const begin = Date.parse(from) - missing * intervalMs;
  const seriesOf = (type: ChangeType): readonly (number | null)[] => [
    ...new Array<null>(missing).fill(null),
    ...counts[type].map((count) => count / (intervalMs / 1_000)),
  ];
  return {
    times: Array.from({ length: intervals }, (_, at) => (begin + at * intervalMs) / 1_000),
    prefixes: seriesOf('ip'),
    services: seriesOf('service'),
    nodes: seriesOf('node'),
  };
}

/** Returns the rates of the last hour. */
export function useRates(): Rates {
  const { document } = useAnswer<RatesDocument>('/v1/rates', useTick(INTERVAL_MS));
  return useMemo(
    () =>
      ratesOf(
        document ?? {
          intervalMs: INTERVAL_MS,
          from: new Date().toISOString(),
          counts: { ip: [], service: [], node: [] },
        },
      ),
    [document],
  );
}
