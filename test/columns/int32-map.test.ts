import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Int32Map } from '../../src/columns/int32-map.ts';

// Runs of neighbours, as identities are; and the ends of the range.
const key = fc.oneof(
  fc.integer({ min: 0, max: 60 }),
  fc.integer({ min: 65_500, max: 65_560 }),
  fc.constantFrom(-1, -(2 ** 31), 2 ** 31 - 1),
);
const value = fc.oneof(
  { weight: 3, arbitrary: fc.integer({ min: 1, max: 1000 }) },
  { arbitrary: fc.constant(0), weight: 2 },
);

/** What `Int32Map.exchange` does, over a `Map`. */
function exchange(map: Map<number, number>, at: number, to: number): number {
  const before = map.get(at) ?? 0;
  if (to === 0) map.delete(at);
  else map.set(at, to);
  return before;
}

describe('a map of integers', () => {
  it('behaves like a Map, in every state of its growth', () => {
    fc.assert(
      fc.property(fc.array(fc.tuple(key, value), { maxLength: 200, size: 'max' }), (steps) => {
        const fast = new Int32Map();
        const naive = new Map<number, number>();
        const results = steps.map(([at, to]) => [fast.exchange(at, to), fast.size]);
        const expected = steps.map(([at, to]) => [exchange(naive, at, to), naive.size]);
        expect(results).toEqual(expected);
        const ascending = (keys: Iterable<number>): readonly number[] => [...keys].sort((a, b) => a - b);
        expect(ascending(fast.fork().keys())).toEqual(ascending(naive.keys()));
        expect(steps.map(([at]) => fast.get(at))).toEqual(steps.map(([at]) => naive.get(at) ?? 0));
      }),
    );
  });

  it('holds a hundred thousand keys, and shrinks to none', () => {
    const fast = new Int32Map();
    const naive = new Map<number, number>();
    const keyOf = (i: number): number => Math.imul(i, i % 3 === 0 ? 1 : 0x0101_0101);
    let differences = 0;
    const both = (at: number, to: number): void => {
      if (fast.exchange(at, to) !== exchange(naive, at, to)) differences++;
    };
    for (let i = 1; i <= 100_000; i++) {
      both(keyOf(i), i);
      if (i % 5 === 0) both(keyOf(i / 5), 0);
    }
    expect(fast.size).toBe(naive.size);
    for (let i = 1; i <= 100_000; i++) both(keyOf(i), 0);
    expect([differences, fast.size, fast.get(keyOf(3))]).toEqual([0, 0, 0]);
  });
});
