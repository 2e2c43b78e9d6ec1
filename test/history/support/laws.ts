import fc from 'fast-check';
import { expect } from 'vitest';
import { History } from '../../../src/history/history.ts';
import type { PastClaim } from '../../../src/history/types.ts';
import { IPCache } from '../../../src/ipcache/ipcache.ts';
import type { Claim, KeyedEntry } from '../../../src/ipcache/types.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { attributes, NaiveIPCache, writerName } from '../../ipcache/support/naive-ipcache.ts';
import {
  ADDRESSES,
  apply,
  applyNaively,
  KEYS,
  type Operation,
  history as operations,
} from '../../ipcache/support/operations.ts';
import { NaiveHistory } from './naive-history.ts';
import { itemsOf } from './past-lists.ts';

/** Operations, and the milliseconds that pass before each. */
export const timed: fc.Arbitrary<readonly (readonly [readonly Operation[], number])[]> = fc.array(
  fc.tuple(operations, fc.constantFrom(0, 0, 1, 7, 1500)),
  { maxLength: 3 },
);

export interface Lived {
  readonly clock: ManualClock;
  readonly cache: IPCache;
  readonly recorded: History;
  readonly naive: NaiveHistory;
  readonly model: NaiveIPCache;
}

/** Runs operations on a cache with a history, and on the model with the naive one. */
export function live(
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
export function moments({ naive, clock }: Lived): readonly number[] {
  const [first = 0] = naive.times;
  const all = naive.times.flatMap((at) => [at - 1, at, at + 1]);
  return [...new Set(all)].filter((at) => at >= first && at <= clock.wallTime());
}

/** The claims on a key as text. */
function claimsOn(cache: IPCache, key: string): Map<string, string> {
  return new Map(cache.claimsOf(key).map((claim) => [writerName(claim), attributes(claim)]));
}

/** H3: undoing the changes of a prefix from now on ends at the state of the start. */
export async function H3_undoingEndsAtTheStart(numRuns: number): Promise<void> {
  await fc.assert(
    fc.asyncProperty(operations, operations, async (before, after) => {
      const clock = new ManualClock();
      const cache = new IPCache();
      for (const operation of before) apply(cache, operation);
      const start = new Map(KEYS.map((key) => [key, claimsOn(cache, key)]));
      const history = new History({ ipcache: cache, clock });
      history.start();
      for (const operation of after) apply(cache, operation);
      for (const key of KEYS) {
        const claims = claimsOn(cache, key);
        for (const record of await itemsOf(history.past.of(key))) {
          if (record.key !== key) continue; // of its counterpart
          const name = writerName(record.writer);
          expect(claims.get(name), `${key} ${name}`).toBe(record.after && attributes(record.after));
          if (record.before === undefined) claims.delete(name);
          else claims.set(name, attributes(record.before));
        }
        expect(claims).toEqual(start.get(key));
      }
    }),
    { numRuns },
  );
}

function keyedEntry({ since, until, effective, ...claim }: PastClaim): KeyedEntry {
  return { ...claim, shadowed: false };
}

/** H4: a look-up finds the longest prefix of every retained moment. */
export function H4_findsTheLongestPrefix(retain: boolean, runs: { readonly numRuns?: number }): void {
  fc.assert(
    fc.property(operations, timed, (before, steps) => {
      const lived = live(before, steps, retain);
      const times = moments(lived);
      for (const address of ADDRESSES) {
        const identities = new Uint32Array(times.length);
        lived.recorded.lookupMany(
          times.map(() => address),
          times,
          identities,
        );
        const entries = lived.recorded.lookupEntries(
          times.map(() => address),
          times,
        );
        const found = times.map((at) => lived.recorded.lookup(address, at));
        const keys = times.map((at) => `${address} at ${at}: ${lived.naive.lookup(at, address)}`);
        expect(times.map((at, index) => `${address} at ${at}: ${found[index]?.claims[0]?.key}`)).toEqual(
          keys,
        );
        expect([...identities]).toEqual(found.map((moment) => moment?.effective?.identity ?? 0));
        expect(entries).toEqual(found.map((moment) => moment?.effective && keyedEntry(moment.effective)));
      }
    }),
    runs,
  );
}

/** A claim of a pod whose names do not repeat. */
export function podClaim(i: number): Claim {
  const podName = `checkout-${i.toString(36)}-${((i * 2_654_435_761) >>> 0).toString(36)}`;
  const k8s = { namespace: `shop-${i % 7}`, podName };
  return { identity: 1000 + (i % 50), source: 'kvstore', hostIP: `192.168.0.${i % 200}`, k8s };
}

/** H5: the memory stays below its maximum, and the newest changes are retained. */
export function H5_staysBelowItsMaximum(): void {
  const clock = new ManualClock();
  const cache = new IPCache();
  const memory = 512 * 1024;
  const history = new History({ ipcache: cache, clock, memory });
  history.start();
  for (let i = 0; i < 60_000; i++) {
    if (i % 10 === 0) clock.advance(1);
    const key = `10.0.${(i >> 8) & 255}.${i & 255}`;
    if (i % 3 === 2) cache.delete(key, { source: 'kvstore' });
    else cache.upsert(key, podClaim(i));
    if (i % 500 === 0) expect(history.status().bytes).toBeLessThanOrEqual(memory);
  }
  const { recordsInMemory, records } = history.status();
  expect(records.prefix).toBeGreaterThan(39_000);
  expect(recordsInMemory).toBeGreaterThan(5_000);
  expect(recordsInMemory).toBeLessThan(records.prefix);
  expect(history.at('10.0.0.1', history.retained.from - 1)).toMatchObject({
    certain: false,
    reason: 'not-retained',
    claims: [],
  });
}

/** H6: outcomes and listeners are the same with and without a history. */
export function H6_changesNoOutcome(numRuns: number): void {
  fc.assert(
    fc.property(operations, fc.boolean(), (all, retainOverruled) => {
      const [plain, recorded] = [new IPCache({ retainOverruled }), new IPCache({ retainOverruled })];
      new History({ ipcache: recorded, clock: new ManualClock() }).start();
      const logs = [plain, recorded].map((cache) => {
        const log: unknown[] = [];
        cache.subscribe({ onChanges: (changes) => log.push(changes) });
        cache.subscribeOwners({ onOwnerChanges: (changes) => log.push(changes) });
        return log;
      });
      for (const operation of all) expect(apply(recorded, operation)).toEqual(apply(plain, operation));
      expect(logs[1]).toEqual(logs[0]);
      expect(recorded.status()).toEqual(plain.status());
    }),
    { numRuns },
  );
}
