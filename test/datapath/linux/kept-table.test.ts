import fc from 'fast-check';
import { describe, expect, it, vi } from 'vitest';
import { deferred } from '../../../src/base/sleep.ts';
import { keptItems } from '../../../src/datapath/linux/kept-items.ts';
import { KeptTable } from '../../../src/datapath/linux/kept-table.ts';
import type { KernelTable } from '../../../src/datapath/linux/kernel-table.ts';
import { FakeTable, ManualTurns } from './support/fake-table.ts';

function setUp(
  found: Record<string, string> = {},
  wanted: Record<string, string> = {},
  options: Partial<ConstructorParameters<typeof KeptTable>[2]> = {},
) {
  const table = new FakeTable();
  for (const [key, item] of Object.entries(found)) table.there.set(key, item);
  const desired = new Map(Object.entries(wanted));
  const turns = new ManualTurns();
  const { clock, random, nextTurn } = turns;
  const kept = new KeptTable(table, desired, { clock, random, nextTurn, ...options });
  const set = (key: string, item: string | undefined): void => {
    if (item === undefined) desired.delete(key);
    else desired.set(key, item);
    kept.mark(key);
  };
  return { table, desired, turns, kept, set };
}

/** Returns a table whose delete of the key `a` is never allowed. */
async function withWaitingDelete() {
  const made = setUp({}, { a: '1' }, { whenDeletesAllowed: () => new Promise<void>(() => {}) });
  await made.turns.until(made.kept.adopt());
  made.kept.allowDeletes();
  await made.turns.settle();
  made.set('a', undefined);
  await made.turns.settle();
  return made;
}

const contentOf = (table: FakeTable): Record<string, string> => Object.fromEntries([...table.there].sort());

