import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Int32Map } from '../../src/columns/int32-map.ts';
import { PAGE_ROWS } from '../../src/columns/int32-rows.ts';
import { ObjectColumn } from '../../src/columns/object-column.ts';

/** A step on one of several copies: the `nth` one is written, or copied. */
const step = fc.record({
  nth: fc.nat(),
  fork: fc.boolean(),
  at: fc.constantFrom(0, 1, PAGE_ROWS - 1, PAGE_ROWS, 3 * PAGE_ROWS),
  value: fc.constantFrom(undefined, 1, 2, 3),
});
const steps = fc.array(step, { minLength: 1, maxLength: 40, size: 'max' });

interface Copy<F> {
  readonly fast: F;
  readonly naive: Map<number, number>;
}

/** Runs the steps on a structure and its forks, each compared with a `Map`. Returns all pairs. */
function run<F extends { fork(): F }>(
  first: F,
  script: readonly (typeof step extends fc.Arbitrary<infer S> ? S : never)[],
  write: (fast: F, at: number, value: number | undefined) => void,
): readonly Copy<F>[] {
  const copies: Copy<F>[] = [{ fast: first, naive: new Map() }];
  for (const { nth, fork, at, value } of script) {
    const copy = copies[nth % copies.length];
    if (copy === undefined) continue;
    if (fork) {
      copies.push({ fast: copy.fast.fork(), naive: new Map(copy.naive) });
      continue;
    }
    write(copy.fast, at, value);
    if (value === undefined) copy.naive.delete(at);
    else copy.naive.set(at, value);
  }
  return copies;
}

const INDEXES = [0, 1, 2, PAGE_ROWS - 1, PAGE_ROWS, 3 * PAGE_ROWS];

describe('forks do not see writes to each other', () => {
  it('of a column of objects', () => {
    fc.assert(
      fc.property(steps, (script) => {
        const copies = run(new ObjectColumn<string>(), script, (column, at, value) =>
          column.set(at, value === undefined ? undefined : String(value)),
        );
        for (const { fast, naive } of copies)
          expect(INDEXES.map((at) => fast.get(at))).toEqual(INDEXES.map((at) => naive.get(at)?.toString()));
      }),
    );
  });

  it('of a map of integers, also during its growth', () => {
    fc.assert(
      fc.property(steps, fc.nat(40), (script, others) => {
        const map = new Int32Map();
        for (let i = 1; i <= others; i++) map.exchange(10_000 + i, i);
        const copies = run(map, script, (fast, at, value) => void fast.exchange(at, value ?? 0));
        for (const { fast, naive } of copies) {
          expect(INDEXES.map((at) => fast.get(at))).toEqual(INDEXES.map((at) => naive.get(at) ?? 0));
          expect(fast.size).toBe(naive.size + others);
        }
      }),
    );
  });
});
