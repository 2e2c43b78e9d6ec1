import { useMemo } from 'preact/hooks';
import type { ChangeType } from './feed.ts';
import { RATE_MS } from './feed.ts';
import { useShared, useTick } from './live.ts';

/** Changes per second over the last hour. Times are seconds since 1970. */
export interface Rates {
  readonly times: readonly number[];
  readonly prefixes: readonly number[];
  readonly services: readonly number[];
  readonly nodes: readonly number[];
}

/** Returns the rates since the page was opened, at most of the last hour. The last interval is not complete, so it is left out. */
export function useRates(): Rates {
  const { feed } = useShared();
  const tick = useTick(RATE_MS / 2);
  return useMemo(() => {
    const done = feed.rates.slice(0, -1);
    const of = (type: ChangeType): readonly number[] =>
      done.map(({ counts }) => counts[type] / (RATE_MS / 1_000));
    return {
      times: done.map(({ at }) => at / 1_000),
      prefixes: of('ip'),
      services: of('service'),
      nodes: of('node'),
    };
  }, [feed, tick]);
}
