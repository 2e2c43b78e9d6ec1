import fc from 'fast-check';
import { expect, it } from 'vitest';
import { PAGE_ROWS } from '../../src/columns/int32-rows.ts';
import { PagedMap } from '../../src/columns/paged-map.ts';

/** A few indexes on both sides of page boundaries, so that they repeat. */
const index: fc.Arbitrary<number> = fc
  .tuple(fc.integer({ min: 0, max: 3 }), fc.constantFrom(0, 1, PAGE_ROWS - 1))
  .map(([page, at]) => page * PAGE_ROWS + at);

const ascending = (keys: Iterable<number>): readonly number[] => [...keys].sort((a, b) => a - b);

it('a paged map behaves like a map', () => {
  fc.assert(
    fc.property(fc.array(fc.tuple(index, fc.option(fc.nat()))), (steps) => {
      const paged = new PagedMap<number>();
      const map = new Map<number, number>();
      for (const [at, value] of steps) {
        if (value === null) expect(paged.delete(at)).toBe(map.delete(at));
        else {
          paged.set(at, value);
          map.set(at, value);
        }
        expect(paged.size).toBe(map.size);
        expect(paged.get(at)).toBe(map.get(at));
        expect(ascending(paged.keys())).toEqual(ascending(map.keys()));
      }
    }),
  );
});

it('a paged map yields each key once while yielded ones are deleted', () => {
  const paged = new PagedMap<true>();
  for (let at = 0; at < 3 * PAGE_ROWS; at += 100) paged.set(at, true);
  const { size } = paged;
  let given = 0;
  for (const at of paged.keys()) {
    expect(paged.delete(at)).toBe(true);
    given++;
  }
  expect([given, paged.size]).toEqual([size, 0]);
});