describe('a kept table', () => {
  it('writes the desired items when its turn comes: several changes of one key become one', async () => {
    const { table, turns, kept, set } = setUp();
    await turns.until(kept.adopt());
    for (const item of ['1', '2', '3']) set('a', item);
    set('b', '1');
    set('b', undefined);
    await turns.settle();
    expect(table.calls).toEqual([['+ a 3']]);
    set('a', undefined);
    kept.allowDeletes();
    await turns.settle();
    expect(kept.status()).toMatchObject({ upserts: 1, deletes: 1 });
  });

  it('does not delete an item that is desired again before its delete', async () => {
    const keys = Array.from({ length: 600 }, (_, at) => `k${at}`);
    const there = Object.fromEntries(keys.map((key) => [key, '1']));
    const { table, desired, turns, kept, set } = setUp({}, there);
    await turns.until(kept.adopt());
    await turns.settle();
    kept.allowDeletes();
    for (const key of keys) set(key, undefined);
    await turns.turn();
    await turns.turn();
    const left = keys.filter((key) => table.there.has(key));
    expect(left.length).toBeGreaterThan(100);
    for (const key of left.slice(0, 50)) set(key, '2');
    await turns.settle();
    expect(contentOf(table)).toEqual(
      Object.fromEntries(
        left
          .slice(0, 50)
          .sort()
          .map((key) => [key, '2']),
      ),
    );
    expect(desired.size).toBe(50);
    expect(kept.status()).toMatchObject({ pending: 0, actual: 50, upserts: 650 }); // each written once more
  });

  it('does not count an item among the unconfirmed keys when it is desired again', async () => {
    const desired = new Map([['a', '1']]);
    const turns = new ManualTurns();
    const { clock, random, nextTurn } = turns;
    const whenDeletesAllowed = (): Promise<void> => new Promise(() => {});
    const kept = new KeptTable(new FakeTable(), desired, { clock, random, nextTurn, whenDeletesAllowed });
    await turns.until(kept.adopt());
    await turns.settle();
    kept.allowDeletes();
    desired.delete('a');
    kept.mark('a');
    await turns.settle();
    expect(kept.status().waiting).toBe(1);
    desired.set('a', '2');
    kept.mark('a');
    await turns.settle();
    expect(kept.status().waiting).toBe(0);
  });

  it('deletes items found after other deletes waited, after a hold of its own', async () => {
    const table = new FakeTable();
    const turns = new ManualTurns();
    const desired = new Map([
      ['a', '1'],
      ['b', '1'],
    ]);
    const holds: (() => void)[] = [];
    const whenDeletesAllowed = (): Promise<void> => new Promise((resolve) => void holds.push(resolve));
    const { clock, random, nextTurn } = turns;
    const kept = new KeptTable(table, desired, { clock, random, nextTurn, whenDeletesAllowed });
    await turns.until(kept.adopt());
    await turns.settle();
    kept.allowDeletes();
    for (const [key, hold] of [
      ['a', 1],
      ['b', 1],
    ] as const) {
      desired.delete(key);
      kept.mark(key);
      await turns.settle();
      expect([key, holds.length, kept.status().waiting]).toEqual([key, hold, key === 'a' ? 1 : 2]);
    }
    holds.shift()?.();
    await turns.settle();
    expect([contentOf(table), holds.length]).toEqual([{ b: '1' }, 1]);
    holds.shift()?.();
    await turns.settle();
    expect([contentOf(table), holds.length, kept.status().pending]).toEqual([{}, 0, 0]);
  });

  it.each([
    ['asks again', false, [{}, 2]],
    ['does not ask again after it was closed', true, [{ a: '1' }, 1]],
  ])(
    'holds deletes if it cannot determine whether they are allowed, and %s (regression: an unhandled rejection)',
    async (_what, isClosed, expected) => {
      const table = new FakeTable();
      const turns = new ManualTurns();
      const desired = new Map([['a', '1']]);
      let calls = 0;
      const whenDeletesAllowed = (): Promise<void> =>
        ++calls === 1 ? Promise.reject(new Error('no answer')) : Promise.resolve();
      const { clock, random, nextTurn } = turns;
      const kept = new KeptTable(table, desired, { clock, random, nextTurn, whenDeletesAllowed });
      await turns.until(kept.adopt());
      await turns.settle();
      kept.allowDeletes();
      desired.delete('a');
      kept.mark('a');
      await turns.settle();
      expect([contentOf(table), calls]).toEqual([{ a: '1' }, 1]);
      if (isClosed) kept[Symbol.dispose]();
      clock.advance(1000);
      await turns.settle();
      expect([contentOf(table), calls]).toEqual(expected);
    },
  );

  it('queues few deletes in a turn when their wait ends (regression: all in one turn)', async () => {
    const keys = Array.from({ length: 5000 }, (_, at) => `k${at}`);
    const wanted = Object.fromEntries(keys.map((key) => [key, '1']));
    const { promise: allowed, resolve: allow } = deferred();
    const { table, turns, kept, set } = setUp(wanted, wanted, { whenDeletesAllowed: () => allowed });
    await turns.until(kept.adopt());
    kept.allowDeletes();
    for (const key of keys) set(key, undefined);
    await turns.settle();
    let { waiting } = kept.status();
    expect(waiting).toBe(5000);
    let isOver = false;
    void kept.flushed().then(() => {
      isOver = true;
    });
    allow();
    while (!isOver) {
      await turns.turn();
      const next = kept.status();
      expect(waiting - next.waiting).toBeLessThanOrEqual(2048);
      expect(next.pending).toBe(table.there.size);
      waiting = next.waiting;
    }
    expect([waiting, table.there.size]).toEqual([0, 0]);
  });

  it('marks few keys in a turn for allowed deletes and for a repair (regression: all in one turn)', async () => {
    const keys = Array.from({ length: 3000 }, (_, at) => `k${at}`);
    const { table, desired, turns, kept } = setUp(Object.fromEntries(keys.map((key) => [key, '1'])));
    await turns.until(kept.adopt());
    let marks = 0;
    const mark = kept.mark.bind(kept);
    kept.mark = (key) => {
      marks++;
      mark(key);
    };
    const expectFew = async (isOver: () => boolean): Promise<void> => {
      while (!isOver()) {
        expect(marks).toBeLessThanOrEqual(512);
        marks = 0;
        await turns.turn();
      }
    };
    kept.allowDeletes();
    expect(kept.status().pending).toBeGreaterThanOrEqual(3000);
    let isOver = false;
    void kept.flushed().then(() => {
      isOver = true;
    });
    await expectFew(() => isOver);
    expect([table.there.size, kept.status().pending]).toEqual([0, 0]);
    for (const key of keys) desired.set(key, '1');
    isOver = false;
    const repaired = kept.repair().finally(() => {
      isOver = true;
    });
    await expectFew(() => isOver);
    expect([table.there.size, (await repaired).length]).toEqual([3000, 3000]);
  });

  it('sorts and prints few differences in a turn (regression: all in one turn)', async () => {
    const keys = Array.from({ length: 3000 }, (_, at) => `k${at}`);
    const { table, turns, kept } = setUp({}, Object.fromEntries(keys.map((key) => [key, '1'])));
    await turns.until(kept.adopt());
    kept.allowDeletes();
    await turns.settle();
    for (const key of keys.splice(0, 2000)) table.there.delete(key);
    for (let at = 0; at < 1000; at++) table.there.set(`foreign-${at}`, '2');
    let calls = 0;
    table.order = (key) => {
      calls++;
      return Number(key.at(-1));
    };
    table.print = (item) => {
      calls++;
      return item;
    };
    const items = keptItems(table, kept);
    let isOver = false;
    const planned = items.plan().finally(() => {
      isOver = true;
    });
    while (!isOver) {
      calls = 0;
      await turns.turn();
      expect(calls).toBeLessThanOrEqual(512);
    }
    const steps = await planned;
    expect(steps.length).toBe(3000);
    expect(steps).toEqual([
      ...steps.slice(0, 2000).sort((a, b) => Number(a.key.at(-1)) - Number(b.key.at(-1))),
      ...steps.slice(2000).sort((a, b) => Number(b.key.at(-1)) - Number(a.key.at(-1))),
    ]);
    expect(steps.slice(1998, 2002)).toMatchObject([
      { kernel: undefined, cache: '1' },
      { kernel: undefined, cache: '1' },
      { kernel: '2', cache: undefined },
      { kernel: '2', cache: undefined },
    ]);
  });

  it('drops few deletes in a turn if their items are desired again (regression: all in one turn)', async () => {
    const keys = Array.from({ length: 3000 }, (_, at) => `k${at}`);
    const { table, desired, turns, kept, set } = setUp({}, Object.fromEntries(keys.map((key) => [key, '1'])));
    await turns.until(kept.adopt());
    await turns.settle();
    for (const key of keys) set(key, undefined);
    while (table.there.size === 3000) await turns.turn();
    for (const key of keys) desired.set(key, '1');
    let reads = 0;
    desired.get = (key) => {
      reads++;
      return Map.prototype.get.call(desired, key);
    };
    do {
      expect(reads).toBeLessThanOrEqual(512);
      reads = 0;
    } while (await turns.turn());
    // The deletes before the change are not undone, because no change was reported.
    expect(table.there.size).toBe(3000 - 256);
  });

  it('writes at most 256 items in a turn', async () => {
    const { table, turns, kept, set } = setUp();
    await turns.until(kept.adopt());
    for (let i = 0; i < 1000; i++) set(`k${i}`, 'x');
    await turns.turn();
    expect(kept.status()).toMatchObject({ pending: 744, actual: 256 });
    await turns.settle();
    expect(table.calls.map(({ length }) => length)).toEqual([256, 256, 256, 232]);
  });

  it('writes upserts by ascending order, then deletes by descending order', async () => {
    const { table, turns, kept, set } = setUp({ 'old-0': 'x', 'old-1': 'x', 'old-2': 'x' });
    table.order = (key) => Number(key.at(-1));
    await turns.until(kept.adopt());
    kept.allowDeletes();
    for (const key of ['new-2', 'new-0', 'new-1']) set(key, 'x');
    await turns.settle();
    expect(table.calls.flat()).toEqual([
      ...['+ new-0 x', '+ new-1 x', '+ new-2 x', '- old-2', '- old-1', '- old-0'],
    ]);
  });

  it('writes all found keys before it deletes one, and deletes them by order (regression: 256 in each turn)', async () => {
    const keys = Array.from({ length: 600 }, (_, at) => `k${at}`);
    const { table, turns, kept } = setUp(
      Object.fromEntries(keys.map((key) => [key, '1'])),
      { k599: '2' },
      { isComplete: () => false },
    );
    table.order = (key) => (key === 'k0' ? 0 : 1);
    await turns.until(kept.adopt());
    kept.allowDeletes();
    await turns.settle();
    const calls = table.calls.flat();
    expect([calls[0], calls.at(-1), calls.length]).toEqual(['+ k599 2', '- k0', 600]);
  });

  it('writes nothing before it has read the table, and nothing that is already correct', async () => {
    const { table, turns, kept, set } = setUp({ a: '1', b: '1', d: '1' }, { a: '1', b: '2' });
    set('c', '1');
    set('d', '1');
    await turns.settle();
    expect(table.calls).toEqual([]);
    await turns.until(kept.adopt());
    await turns.settle();
    expect(table.calls.flat().sort()).toEqual(['+ b 2', '+ c 1']);
  });

  it('uses no turn for correct items, and follows changes during a comparison', async () => {
    const wanted = Object.fromEntries(Array.from({ length: 1000 }, (_, i) => [`k${i}`, '1']));
    const { table, turns, kept, set } = setUp(wanted, wanted);
    const adopted = kept.adopt();
    for (let i = 0; i < 8; i++) await turns.turn();
    set('k0', '2');
    set('k999', '2');
    set('k1', undefined);
    await turns.until(adopted);
    expect(kept.status()).toMatchObject({ unconfirmed: 0, pending: 3 });
    await turns.settle();
    expect(table.calls.flat().sort()).toEqual(['+ k0 2', '+ k999 2', '- k1']);
  });

  it('deletes no found item before deletes are allowed, and then all that are not desired', async () => {
    const { table, turns, kept, set } = setUp({ a: '1', b: '1', c: '1' });
    await turns.until(kept.adopt());
    set('a', '1');
    kept.mark('b');
    await turns.settle();
    expect(table.calls).toEqual([]);
    expect(kept.status()).toMatchObject({ state: 'adopting', unconfirmed: 2, actual: 3 });
    kept.allowDeletes();
    await turns.settle();
    expect(contentOf(table)).toEqual({ a: '1' });
    expect(kept.status()).toMatchObject({ state: 'in-sync', unconfirmed: 0, actual: 1, deletes: 2 });
  });

  it('deletes an item that was found and confirmed, even while the others are unconfirmed', async () => {
    const { table, turns, kept, set } = setUp({ a: '1', b: '1' });
    await turns.until(kept.adopt());
    set('a', '1');
    await turns.settle();
    set('a', undefined);
    await turns.settle();
    expect(contentOf(table)).toEqual({ b: '1' });
  });

  it('writes a found item again that was deleted since', async () => {
    const { table, turns, kept, set } = setUp({ a: '1' });
    await turns.until(kept.adopt());
    kept.allowDeletes();
    await turns.settle();
    expect(contentOf(table)).toEqual({});
    set('a', '1');
    await turns.settle();
    expect(contentOf(table)).toEqual({ a: '1' });
  });

  it('deletes an item later that it could not evict, and was not desired any more', async () => {
    const { table, turns, kept, set } = setUp({}, { weak: '1' });
    table.capacity = 1;
    table.rank = (_key, item) => Number(item);
    await turns.until(kept.adopt());
    await turns.settle();
    table.broken.add('weak');
    set('strong', '2');
    await turns.settle();
    expect(kept.status()).toMatchObject({ actual: 1, failing: 1, noRoom: 1 });
    table.broken.clear();
    set('weak', undefined);
    await turns.settle();
    turns.clock.advance(60_000);
    await turns.settle();
    expect(contentOf(table)).toEqual({ strong: '2' });
  });

  it('retries failures by itself, and reports the reason', async () => {
    const { table, turns, kept, set } = setUp();
    const retried = vi.spyOn(table, 'apply');
    const retries = (): unknown =>
      retried.mock.calls.flatMap(([changes]) => changes.map(({ key, isRetry }) => [key, isRetry]));
    await turns.until(kept.adopt());
    table.broken.add('bad');
    set('bad', '1');
    set('good', '1');
    await turns.settle();
    expect(contentOf(table)).toEqual({ good: '1' });
    expect(kept.status()).toMatchObject({
      state: 'degraded',
      failing: 1,
      failures: [{ key: 'bad', reason: 'fake: EPERM', attempts: 1 }],
    });
    turns.clock.advance(60_000);
    await turns.settle();
    expect(kept.status().failures[0]?.attempts).toBe(2);
    table.broken.clear();
    turns.clock.advance(60_000);
    await turns.settle();
    expect(contentOf(table)).toEqual({ bad: '1', good: '1' });
    expect(kept.status()).toMatchObject({ state: 'adopting', failing: 0 });
    expect(turns.clock.pending).toBe(0);
    set('bad', '2');
    await turns.settle();
    expect(retries()).toEqual([
      ['bad', false],
      ['good', false],
      ['bad', true],
      ['bad', true],
      ['bad', false],
    ]);
  });

  it('writes the items that fit if the table is full, and the others when there is room', async () => {
    const { table, turns, kept, set } = setUp();
    table.capacity = 2;
    await turns.until(kept.adopt());
    kept.allowDeletes();
    for (const key of ['a', 'b', 'c', 'd']) set(key, '1');
    await turns.settle();
    set('a', '2');
    await turns.settle();
    expect(contentOf(table)).toEqual({ a: '2', b: '1' });
    expect(kept.status()).toMatchObject({ state: 'degraded', noRoom: 2, noRoomErrors: 2, pressure: 1 });
    set('a', undefined);
    await turns.settle();
    expect(table.there.size).toBe(2);
    set('b', undefined);
    await turns.settle();
    expect(contentOf(table)).toEqual({ c: '1', d: '1' });
    expect(kept.status()).toMatchObject({ state: 'in-sync', noRoom: 0 });
  });

  it('deletes found items that are not desired if deletes were allowed before it has read them', async () => {
    const { table, turns, kept } = setUp({ a: '1', b: '1' }, { a: '1' });
    kept.allowDeletes();
    await turns.until(kept.adopt());
    await turns.settle();
    expect(contentOf(table)).toEqual({ a: '1' });
  });

  it('applies a partly applied change again', async () => {
    const { table, turns, kept, set } = setUp({}, { a: '1' });
    await turns.until(kept.adopt());
    kept.allowDeletes();
    await turns.settle();
    const apply = vi.spyOn<KernelTable<string>, 'apply'>(table, 'apply');
    apply.mockReturnValueOnce(['unfinished']);
    set('b', '1');
    await turns.settle();
    expect(contentOf(table)).toEqual({ a: '1', b: '1' });
    apply.mockReturnValueOnce(['unfinished']);
    set('a', undefined);
    await turns.settle();
    expect(contentOf(table)).toEqual({ b: '1' });
    expect(kept.status()).toMatchObject({ pending: 0, actual: 1, failing: 0 });
  });

  it('compares the items again when only their ranks change', async () => {
    const ranks = new Map([
      ['a', 2],
      ['b', 1],
    ]);
    const { table, turns, kept, set } = setUp();
    table.capacity = 1;
    table.rank = (key) => ranks.get(key) ?? 0;
    await turns.until(kept.adopt());
    set('a', '1');
    await turns.settle();
    set('b', '1');
    await turns.settle();
    expect(contentOf(table)).toEqual({ a: '1' });
    for (const [rank, expected] of [
      [0, { b: '1' }],
      [3, { a: '1' }],
    ] as const) {
      ranks.set('a', rank);
      kept.rerank('a');
      await turns.settle();
      expect(contentOf(table)).toEqual(expected);
    }
  });

  it('replaces weaker items by stronger ones', async () => {
    const { table, turns, kept, set } = setUp();
    table.capacity = 2;
    table.rank = (_key, item) => Number(item);
    await turns.until(kept.adopt());
    set('weak', '1');
    set('middle', '2');
    await turns.settle();
    set('strong', '3');
    set('weakest', '0');
    await turns.settle();
    expect(contentOf(table)).toEqual({ middle: '2', strong: '3' });
    set('strong', undefined);
    await turns.settle();
    expect(contentOf(table)).toEqual({ middle: '2', weak: '1' });
  });

  it('replaces no found item that is not confirmed', async () => {
    const { table, turns, kept, set } = setUp({ found: '0' });
    table.capacity = 1;
    table.rank = (_key, item) => Number(item);
    await turns.until(kept.adopt());
    set('strong', '9');
    await turns.settle();
    expect(contentOf(table)).toEqual({ found: '0' });
    kept.allowDeletes();
    await turns.settle();
    expect(contentOf(table)).toEqual({ strong: '9' });
  });

  it('replaces weaker items by a stronger one that came before they were confirmed', async () => {
    const { table, turns, kept } = setUp({ a: '1', b: '2' }, { strong: '9', a: '1', b: '2' });
    Object.assign(table, { capacity: 2, chunk: 1, rank: (_key: string, item: string) => Number(item) });
    await turns.until(kept.adopt());
    await turns.settle();
    expect(contentOf(table)).toEqual({ b: '2', strong: '9' });
    expect(kept.status()).toMatchObject({ noRoom: 1 });
  });

  it('writes fewer heavy items in a turn (regression: the event loop waited for 64 times 100 elements)', async () => {
    const items = Object.fromEntries(Array.from({ length: 9 }, (_, at) => [`${at}`, at < 6 ? '3' : '1']));
    const { table, turns, kept } = setUp({}, items);
    const sizes: number[] = [];
    const apply = table.apply.bind(table);
    Object.assign(table, {
      chunk: 4,
      weight: (_key: string, item: string | undefined) => Number(item ?? 2),
      apply: (changes: Parameters<typeof apply>[0]) => {
        sizes.push(changes.length);
        return apply(changes);
      },
    });
    await turns.until(kept.adopt());
    await turns.settle();
    expect(sizes).toEqual([2, 2, 2, 3]);
  });

  it('does not count an item without room any more when it is not desired any more', async () => {
    const { table, turns, kept, set } = setUp();
    table.capacity = 1;
    await turns.until(kept.adopt());
    kept.allowDeletes();
    set('a', '1');
    set('b', '1');
    await turns.settle();
    expect(kept.status()).toMatchObject({ state: 'degraded', noRoom: 1 });
    set('b', undefined);
    await turns.settle();
    expect(kept.status()).toMatchObject({ state: 'in-sync', noRoom: 0 });
  });

  it('does not count an item without room that is to be deleted anyway', async () => {
    const { table, turns, kept, set } = setUp({}, { a: '0', b: '2' });
    Object.assign(table, { capacity: 2, rank: (_key: string, item: string) => Number(item) });
    await turns.until(kept.adopt());
    await turns.settle();
    set('strong', '1');
    set('a', undefined);
    await turns.settle();
    expect(contentOf(table)).toEqual({ b: '2', strong: '1' });
    expect(kept.status()).toMatchObject({ noRoom: 0 });
  });

  it('replaces an existing item that becomes weaker by a stronger one', async () => {
    const { table, turns, kept, set } = setUp({}, { a: '5', b: '6', waiting: '4' });
    Object.assign(table, { capacity: 2, rank: (_key: string, item: string) => Number(item) });
    await turns.until(kept.adopt());
    await turns.settle();
    set('a', '1');
    await turns.settle();
    expect(contentOf(table)).toEqual({ b: '6', waiting: '4' });
  });

  it('writes found items that others deleted before they were confirmed', async () => {
    const { table, turns, kept, set } = setUp({ gone: '1', changed: '1', held: '1' });
    await turns.until(kept.adopt());
    table.there.delete('gone');
    table.there.set('changed', 'other');
    await turns.until(kept.repair());
    expect(kept.status()).toMatchObject({ unconfirmed: 2, actual: 2 });
    set('gone', '1');
    set('changed', '1');
    await turns.settle();
    expect(contentOf(table)).toEqual({ gone: '1', changed: '1', held: '1' });
  });

  it('does not count a repair if there is still no room for a key, or if it still fails', async () => {
    const { table, turns, kept } = setUp({}, { a: '1', b: '1', c: '1', bad: '1' });
    table.capacity = 2;
    table.broken.add('bad');
    await turns.until(kept.adopt());
    await turns.settle();
    const { noRoomErrors } = kept.status();
    expect(await turns.until(kept.repair())).toEqual([]);
    expect(kept.status()).toMatchObject({ noRoom: 1, noRoomErrors, failing: 1 });
    expect((await turns.until(kept.plan())).map(({ key }) => key)).toEqual(['c', 'bad']);
    table.there.delete('a');
    expect((await turns.until(kept.repair())).map(({ key }) => key)).toEqual(['a']);
    expect(contentOf(table)).toEqual({ a: '1', b: '1' });
  });

  it('reports no failure of a key that a repair finds correct (regression: until its next attempt)', async () => {
    const { table, turns, kept, set } = setUp();
    await turns.until(kept.adopt());
    table.broken.add('a');
    set('a', '1');
    await turns.settle();
    table.broken.clear();
    table.there.set('a', '1');
    expect(await turns.until(kept.repair())).toEqual([]);
    expect([kept.status().failing, kept.missing()]).toEqual([0, 0]);
  });

  it('retries a key soon after its first failure, however long another one has failed', async () => {
    const { table, turns, kept, set } = setUp();
    await turns.until(kept.adopt());
    table.broken.add('old').add('new');
    set('old', '1');
    await turns.settle();
    for (let i = 0; i < 12; i++) {
      turns.clock.advance(60_000);
      await turns.settle();
    }
    set('new', '1');
    await turns.settle();
    table.broken.delete('new');
    turns.clock.advance(1_000);
    await turns.settle();
    expect(contentOf(table)).toEqual({ new: '1' });
    turns.clock.advance(60_000);
    await turns.settle();
    expect(kept.status().failures).toMatchObject([{ key: 'old', attempts: 14 }]);
  });

  it('retries failing keys after 0.3 s, then after doubled delays up to 30.1 s, and shows 16 of them', async () => {
    const keys = Array.from({ length: 20 }, (_, at) => `k${at}`);
    const { table, turns, kept, set } = setUp({}, Object.fromEntries(keys.map((key) => [key, '1'])));
    for (const key of keys) table.broken.add(key);
    await turns.until(kept.adopt());
    const delays: number[] = [];
    for (let attempt = 1; attempt <= 10; attempt++) {
      await turns.settle();
      const delay = (turns.clock.nextAt ?? 0) - turns.clock.now();
      delays.push(delay);
      turns.clock.advance(delay);
    }
    await turns.settle();
    expect(delays).toEqual([300, 500, 900, 1700, 3300, 6500, 12_900, 25_700, 30_100, 30_100]);
    expect([kept.status().failing, kept.status().failures.length]).toEqual([20, 16]);
    table.broken.clear();
    for (const key of keys) set(key, '2');
    await turns.settle();
    expect([kept.status().failing, turns.clock.pending]).toEqual([0, 0]);
  });

  it('retries few keys in a turn (regression: each retry searched all failing keys)', async () => {
    const keys = Array.from({ length: 3000 }, (_, at) => `k${at}`);
    const { table, turns, kept } = setUp({}, Object.fromEntries(keys.map((key) => [key, '1'])));
    for (const key of keys) table.broken.add(key);
    await turns.until(kept.adopt());
    await turns.settle();
    expect(kept.status().failing).toBe(3000);
    table.broken.clear();
    let marks = 0;
    const mark = kept.mark.bind(kept);
    kept.mark = (key) => {
      marks++;
      mark(key);
    };
    for (let left = 500; kept.status().failing > 0 && left > 0; left--) {
      turns.clock.advance(1);
      expect(marks).toBeLessThanOrEqual(256);
      marks = 0;
      await turns.settle();
    }
    expect([kept.status().failing, table.there.size]).toEqual([0, 3000]);
  });

  it('retries few keys without room in a turn of a repair (regression: all in one turn)', async () => {
    const keys = Array.from({ length: 3000 }, (_, at) => `k${at}`);
    const { table, turns, kept } = setUp({}, Object.fromEntries(keys.map((key) => [key, '1'])));
    table.capacity = 1;
    await turns.until(kept.adopt());
    await turns.settle();
    expect(kept.status().noRoom).toBe(2999);
    table.capacity = 3000;
    let marks = 0;
    const mark = kept.mark.bind(kept);
    kept.mark = (key) => {
      marks++;
      mark(key);
    };
    let isOver = false;
    const repaired = kept.repair().finally(() => {
      isOver = true;
    });
    while (!isOver) {
      marks = 0;
      await turns.turn();
      expect(marks).toBeLessThanOrEqual(512);
    }
    expect([await repaired, table.there.size]).toEqual([[], 3000]);
  });

  it('writes the other items of a chunk if one of them makes the table throw', async () => {
    const { table, turns, kept, set } = setUp();
    await turns.until(kept.adopt());
    const apply = table.apply.bind(table);
    table.apply = (changes) => {
      if (changes.some(({ key }) => key === 'bad')) throw new RangeError('bad is no key');
      return apply(changes);
    };
    for (const key of ['a', 'bad', 'b']) set(key, '1');
    await turns.settle();
    expect(contentOf(table)).toEqual({ a: '1', b: '1' });
    expect(kept.status().failures).toMatchObject([{ key: 'bad' }]);
  });

  it('repairs changes of others, and reports them', async () => {
    const { table, turns, kept } = setUp({}, { a: '1', b: '1', c: '1' });
    await turns.until(kept.adopt());
    kept.allowDeletes();
    await turns.settle();
    table.there.delete('a');
    table.there.set('b', 'other').set('foreign', 'x');
    const plan = await turns.until(kept.plan());
    expect(plan).toEqual([
      { key: 'a', actual: undefined, desired: '1' },
      { key: 'b', actual: 'other', desired: '1' },
      { key: 'foreign', actual: 'x', desired: undefined },
    ]);
    expect(contentOf(table)).toEqual({ b: 'other', c: '1', foreign: 'x' });
    expect(await turns.until(kept.repair())).toEqual(plan);
    expect(contentOf(table)).toEqual({ a: '1', b: '1', c: '1' });
    expect(await turns.until(kept.plan())).toEqual([]);
  });

  it('is repaired although deletes always wait (regression: the repair never ended, so that there was no other)', async () => {
    const table = new FakeTable();
    const turns = new ManualTurns();
    const { clock, random, nextTurn } = turns;
    const desired = new Map([['a', '1']]);
    const holds: (() => void)[] = [];
    const whenDeletesAllowed = (): Promise<void> => new Promise((resolve) => void holds.push(resolve));
    const kept = new KeptTable(table, desired, { clock, random, nextTurn, whenDeletesAllowed });
    await turns.until(kept.adopt());
    kept.allowDeletes();
    await turns.settle();
    const comeAndGo = async (key: string): Promise<void> => {
      desired.set(key, '1');
      kept.mark(key);
      await turns.settle();
      desired.delete(key);
      kept.mark(key);
      await turns.settle();
    };
    await comeAndGo('k0');
    table.there.set('a', 'other').set('foreign', 'x');
    let repaired: readonly string[] | undefined;
    void kept.repair().then((steps) => {
      repaired = steps.map(({ key }) => key);
    });
    await turns.settle();
    for (let n = 1; n < 4; n++) {
      await comeAndGo(`k${n}`);
      holds.shift()?.();
      await turns.settle();
    }
    expect(kept.status().waiting).toBeGreaterThan(0);
    expect(repaired).toEqual(['a', 'foreign']);
    expect(table.there.has('foreign')).toBe(false);
  });

  it('leaves no timer after dispose (regression: the retry of a refused delete kept the process running)', async () => {
    const turns = new ManualTurns();
    const { clock, random, nextTurn } = turns;
    const desired = new Map([['a', '1']]);
    const whenDeletesAllowed = (): Promise<void> => Promise.reject(new Error('unreadable'));
    const kept = new KeptTable(new FakeTable(), desired, { clock, random, nextTurn, whenDeletesAllowed });
    await turns.until(kept.adopt());
    kept.allowDeletes();
    kept.mark('a');
    await turns.settle();
    desired.delete('a');
    kept.mark('a');
    await turns.settle();
    expect(clock.pending).toBe(1);
    kept[Symbol.dispose]();
    expect(clock.pending).toBe(0);
  });

  it('is flushed although deletes always wait, with the deletes of before', async () => {
    const table = new FakeTable();
    const turns = new ManualTurns();
    const { clock, random, nextTurn } = turns;
    const desired = new Map(Array.from({ length: 5 }, (_, n) => [`k${n}`, '1']));
    const holds: (() => void)[] = [];
    const whenDeletesAllowed = (): Promise<void> => new Promise((resolve) => void holds.push(resolve));
    const kept = new KeptTable(table, desired, { clock, random, nextTurn, whenDeletesAllowed });
    await turns.until(kept.adopt());
    kept.allowDeletes();
    await turns.settle();
    const remove = async (key: string): Promise<void> => {
      desired.delete(key);
      kept.mark(key);
      await turns.settle();
    };
    await remove('k0');
    await remove('k1');
    let isFlushed = false;
    void kept.flushed().then(() => {
      isFlushed = true;
    });
    const seen: (readonly [boolean, number])[] = [];
    for (let n = 2; n < 5; n++) {
      await turns.settle();
      holds.shift()?.();
      await remove(`k${n}`);
      seen.push([isFlushed, table.there.size]);
    }
    expect(seen).toEqual([
      [false, 4],
      [true, 2],
      [true, 1],
    ]);
  });

  it('is flushed when its waiting keys are desired again, at once', async () => {
    const { table, turns, kept, set } = await withWaitingDelete();
    const flushed = kept.flushed();
    await turns.settle();
    set('a', '2');
    await turns.until(flushed);
    expect(contentOf(table)).toEqual({ a: '2' });
  });

  it('is flushed when it is disposed of while its deletes wait', async () => {
    const { turns, kept } = await withWaitingDelete();
    let isFlushed = false;
    void kept.flushed().then(() => {
      isFlushed = true;
    });
    await turns.settle();
    expect(isFlushed).toBe(false);
    kept[Symbol.dispose]();
    await turns.settle();
    expect(isFlushed).toBe(true);
  });

  it('is flushed when the deletes of its next hold are desired again during the current one', async () => {
    const table = new FakeTable();
    const turns = new ManualTurns();
    const { clock, random, nextTurn } = turns;
    const desired = new Map([
      ['a', '1'],
      ['b', '1'],
    ]);
    let release = (): void => {};
    const whenDeletesAllowed = (): Promise<void> =>
      new Promise((resolve) => {
        release = resolve;
      });
    const kept = new KeptTable(table, desired, { clock, random, nextTurn, whenDeletesAllowed });
    await turns.until(kept.adopt());
    kept.allowDeletes();
    for (const key of ['a', 'b']) {
      await turns.settle();
      desired.delete(key);
      kept.mark(key);
    }
    await turns.settle();
    let isFlushed = false;
    void kept.flushed().then(() => {
      isFlushed = true;
    });
    await turns.settle();
    desired.set('b', '2');
    kept.mark('b');
    await turns.settle();
    expect(isFlushed).toBe(false);
    release();
    await turns.settle();
    expect([isFlushed, contentOf(table)]).toEqual([true, { b: '2' }]);
  });

  it('is read by one reader at a time, and not written during a read', async () => {
    const { table, turns, kept, set } = setUp();
    await turns.until(kept.adopt());
    let readers = 0;
    table.dump = function* () {
      expect(readers++).toBe(0);
      for (let i = 0; i < 1000; i++) yield ['a', '1'] as const;
      readers--;
    };
    const apply = table.apply.bind(table);
    table.apply = (changes) => {
      expect(readers).toBe(0);
      return apply(changes);
    };
    const plans = Promise.all([kept.plan(), kept.plan(), kept.repair()]);
    await turns.turn();
    set('b', '1');
    await turns.turn();
    expect([readers, table.calls]).toEqual([1, []]);
    await turns.until(plans);
    expect(contentOf(table)).toEqual({ b: '1' });
  });

  it('is written between two reads, and read once for all waiting readers (regression: eight readers starved its writes)', async () => {
    const { table, turns, kept, set } = setUp();
    await turns.until(kept.adopt());
    const TURNS = 40;
    let reads = 0;
    table.dump = function* () {
      reads++;
      for (let i = 0; i < TURNS * 256; i++) yield ['a', '1'] as const;
    };
    let isOver = false;
    const readers = Array.from({ length: 8 }, async () => {
      while (!isOver) await kept.plan();
    });
    for (let i = 0; i < 10; i++) {
      set(`k${i}`, '1');
      for (let turn = 0; turn < 2 * TURNS + 10; turn++) await turns.turn();
      expect(table.there.has(`k${i}`)).toBe(true);
    }
    isOver = true;
    await turns.until(Promise.all(readers));
    expect(reads).toBeLessThan(30);
  });

  it('reports that it cannot be read, and reads it later', async () => {
    const { table, turns, kept } = setUp({ a: '1' }, { b: '1' });
    const { dump } = table;
    table.dump = () => {
      throw new Error('no dump');
    };
    await expect(turns.until(kept.adopt())).rejects.toThrow('no dump');
    expect(kept.status().state).toBe('unread');
    table.dump = dump;
    await turns.until(kept.adopt());
    kept.allowDeletes();
    await turns.settle();
    expect(contentOf(table)).toEqual({ b: '1' });
  });

  it('writes nothing after it is closed, and releases waiting callers', async () => {
    const { table, turns, kept, set } = setUp();
    await turns.until(kept.adopt());
    table.broken.add('bad');
    set('bad', '1');
    await turns.settle();
    expect(turns.clock.pending).toBe(1); // it would be retried
    table.calls.splice(0);
    set('a', '1');
    const flushed = kept.flushed();
    kept[Symbol.dispose]();
    await flushed;
    await kept.flushed();
    await turns.settle();
    expect([table.calls, turns.clock.pending]).toEqual([[], 0]);
  });

  it('is not read after it is closed, even if another reader came first', async () => {
    const { table, turns, kept } = setUp();
    await turns.until(kept.adopt());
    const reads = Promise.all([kept.plan(), kept.repair(), kept.adopt()]);
    kept[Symbol.dispose]();
    table.dump = () => {
      throw new Error('its memory is given back');
    };
    await turns.until(reads);
    await expect(turns.until(kept.plan())).resolves.toEqual([]);
  });
  it('is neither read further nor written if it is closed while it is being adopted', async () => {
    const found = Object.fromEntries(Array.from({ length: 600 }, (_, at) => [`k${at}`, '1']));
    const { table, turns, kept } = setUp(found, { a: '1' });
    const read: string[] = [];
    table.dump = function* () {
      for (const entry of table.there) {
        read.push(entry[0]);
        yield entry;
      }
    };
    kept.allowDeletes();
    const adopted = kept.adopt();
    await turns.turn();
    const before = read.length;
    expect(before).toBeGreaterThan(0);
    kept[Symbol.dispose]();
    await turns.until(adopted);
    await turns.settle();
    expect([read.length, table.calls, kept.status().state]).toEqual([before, [], 'unread']);
  });
});

