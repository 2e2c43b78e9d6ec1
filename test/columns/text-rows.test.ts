import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { TextRows } from '../../src/columns/text-rows.ts';

const text = fc.string({ unit: fc.constantFrom('a', 'b', '/', 'é', '\udc80'), maxLength: 3 });

describe('rows that are found by a text', () => {
  it('equal a Map of texts to rows, whatever is added and deleted', () => {
    fc.assert(
      fc.property(fc.array(fc.tuple(text, fc.boolean()), { maxLength: 60 }), fc.integer(), (steps, seed) => {
        const table = new TextRows(2, seed);
        const model = new Map<string, number>();
        for (const [key, isAdded] of steps) {
          const row = model.get(key);
          expect(table.find(key)).toBe(row ?? -1);
          expect(table.find(`prefix/${key}`, 7)).toBe(row ?? -1);
          if (isAdded && row === undefined) {
            const added = table.add(key);
            expect([table.rows.get(added, 0), table.rows.get(added, 1)]).toEqual([0, 0]);
            table.rows.set(added, 1, 9);
            model.set(key, added);
          } else if (!isAdded && row !== undefined) {
            table.delete(row);
            model.delete(key);
            expect(table.textAt(row)).toBeUndefined();
          }
        }
        expect(table.size).toBe(model.size);
        expect(new Set(model.values()).size).toBe(model.size);
        for (const [key, row] of model) expect([table.find(key), table.textAt(row)]).toEqual([row, key]);
      }),
    );
  });

  it('finds, deletes and adds texts with one hash', () => {
    const texts = collide(4);
    fc.assert(
      fc.property(fc.array(fc.tuple(fc.nat(3), fc.boolean()), { maxLength: 20 }), (steps) => {
        const table = new TextRows(1);
        const model = new Map<string, number>();
        for (const [at, isAdded] of steps) {
          const key = texts[at] ?? '';
          const row = model.get(key);
          if (isAdded && row === undefined) model.set(key, table.add(key));
          if (!isAdded && row !== undefined) {
            table.delete(row);
            model.delete(key);
          }
          for (const each of texts) expect(table.find(each)).toBe(model.get(each) ?? -1);
        }
      }),
    );
  });

  it('reuses the rows of deleted texts, and stays small', () => {
    const table = new TextRows(1);
    for (let i = 0; i < 10_000; i++) {
      table.add(`key ${i}`);
      if (i >= 100) table.delete(table.find(`key ${i - 100}`));
    }
    expect([table.size, table.limit]).toEqual([100, 101]);
  });

  it('finds each of a million texts', () => {
    const table = new TextRows(1);
    for (let i = 0; i < 1_000_000; i++)
      table.rows.set(table.add(`10.${i >> 16}.${(i >> 8) & 255}.${i & 255}`), 0, i);
    let wrong = 0;
    for (let i = 0; i < 1_000_000; i++) {
      const row = table.find(`10.${i >> 16}.${(i >> 8) & 255}.${i & 255}`);
      if (row < 0 || table.rows.get(row, 0) !== i) wrong++;
    }
    expect(wrong).toBe(0);
  });
});

/** Returns texts with the same hash under seed 0: the last character undoes the difference of the first ones. */
function collide(count: number): readonly string[] {
  const mix = (hash: number, code: number): number => {
    const h = Math.imul(hash ^ code, 0x9e37_79b1);
    return h ^ (h >>> 15);
  };
  const texts: string[] = [];
  for (let first = 0; texts.length < count; first++) {
    for (let second = 0; second < 0x1_0000; second++) {
      const last = mix(mix(0, first), second) ^ 0x1234_5678;
      if (last >= 0 && last < 0x1_0000) texts.push(String.fromCharCode(first, second, last));
    }
  }
  return texts.slice(0, count);
}
