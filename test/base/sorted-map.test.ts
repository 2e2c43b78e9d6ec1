import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { SortedMap } from '../../src/base/sorted-map.ts';

const compare = (a: string, b: string): number => (a < b ? -1 : Number(a > b));
const sorted = (map: ReadonlyMap<string, number>): readonly (readonly [string, number])[] =>
  [...map].sort(([a], [b]) => compare(a, b));
const byNumber = (a: number, b: number): number => a - b;

describe('a sorted map', () => {
  it('behaves like a Map whose entries are sorted', () => {
    const key = fc.string({ minLength: 0, maxLength: 2, unit: fc.constantFrom('a', 'b', 'c', 'd') });
    const step = fc.record({ op: fc.constantFrom('set', 'set', 'delete', 'get'), key, value: fc.nat(9) });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60, size: 'max' }), (steps) => {
        const map = new SortedMap<string, number>(compare);
        const naive = new Map<string, number>();
        for (const { op, key, value } of steps) {
          if (op === 'set') {
            map.set(key, value);
            naive.set(key, value);
          } else if (op === 'delete') {
            map.delete(key);
            naive.delete(key);
          } else expect(map.get(key)).toBe(naive.get(key));
          const from = sorted(naive).filter(([other]) => other >= key);
          expect([map.size, map.rank(key)]).toEqual([naive.size, naive.size - from.length]);
          expect([...map.from(key)]).toEqual(from);
        }
      }),
    );
  });

  it('holds thousands of keys, which are set and deleted in order, in reverse and in no order', () => {
    const keyOf = (i: number): string => String(i).padStart(5, '0');
    const count = 6000;
    const inOrder = Array.from({ length: count }, (_, i) => i);
    const mixed = inOrder.map((i) => (i * 7919) % count);
    for (const order of [inOrder, inOrder.toReversed(), mixed])
      for (const deleted of [inOrder, inOrder.toReversed(), mixed]) {
        const map = new SortedMap<string, number>(compare);
        for (const i of order) map.set(keyOf(i), i);
        for (const i of order) map.set(keyOf(i), i + 1);
        expect(Array.from(map.from(''), ([, value]) => value)).toEqual(inOrder.map((i) => i + 1));
        const left = deleted.slice(count - 100);
        for (const i of deleted.slice(0, count - 100)) map.delete(keyOf(i));
        expect(Array.from(map.from(''), ([key]) => key)).toEqual(left.map(keyOf).sort(compare));
        for (const i of left) map.delete(keyOf(i));
        expect([map.size, map.get(keyOf(0)), [...map.from('')]]).toEqual([0, undefined, []]);
      }
  });

  it('compares a key few times if keys are read and set in order (regression: 15 comparisons for each of three searches)', () => {
    let comparisons = 0;
    const map = new SortedMap<number, number>((a, b) => {
      comparisons++;
      return a - b;
    });
    const COUNT = 20_000;
    for (let i = 0; i < COUNT; i += 200) {
      for (let key = i; key < i + 200; key++) map.get(key);
      for (let key = i; key < i + 200; key++) if (map.get(key) === undefined) map.set(key, key);
    }
    expect(map.size).toBe(COUNT);
    expect(comparisons / COUNT).toBeLessThan(15); // three searches
  });

  it('is empty after it was cleared, and can be used again', () => {
    const map = new SortedMap<string, number>(compare);
    for (let i = 0; i < 3000; i++) map.set(String(i), i);
    map.clear();
    expect([map.size, map.get('2999'), [...map.from('')]]).toEqual([0, undefined, []]);
    map.set('b', 1);
    map.set('a', 2);
    expect([...map.from('')]).toEqual([
      ['a', 2],
      ['b', 1],
    ]);
  });
});

describe('the keys of a sorted map', () => {
  it('equals a sorted set with thousands of items', () => {
    const COUNT = 4999; // a prime, so that the multiples of a number are a permutation
    const numbers = Array.from({ length: COUNT }, (_, i) => i);
    const shuffled = (step: number): readonly number[] => numbers.map((i) => (i * step) % COUNT);
    const sorted = new SortedMap<number, true>(byNumber);
    const there = new Set<number>();
    const change = (isThere: boolean, some: readonly number[]): void => {
      for (const item of some) {
        if (isThere) sorted.set(item, true);
        else sorted.delete(item);
        if (isThere) there.add(item);
        else there.delete(item);
      }
      const expected = [...there].sort(byNumber);
      for (const start of [0, 1000, 4998, 5000]) {
        const after = expected.filter((item) => item >= start);
        expect(Array.from(sorted.from(start), ([key]) => key).join()).toBe(after.join());
        expect(sorted.rank(start)).toBe(expected.length - after.length);
      }
      expect([sorted.size, sorted.first]).toEqual([there.size, expected[0]]);
    };
    change(true, shuffled(1234));
    change(true, shuffled(7)); // all of them exist
    change(
      false,
      shuffled(4321).filter((item) => item < 900 || item > 3000),
    );
    change(false, shuffled(77).slice(0, 3000));
    change(true, shuffled(4098));
    change(false, numbers);
    change(true, numbers.toReversed());
    sorted.clear();
    expect([sorted.size, sorted.first, [...sorted.from(0)]]).toEqual([0, undefined, []]);
  });

  it('equals a sorted set after any changes', () => {
    const item = fc.integer({ min: 0, max: 3000 });
    const steps = fc.array(fc.record({ add: fc.boolean(), item }), { maxLength: 4000, size: 'max' });
    fc.assert(
      fc.property(steps, item, (script, start) => {
        const sorted = new SortedMap<number, true>(byNumber);
        const model = new Set<number>();
        for (const step of script) {
          if (step.add) sorted.set(step.item, true);
          else sorted.delete(step.item);
          if (step.add) model.add(step.item);
          else model.delete(step.item);
        }
        expect(Array.from(sorted.from(start), ([key]) => key)).toEqual(
          [...model].filter((one) => one >= start).sort(byNumber),
        );
        expect(sorted.size).toBe(model.size);
      }),
      { numRuns: Math.ceil((fc.readConfigureGlobal().numRuns ?? 300) / 6) },
    );
  });
});
