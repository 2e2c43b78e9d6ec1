import { useMemo } from 'preact/hooks';
import type { CausesDocument } from '../../src/api/history-documents.ts';
import { useAnswer } from './ask.ts';
import { type ChangeType, type Feed, RATE_MS } from './feed.ts';
import { isAgent, useShared, useTick } from './live.ts';

/** Changes per second over the last hour, in intervals. Times are seconds since 1970. Null: unknown. */
export interface Rates {
  readonly times: readonly number[];
  readonly prefixes: readonly (number | null)[];
  readonly services: readonly (number | null)[];
  readonly nodes: readonly (number | null)[];
}

/** Number of intervals of an hour. */
const INTERVALS = 3_600_000 / RATE_MS;

const KINDS: Readonly<Record<ChangeType, string>> = { ip: 'prefix', service: 'service', node: 'node' };

/** Returns counts of changes by interval, from groups of the history. The changes of a group are spread over its duration. */
function countsOf({ groups }: CausesDocument, type: ChangeType): ReadonlyMap<number, number> {
  const counts = new Map<number, number>();
  for (const { at, until, kinds } of groups) {
    const count = kinds[KINDS[type]] ?? 0;
    const first = Math.floor(Date.parse(at) / RATE_MS);
    const last = Math.floor(Date.parse(until) / RATE_MS);
    for (let interval = first; interval <= last && count > 0; interval++)
      counts.set(interval * RATE_MS, (counts.get(interval * RATE_MS) ?? 0) + count / (last - first + 1));
  }
  return counts;
}

/** Returns the rates of a type: those of the feed since the page was opened, and before that those of the history. */
function ratesOf(
  feed: Feed,
  past: CausesDocument | undefined,
  type: ChangeType,
  times: readonly number[],
): readonly (number | null)[] {
  const counts = new Map(past === undefined ? [] : countsOf(past, type));
  const opened = (feed.rates[0]?.at ?? 0) + RATE_MS;
  const held = past === undefined ? opened : Date.parse(past.held.from) - RATE_MS;
  for (const { at, counts: own } of feed.rates) if (at >= opened) counts.set(at, own[type]);
  return times.map((at) => (at < held ? null : (counts.get(at) ?? 0) / (RATE_MS / 1_000)));
}

/** Returns the rates of the last hour. The last interval is not complete, so it is left out. */
export function useRates(): Rates {
  const { feed, status } = useShared();
  const tick = useTick(RATE_MS / 2);
  const hasHistory = isAgent(status.document) && status.document.history !== undefined;
  const { document: past } = useAnswer<CausesDocument>(
    hasHistory ? '/v1/history/around?window=3600&limit=1000' : undefined,
    feed.epoch,
  );
  return useMemo(() => {
    const end = Math.floor(Date.now() / RATE_MS) * RATE_MS;
    const times = Array.from({ length: INTERVALS }, (_, at) => end - (INTERVALS - at) * RATE_MS);
    return {
      times: times.map((at) => at / 1_000),
      prefixes: ratesOf(feed, past, 'ip', times),
      services: ratesOf(feed, past, 'service', times),
      nodes: ratesOf(feed, past, 'node', times),
    };
  }, [feed, past, tick]);
}