/** A change by a test of a table, of the desired items, or of their time. */
type Step =
  | { readonly do: 'set'; readonly key: string; readonly item: string | undefined }
  | { readonly do: 'tamper'; readonly key: string; readonly item: string | undefined }
  | { readonly do: 'break' | 'mend'; readonly key: string }
  | { readonly do: 'turn' | 'repair' | 'allow' | 'restart' | 'wait' };

const KEY = fc.constantFrom(...Array.from({ length: 12 }, (_, i) => `k${i}`));
const ITEM = fc.option(fc.constantFrom('0', '1', '2', '3', '4'), { nil: undefined });
const STEP: fc.Arbitrary<Step> = fc.oneof(
  { weight: 6, arbitrary: fc.record({ do: fc.constant('set' as const), key: KEY, item: ITEM }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('tamper' as const), key: KEY, item: ITEM }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constantFrom('break' as const, 'mend' as const), key: KEY }) },
  {
    weight: 4,
    arbitrary: fc.record({
      do: fc.constantFrom(...(['turn', 'turn', 'turn', 'repair', 'allow', 'restart', 'wait'] as const)),
    }),
  },
);

/** Returns the required end state: all desired items; if there is not enough room, the highest ranks. */
function ranksOf(desired: ReadonlyMap<string, string>, capacity: number): readonly string[] {
  return [...desired.values()].sort((a, b) => Number(b) - Number(a)).slice(0, capacity);
}

