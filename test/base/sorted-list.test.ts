import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { SortedList } from '../../src/base/sorted-list.ts';

const ascending = (a: number, b: number): number => a - b;

describe('a sorted list', () => {
  it('equals a sorted set with thousands of items', () => {
    const COUNT = 4999; // a prime, so that the multiples of a number are a permutation
    const numbers = Array.from({ length: COUNT }, (_, i) => i);
    const shuffled = (step: number): readonly number[] => numbers.map((i) => (i * step) % COUNT);
    const sorted = new SortedList(ascending);
    const there = new Set<number>();
    const change = (isThere: boolean, some: readonly number[]): void => {
      for (const item of some) {
        if (isThere) sorted.add(item);
        else sorted.delete(item);
        if (isThere) there.add(item);
        else there.delete(item);
      }
      const expected = [...there].sort(ascending);
      for (const start of [0, 1000, 4998, 5000]) {
        const after = expected.filter((item) => item >= start);
        expect([...sorted.from(start)].join()).toBe(after.join());
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
        const sorted = new SortedList(ascending);
        const model = new Set<number>();
        for (const step of script) {
          if (step.add) sorted.add(step.item);
          else sorted.delete(step.item);
          if (step.add) model.add(step.item);
          else model.delete(step.item);
        }
        expect([...sorted.from(start)]).toEqual([...model].filter((one) => one >= start).sort(ascending));
        expect(sorted.size).toBe(model.size);
      }),
      { numRuns: Math.ceil((fc.readConfigureGlobal().numRuns ?? 300) / 6) },
    );
  });
});
