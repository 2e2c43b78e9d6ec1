import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { LeasedKeys } from '../../../src/kvstore/session/leased-keys.ts';

type Step = readonly ['add' | 'delete' | 'find' | 'below' | 'clear', string];

function keysBelow(table: LeasedKeys, prefix: string): (string | undefined)[] {
  const keyBelow = table.below(prefix);
  return Array.from({ length: table.limit }, (_, row) => keyBelow(row)).filter((key) => key !== undefined);
}

describe('the leased keys of a client', () => {
  it('behave like a map that is scanned for a prefix', () => {
    const key = fc
      .array(fc.constantFrom('a', 'ab', '/', '//', 'é', '\udc80', 'x'.repeat(300)), { maxLength: 4 })
      .map((parts) => parts.join(''));
    const step: fc.Arbitrary<Step> = fc.tuple(
      fc.constantFrom('add', 'add', 'add', 'delete', 'find', 'below', 'clear'),
      key,
    );
    fc.assert(
      fc.property(fc.array(step, { maxLength: 40, size: 'max' }), (steps) => {
        const table = new LeasedKeys();
        const model = new Map<string, number>();
        for (const [i, [what, of]] of steps.entries()) {
          const row = table.find(of);
          expect(row >= 0).toBe(model.has(of));
          expect(row < 0 ? undefined : table.leaseOf(row)).toBe(model.get(of));
          if (what === 'add') {
            table.bind(row < 0 ? table.ensure(of) : row, i + 1, i);
            model.set(of, i + 1);
          } else if (what === 'delete') {
            table.delete(row);
            model.delete(of);
          } else if (what === 'clear') {
            table.clear();
            model.clear();
          } else if (what === 'below') {
            const expected = [...model.keys()].filter((name) => name.startsWith(of));
            expect(keysBelow(table, of).sort()).toEqual(expected.sort());
          }
          expect(table.isEmpty).toBe(model.size === 0);
        }
      }),
    );
  });

  it('contain a key that is added after the last key of its folder was deleted', () => {
    const table = new LeasedKeys();
    table.delete(table.ensure('p/1'));
    table.ensure('p/2');
    expect(keysBelow(table, 'p/')).toEqual(['p/2']);
    table.ensure('q/1');
    expect(table.keyAt(table.find('p/2'))).toBe('p/2');
    expect(table.find('q/2')).toBe(-1);
  });

  it('keep no rows when the last key is deleted (regression: 46 bytes for each key that ever existed)', () => {
    const table = new LeasedKeys();
    const rows = Array.from({ length: 3000 }, (_, i) => table.ensure(`p/${i % 3}/${i}`));
    expect(table.limit).toBe(3000);
    for (const row of rows) table.delete(row);
    expect([table.limit, table.isEmpty, table.find('p/0/0')]).toEqual([0, true, -1]);
    expect([table.keyAt(table.ensure('q/1')), table.limit]).toEqual(['q/1', 1]);
  });

  it('have the revisions of their last writes, and none in a reused row', () => {
    const table = new LeasedKeys();
    const row = table.ensure('p/1');
    expect(table.writtenAt(row)).toBe(-1);
    for (const revision of [0, 2 ** 31, 2 ** 32 - 1, 2 ** 50]) {
      table.setWrittenAt(row, revision);
      expect(table.writtenAt(row)).toBe(revision);
    }
    table.delete(row);
    expect([table.ensure('p/2'), table.writtenAt(row), table.orderOf(row)]).toEqual([row, -1, 0]);
  });
});