describe('after any steps, a kept table', () => {
  it('contains the desired items, or the strongest of them if there is no room for all', () =>
    fc.assert(
      fc.asyncProperty(
        fc.array(STEP, { maxLength: 60 }),
        fc.integer({ min: 3, max: 14 }),
        async (steps, capacity) => {
          const table = new FakeTable();
          table.capacity = capacity;
          table.rank = (_key, item) => Number(item);
          const desired = new Map<string, string>();
          const turns = new ManualTurns();
          let kept = new KeptTable(table, desired, turns);
          await turns.until(kept.adopt());
          for (const step of steps) {
            if (step.do === 'set') {
              if (step.item === undefined) desired.delete(step.key);
              else desired.set(step.key, step.item);
              kept.mark(step.key);
            } else if (step.do === 'tamper') {
              if (step.item === undefined) table.there.delete(step.key);
              else if (table.there.size < capacity || table.there.has(step.key))
                table.there.set(step.key, step.item);
            } else if (step.do === 'break') table.broken.add(step.key);
            else if (step.do === 'mend') table.broken.delete(step.key);
            else if (step.do === 'turn') await turns.turn();
            else if (step.do === 'wait') turns.clock.advance(1000);
            else if (step.do === 'repair') await turns.until(kept.repair());
            else if (step.do === 'allow') {
              kept.allowDeletes();
            } else {
              kept[Symbol.dispose]();
              kept = new KeptTable(table, desired, turns);
              await turns.until(kept.adopt());
            }
            expect(table.there.size).toBeLessThanOrEqual(capacity);
          }
          kept.allowDeletes();
          table.broken.clear();
          turns.clock.advance(60_000);
          await turns.settle();
          if (steps.some((step) => step.do === 'tamper')) await turns.until(kept.repair());
          await turns.settle();
          for (const [key, item] of table.there) expect([key, desired.get(key)]).toEqual([key, item]);
          expect([...table.there.values()].sort((a, b) => Number(b) - Number(a))).toEqual(
            ranksOf(desired, capacity),
          );
          const { actual, noRoom, pending, failing } = kept.status();
          expect({ actual, noRoom, pending, failing }).toEqual({
            actual: table.there.size,
            noRoom: desired.size - table.there.size,
            pending: 0,
            failing: 0,
          });
        },
      ),
    ));
});
