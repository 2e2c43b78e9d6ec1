import fc from 'fast-check';
import { describe, it } from 'vitest';
import { fewerRuns } from '../../base/support/fewer-runs.ts';
import { type Happening, happenings, I9_nothingLostNothingInvented } from '../support/watch-laws.ts';

describe('a watch under faults', () => {
  it('I9 nothing lost, nothing invented: the delivered state equals the store, after any faults', async () => {
    const sliceEvents = fc.constantFrom(undefined, 1, 2);
    await fc.assert(
      fc.asyncProperty(happenings, sliceEvents, (script, most) =>
        I9_nothingLostNothingInvented(script, (transport) => transport, most),
      ),
      fewerRuns(100),
    );
  });

  const write = (...entries: readonly (readonly [number, boolean])[]): Happening => ({
    do: 'write',
    entries,
  });
  const settled: Happening = { do: 'settle' };
  const all = [0, 1, 2, 3, 4, 5, 6, 7].map((n) => write([n, true])); // the last three are read as they were put
  const rewritten = (before: readonly Happening[], after: readonly Happening[]): readonly Happening[] => [
    ...[settled, ...all, settled, { do: 'backup' } as const, ...before, settled],
    ...[{ do: 'restore' } as const, ...after],
  ];
  it.each([
    ['and another one put with it', [write([1, false])], [write([1, false], [2, true])]],
    [
      'and another one before it',
      [write([2, false]), write([1, false])],
      [write([3, false]), write([1, false])],
    ],
    ['and another one with it', [write([2, false], [1, false])], [write([3, false], [1, false])]],
  ])(
    'a restored store in which the same key was deleted at the same revision, %s, is another one (regression: treated as the same)',
    (_, before, after) => I9_nothingLostNothingInvented(rewritten(before, after)),
  );

  const same = (...entries: readonly (readonly [number, boolean])[]): Happening => ({
    do: 'write',
    entries,
    same: true,
  });
  it.each([
    ['in its transaction', [same([1, true], [2, true])], [same([3, true], [2, true])]],
    ['before it', [same([1, true]), same([2, true])], [same([3, true]), same([2, true])]],
    [
      'before the one before it',
      [same([1, true]), same([4, true]), same([2, true])],
      [same([3, true]), same([4, true]), same([2, true])],
    ],
  ])(
    'a restored store with the same last put, at the same revision, is another one if another key was put %s (regression: treated as the same)',
    async (_, before, after) => {
      const atOnce: readonly Happening[] = [{ do: 'stall' }, ...before, { do: 'unstall' }];
      await I9_nothingLostNothingInvented(rewritten(atOnce, after));
    },
  );

  it('the same if its history was compacted (regression: an equal number of keys was enough)', async () => {
    const neither = [write([1, false]), write([3, false])];
    const before: readonly Happening[] = [...neither, same([1, true]), same([2, true])];
    const after: readonly Happening[] = [...neither, same([3, true]), same([2, true])];
    const compacted: readonly Happening[] = [{ do: 'write-elsewhere', times: 1 }, { do: 'compact' }];
    await I9_nothingLostNothingInvented(rewritten(before, [...after, ...compacted]));
  });

  const pass = (ms: number): Happening => ({ do: 'pass', ms });

  it('a store that had deleted a key before the watch started is not confused with one that deletes another instead (regression: a phantom, and a key that was lost)', async () => {
    const earlier = [6, 0, 1, 2, 3, 4, 5].map((n) => write([n, true]));
    await I9_nothingLostNothingInvented([
      ...[{ do: 'down' } as const, ...earlier, { do: 'backup' } as const, write([0, false])],
      ...[{ do: 'up' } as const, pass(70_000), settled, write([1, false]), settled],
      ...[{ do: 'restore' } as const, write([6, false]), write([1, false])],
    ]);
  });

  it.each([0, 1, 2, 3, 4])(
    'a listing of a restored store that is cut off after %i turns trusts no revision of the store before (regression: a value of that stayed)',
    async (turns) => {
      await I9_nothingLostNothingInvented([
        ...[settled, ...all, settled, { do: 'backup' } as const, write([7, true]), settled],
        ...[{ do: 'restore' } as const, write([7, true]), write([0, true]), pass(1000)],
        ...[...Array.from({ length: turns }, (): Happening => ({ do: 'turn' })), { do: 'cut' } as const],
      ]);
    },
  );
});
