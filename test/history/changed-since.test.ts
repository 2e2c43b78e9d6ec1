import fc from 'fast-check';
import { expect, it } from 'vitest';
import { TurnGate } from '../../src/base/turn-gate.ts';
import { History } from '../../src/history/history.ts';
import { IPCache } from '../../src/ipcache/ipcache.ts';
import { prefixOfKey } from '../../src/net/prefix.ts';
import { ManualClock, WALL_TIME_AT_0 } from '../base/support/manual-clock.ts';
import { attributes } from '../ipcache/support/naive-ipcache.ts';
import { apply, history as operations } from '../ipcache/support/operations.ts';

type Visible = Readonly<Record<string, string>>;

function visibleOf(cache: IPCache): Visible {
  return Object.fromEntries(
    Array.from(cache.snapshot().entries(), (entry) => [
      prefixOfKey(entry.key),
      `${entry.key} ${attributes(entry)}`,
    ]),
  );
}

/** Returns all prefixes at a moment. */
async function visibleAt(cache: IPCache, history: History, at: number): Promise<Visible> {
  const now = visibleOf(cache);
  const changed = await history.past.changedSince(at, 1e6);
  if (typeof changed === 'string') throw new Error(changed);
  const then = Array.from(changed.prefixes, ([prefix, claim]) =>
    claim === undefined ? [prefix, undefined] : [prefix, `${claim.key} ${attributes(claim)}`],
  );
  const all = { ...now, ...Object.fromEntries(then) } as Record<string, string | undefined>;
  return JSON.parse(JSON.stringify(all)) as Visible;
}

it('H4: a snapshot and the prefixes that changed since are all prefixes of a moment', async () => {
  await fc.assert(
    fc.asyncProperty(operations, fc.array(operations, { maxLength: 4 }), async (before, rounds) => {
      const clock = new ManualClock();
      const cache = new IPCache();
      for (const operation of before) apply(cache, operation);
      const history = new History({ ipcache: cache, clock });
      history.start();
      const copies: (readonly [number, Visible])[] = [[clock.wallTime(), visibleOf(cache)]];
      for (const round of rounds) {
        clock.advance(2);
        for (const operation of round) apply(cache, operation);
        copies.push([clock.wallTime() + 1, visibleOf(cache)]);
      }
      clock.advance(2);
      for (const [at, copy] of copies) expect(await visibleAt(cache, history, at)).toEqual(copy);
    }),
    { numRuns: 200 },
  );
});

it('changes during the question are not part of its answer', async () => {
  const clock = new ManualClock();
  const cache = new IPCache();
  const key = (i: number): string => `10.0.${i >> 8}.${i & 255}`;
  const two = [
    { source: 'k8s', identity: 1 },
    { source: 'kvstore', identity: 2 },
  ] as const;
  for (let i = 0; i < 4000; i++) for (const claim of two) cache.upsert(key(i), claim);
  let writes = 0;
  const gate = new TurnGate({
    clock,
    weightPerTurn: 1,
    nextTurn: (callback) =>
      setImmediate(() => {
        // The stronger claim has not changed before: its value at the moment is only in these records.
        for (let n = 0; n < 700; n++) cache.delete(key((writes * 37) % 5000), two[writes++ % 2] ?? two[0]);
        callback();
      }),
  });
  const history = new History({ ipcache: cache, clock, gate });
  history.start();
  clock.advance(1);
  const at = clock.wallTime();
  const copy = visibleOf(cache);
  clock.advance(1);
  for (let i = 0; i < 3000; i++) cache.upsert(key(i), { source: 'k8s', identity: 5 });
  for (let i = 4000; i < 4500; i++) cache.upsert(key(i), { source: 'kvstore', identity: 6 });
  clock.advance(1);
  expect(await visibleAt(cache, history, at)).toEqual(copy);
  expect(writes).toBeGreaterThan(2000);
});

it('changes by another callback of the turn of the gate are not part of its answer (regression: they were)', async () => {
  const clock = new ManualClock();
  const cache = new IPCache();
  const key = (i: number): string => `10.0.${i >> 8}.${i & 255}`;
  let turns = 0;
  const gate = new TurnGate({
    clock,
    weightPerTurn: 1,
    nextTurn: (callback) =>
      setImmediate(() => {
        callback();
        // Runs after the promise of the query has resolved, like the work of other producers that wait at the gate.
        queueMicrotask(() => {
          for (let i = turns++ % 40; i < 2000; i += 40) cache.upsert(key(i), { source: 'k8s', identity: 7 });
        });
      }),
  });
  const history = new History({ ipcache: cache, clock, gate });
  for (let i = 0; i < 2000; i++) cache.upsert(key(i), { source: 'k8s', identity: 1 });
  history.start();
  clock.advance(1);
  const at = clock.wallTime();
  const copy = visibleOf(cache);
  clock.advance(1);
  for (let i = 0; i < 2000; i++) cache.upsert(key(i), { source: 'kvstore', identity: 6 });
  clock.advance(1);
  expect(await visibleAt(cache, history, at)).toEqual(copy);
  expect(turns).toBeGreaterThan(20);
});

it('many changes during the question are added in several turns (regression: all in one)', async () => {
  const clock = new ManualClock();
  const cache = new IPCache();
  const upsert = (identity: number): void => {
    cache.upsert('10.0.0.1', { source: 'k8s', identity });
  };
  let turns = 0;
  const gate = new TurnGate({
    clock,
    weightPerTurn: 1,
    nextTurn: (callback) =>
      setImmediate(() => {
        if (turns++ === 0) for (let i = 0; i < 30_000; i++) upsert(1000 + i);
        callback();
      }),
  });
  const history = new History({ ipcache: cache, clock, gate });
  upsert(1);
  history.start();
  clock.advance(1);
  const at = clock.wallTime();
  clock.advance(1);
  for (let i = 0; i < 800; i++) upsert(2 + i);
  const changed = await history.past.changedSince(at, 10);
  if (typeof changed === 'string') throw new Error(changed);
  expect(changed.prefixes.get('10.0.0.1/32')?.identity).toBe(1);
  expect(turns).toBeGreaterThan(10);
});

it('is not certain if changes during the question are dropped before they are added', async () => {
  const clock = new ManualClock();
  const cache = new IPCache();
  const upsert = (i: number, identity: number): void => {
    cache.upsert(`10.0.${i >> 8}.${i & 255}`, { source: 'k8s', identity });
  };
  let turns = 0;
  const gate = new TurnGate({
    clock,
    weightPerTurn: 1,
    nextTurn: (callback) =>
      setImmediate(() => {
        if (turns++ === 0) for (let i = 0; i < 20_000; i++) upsert(i, 2);
        callback();
      }),
  });
  const history = new History({ ipcache: cache, clock, gate, memory: 1 << 18 });
  history.start();
  clock.advance(1);
  const at = clock.wallTime();
  clock.advance(1);
  for (let i = 0; i < 800; i++) upsert(i, 1);
  expect(await history.past.changedSince(at, 1e6)).toMatchObject({ certain: false, reason: 'lost' });
});

it('of a moment before the process, or with too many changes, there is no list', async () => {
  const clock = new ManualClock();
  const cache = new IPCache();
  const history = new History({ ipcache: cache, clock });
  history.start();
  clock.advance(1);
  for (let i = 0; i < 10; i++) cache.upsert(`10.0.0.${i}`, { source: 'k8s', identity: 1 });
  expect(await history.past.changedSince(WALL_TIME_AT_0 - 1, 100)).toBe('earlier');
  expect(await history.past.changedSince(WALL_TIME_AT_0, 9)).toBe('too-many');
});
