import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { History } from '../../src/history/history.ts';
import { IPCache } from '../../src/ipcache/ipcache.ts';
import { ManualClock } from '../base/support/manual-clock.ts';
import { NaiveIPCache } from '../ipcache/support/naive-ipcache.ts';
import {
  ADDRESSES,
  apply,
  applyNaively,
  history,
  KEYS,
  type Operation,
} from '../ipcache/support/operations.ts';
import { claimText, NaiveHistory } from './support/naive-history.ts';

/** Each run asks for all keys at all moments, so fewer of them are enough; PROPERTY_RUNS asks for more. */
const RUNS = process.env['PROPERTY_RUNS'] === undefined ? { numRuns: 60 } : {};

/** Operations, and the milliseconds that pass before each. */
const timed = fc.array(fc.tuple(history, fc.constantFrom(0, 0, 1, 7, 1500)), { maxLength: 3 });

interface Lived {
  readonly clock: ManualClock;
  readonly cache: IPCache;
  readonly recorded: History;
  readonly naive: NaiveHistory;
  readonly model: NaiveIPCache;
}

/** Runs operations on a cache with a history, and on the model with the naive one. */
function live(
  before: readonly Operation[],
  steps: readonly (readonly [readonly Operation[], number])[],
  retain = true,
): Lived {
  const clock = new ManualClock();
  clock.setWallTimeBy(1_000_000);
  const cache = new IPCache({ retainOverruled: retain });
  const model = new NaiveIPCache(retain);
  for (const operation of before) {
    apply(cache, operation);
    applyNaively(model, operation);
  }
  const recorded = new History({ ipcache: cache, clock });
  recorded.start();
  const naive = new NaiveHistory();
  naive.note(clock.wallTime(), model);
  for (const [operations, pause] of steps) {
    for (const operation of operations) {
      clock.advance(pause);
      apply(cache, operation);
      applyNaively(model, operation);
      naive.note(clock.wallTime(), model);
    }
  }
  clock.advance(5);
  return { clock, cache, recorded, naive, model };
}

/** The moments worth asking for: each write, directly before and after it. */
function moments({ naive, clock }: Lived): readonly number[] {
  const [first = 0] = naive.times;
  const all = naive.times.flatMap((at) => [at - 1, at, at + 1]);
  return [...new Set(all)].filter((at) => at >= first && at <= clock.wallTime());
}

describe.each([true, false])('history, retainOverruled: %s', (retain) => {
  it('H1: gives the claims of every held moment, as a full copy after each write has them', () => {
    fc.assert(
      fc.property(history, timed, (before, steps) => {
        const lived = live(before, steps, retain);
        const asked = moments(lived).flatMap((at) => KEYS.map((key) => ({ at, key })));
        const texts = asked.map(({ at, key }) => {
          const moment = lived.recorded.at(key, at);
          return `${key} at ${at}: ${moment?.claims.map(claimText)}, ${moment?.certain}`;
        });
        expect(texts).toEqual(
          asked.map(({ at, key }) => `${key} at ${at}: ${lived.naive.claims(at, key)}, true`),
        );
      }),
      RUNS,
    );
  });

  it('H4: finds the longest prefix of every held moment', () => {
    fc.assert(
      fc.property(history, timed, (before, steps) => {
        const lived = live(before, steps, retain);
        const times = moments(lived);
        for (const address of ADDRESSES) {
          const identities = new Uint32Array(times.length);
          lived.recorded.lookupMany(
            times.map(() => address),
            times,
            identities,
          );
          const found = times.map((at) => lived.recorded.lookup(address, at));
          const keys = times.map((at) => `${address} at ${at}: ${lived.naive.lookup(at, address)}`);
          expect(times.map((at, index) => `${address} at ${at}: ${found[index]?.claims[0]?.key}`)).toEqual(
            keys,
          );
          expect([...identities]).toEqual(found.map((moment) => moment?.effective?.identity ?? 0));
        }
      }),
      RUNS,
    );
  });
});
