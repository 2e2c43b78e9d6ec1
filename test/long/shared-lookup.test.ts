import { expect, it } from 'vitest';
import { checkedReader, checkInThreads } from '../sharedlookup/support/checked-threads.ts';

/** Pairs of look-ups of each worker; with those of `lookupMany`, four look-ups for each pair. */
const PAIRS = 9_000_000;

it.each([64, 4096])(
  'finds nothing torn or stale in 10^8 look-ups of three workers among %d keys',
  async (keys) => {
    const reports = await checkInThreads(await checkedReader(), { workers: 3, pairs: PAIRS, keys });
    expect(reports.flatMap(({ faults }) => faults)).toEqual([]);
    expect(reports.reduce((sum, { lookups }) => sum + lookups, 0)).toBeGreaterThan(1e8);
  },
);
