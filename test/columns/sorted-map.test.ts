import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { SortedMap } from '../../src/columns/sorted-map.ts';

const compare = (a: string, b: string): number => (a < b ? -1 : Number(a > b));
const sorted = (map: ReadonlyMap<string, number>): readonly (readonly [string, number])[] =>
  [...map].sort(([a], [b]) => compare(a, b));

describe('a sorted map', () => {
  it('behaves like a Map whose entries are sorted', () => {
    const key = fc.string({ minLength: 0, maxLength: 2, unit: fc.constantFrom('a', 'b', 'c', 'd') });
    const step = fc.record({ op: fc.constantFrom('set', 'set', 'delete', 'get'), key, value: fc.nat(9) });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60, size: 'max' }), (steps) => {
        const map = new SortedMap<number>(compare);
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
        const map = new SortedMap<number>(compare);
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

  it('is empty after it was cleared, and can be used again', () => {
    const map = new SortedMap<number>(compare);
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
