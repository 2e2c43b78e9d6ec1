import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { HashChains } from '../../src/columns/hash-chains.ts';
import { Int32Rows } from '../../src/columns/int32-rows.ts';

const ROWS = 64;

/** Returns the rows with a hash, ascending. */
function rowsOf(chains: HashChains, hash: number): readonly number[] {
  const rows: number[] = [];
  for (let row = chains.first(hash); row >= 0; row = chains.after(row, hash)) rows.push(row);
  return rows.sort((a, b) => a - b);
}

function chainsOf(count: number): HashChains {
  const rows = new Int32Rows(3);
  rows.reserve(count);
  return new HashChains(rows, 1);
}

describe('chains of rows by hash', () => {
  it('return the rows of a hash that were added and not removed, for equal hashes, too', () => {
    const hash = fc.oneof(
      fc.integer({ min: -4, max: 4 }),
      fc.constantFrom(16, 32, 48, -(2 ** 31), 2 ** 31 - 1),
    );
    const step = fc.record({ row: fc.nat(ROWS - 1), hash });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 200, size: 'max' }), (steps) => {
        const chains = chainsOf(ROWS);
        const hashes = new Map<number, number>();
        for (const { row, hash } of steps) {
          if (hashes.delete(row)) chains.delete(row);
          else {
            hashes.set(row, hash);
            chains.add(row, hash);
          }
          expect(chains.size).toBe(hashes.size);
        }
        for (const { hash } of steps) {
          const expected = Array.from(hashes, ([row, other]) => (other === hash ? [row] : [])).flat();
          expect(rowsOf(chains, hash)).toEqual(expected.sort((a, b) => a - b));
        }
      }),
    );
  });

  it('find a hundred thousand rows, and none after their removal', () => {
    const count = 100_000;
    const chains = chainsOf(count);
    const hashOf = (row: number): number => Math.imul(row, 0x9e37_79b1);
    for (let row = 0; row < count; row++) chains.add(row, hashOf(row));
    let wrong = 0;
    for (let row = 0; row < count; row++) if (rowsOf(chains, hashOf(row)).join() !== String(row)) wrong++;
    for (let row = 0; row < count; row++) chains.delete(row);
    for (let row = 0; row < count; row++) if (chains.first(hashOf(row)) >= 0) wrong++;
    expect([wrong, chains.size]).toEqual([0, 0]);
  });
});
