import fc from 'fast-check';
import { History } from '../../../src/history/history.ts';
import { IPCache } from '../../../src/ipcache/ipcache.ts';
import type { CompleteClaim } from '../../../src/ipcache/row-reader.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { attributes, writerName } from '../../ipcache/support/naive-ipcache.ts';
import { itemsOf } from './past-lists.ts';

const KEYS = ['10.0.0.1', '10.0.0.1/32', '10.0.0.0/24'] as const;
const SOURCES = ['restored', 'kvstore', 'k8s'] as const;

const step = fc.record({
  op: fc.constantFrom('upsert', 'upsert', 'upsert', 'delete', 'release', 'lose'),
  key: fc.constantFrom(...KEYS),
  source: fc.constantFrom(...SOURCES),
  identity: fc.constantFrom(100, 200),
});

/** Above the rate that is recorded for five seconds. */
const BURST = 20_001;

/** Changes so many other keys that the next changes are not recorded until the next second. */
function exceedRate(cache: IPCache, clock: ManualClock): void {
  for (let second = 0; second < 6; second++) {
    clock.advance(1000);
    for (let i = 0; i < (second < 5 ? BURST : 1); i++)
      cache.upsert(`10.9.0.${i % 250}`, { source: 'kvstore', identity: 1 + ((i + second) % 2) });
  }
}

function text(claim: CompleteClaim | undefined): string | undefined {
  return claim && `${writerName(claim)} ${attributes(claim)}`;
}

/** The visible claim of the prefix of each key. */
function visibleClaims(cache: IPCache): ReadonlyMap<string, string | undefined> {
  const first = (key: string): CompleteClaim | undefined => cache.claimsOf(key)[0];
  const address = first(KEYS[0]) ?? first(KEYS[1]);
  return new Map(KEYS.map((key) => [key, text(key === KEYS[2] ? first(key) : address)]));
}

/**
 * H2: the visible claims that a record lists are right or absent, although restored claims are released without a
 * record, and changes are lost.
 */
export async function H2_visibleClaimsAreRight(numRuns: number, seed?: number): Promise<number> {
  let listed = 0;
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 14 }), async (steps) => {
      const clock = new ManualClock();
      const cache = new IPCache();
      const history = new History({ ipcache: cache, clock });
      history.start();
      /** The visible claims before and after the write of a record, by sequence number. */
      const before = new Map<number, ReturnType<typeof visibleClaims>>();
      const after = new Map<number, ReturnType<typeof visibleClaims>>();
      let bursts = 0;
      for (const { op, key, source, identity } of steps) {
        clock.advance(7);
        const state = visibleClaims(cache);
        const [last] = await itemsOf(history.past.records({ limit: 1 }));
        if (op === 'upsert') cache.upsert(key, { source, identity });
        else if (op === 'delete') cache.delete(key, { source });
        else if (op === 'release') cache.withdraw({ source: 'restored' });
        else if (bursts++ === 0) exceedRate(cache, clock);
        const records = await itemsOf(
          history.past.records({ fromSequence: (last?.sequence ?? 0) + 1, limit: 3 }),
        );
        if (op === 'lose' || records.length !== 1) continue;
        for (const { sequence } of records) {
          before.set(sequence, state);
          after.set(sequence, visibleClaims(cache));
        }
      }
      for (const key of KEYS) {
        for (const { sequence, effective } of await itemsOf(history.past.of(key))) {
          if (effective === undefined || !before.has(sequence)) continue;
          listed++;
          const got = [text(effective.before), text(effective.after)];
          const expected = [before.get(sequence)?.get(key), after.get(sequence)?.get(key)];
          if (got.join(' → ') !== expected.join(' → '))
            throw new Error(`${key} at #${sequence}: ${got.join(' → ')}, not ${expected.join(' → ')}`);
        }
      }
    }),
    { numRuns, endOnFailure: true, ...(seed !== undefined && { seed }) },
  );
  return listed;
}
