import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { ByteRows } from '../../src/columns/byte-rows.ts';

const text = fc.oneof(
  { weight: 9, arbitrary: fc.string({ unit: fc.constantFrom('a', 'b', '/', 'é'), maxLength: 3 }) },
  { weight: 1, arbitrary: fc.constantFrom(253, 254, 255, 256, 1000).map((length) => 'x'.repeat(length)) },
);

/** A table that is addressed by strings, which are encoded behind a prefix. */
class TextTable {
  readonly table: ByteRows;

  constructor(columns: number, seed?: number) {
    this.table = new ByteRows(columns, seed);
  }

  add(key: string): number {
    const bytes = Buffer.from(`prefix/${key}…`);
    return this.table.add(bytes, 7, bytes.length - 3);
  }

  ensure(key: string): number {
    const bytes = Buffer.from(`prefix/${key}…`);
    return this.table.ensure(bytes, 7, bytes.length - 3);
  }

  find(key: string): number {
    const bytes = Buffer.from(`prefix/${key}…`);
    return this.table.find(bytes, 7, bytes.length - 3);
  }

  textAt(row: number): string | undefined {
    const text = this.table.textAt(row);
    return text && Buffer.from(text).toString();
  }
}

describe('rows that are found by a text', () => {
  it('equal a Map of texts to rows, whatever is added and deleted', () => {
    fc.assert(
      fc.property(fc.array(fc.tuple(text, fc.boolean()), { maxLength: 60 }), fc.integer(), (steps, seed) => {
        const texts = new TextTable(2, seed);
        const { table } = texts;
        const model = new Map<string, number>();
        for (const [key, isAdded] of steps) {
          const row = model.get(key);
          expect(texts.find(key)).toBe(row ?? -1);
          if (isAdded && row === undefined) {
            const added = model.size % 2 === 0 ? texts.add(key) : texts.ensure(key);
            expect([table.rows.get(added, 0), table.rows.get(added, 1)]).toEqual([0, 0]);
            table.rows.set(added, 1, 9);
            model.set(key, added);
          } else if (!isAdded && row !== undefined) {
            table.delete(row);
            model.delete(key);
            expect([table.has(row), texts.textAt(row)]).toEqual([false, undefined]);
          }
        }
        expect(table.size).toBe(model.size);
        expect(new Set(model.values()).size).toBe(model.size);
        for (const [key, row] of model)
          expect([texts.find(key), texts.ensure(key), texts.textAt(row)]).toEqual([row, row, key]);
        expect(table.size).toBe(model.size);
      }),
    );
  });

  it('finds, deletes and adds texts with one hash', () => {
    const keys = collide(4);
    fc.assert(
      fc.property(fc.array(fc.tuple(fc.nat(3), fc.boolean()), { maxLength: 20 }), (steps) => {
        const table = new ByteRows(1);
        const model = new Map<number, number>();
        for (const [at, isAdded] of steps) {
          const key = keys[at] ?? new Uint8Array();
          const row = model.get(at);
          if (isAdded && row === undefined) model.set(at, table.add(key, 0, key.length));
          if (!isAdded && row !== undefined) {
            table.delete(row);
            model.delete(at);
          }
          for (const [other, each] of keys.entries())
            expect(table.find(each, 0, each.length)).toBe(model.get(other) ?? -1);
        }
      }),
    );
  });

  it('reuses the rows of deleted texts and their bytes, and stays small', () => {
    const texts = new TextTable(1);
    for (let i = 0; i < 10_000; i++) {
      texts.add(`key ${i}`);
      if (i >= 100) texts.table.delete(texts.find(`key ${i - 100}`));
    }
    for (let i = 9900; i < 10_000; i++) expect(texts.textAt(texts.find(`key ${i}`))).toBe(`key ${i}`);
    expect([texts.table.size, texts.table.limit]).toEqual([100, 101]);
    expect(texts.table.bytes).toBeLessThan(10_000);
  });

  it('finds each of a million texts, in 40 bytes each', () => {
    const texts = new TextTable(1);
    const { table } = texts;
    for (let i = 0; i < 1_000_000; i++)
      table.rows.set(texts.add(`10.${i >> 16}.${(i >> 8) & 255}.${i & 255}`), 0, i);
    let wrong = 0;
    for (let i = 0; i < 1_000_000; i++) {
      const row = texts.find(`10.${i >> 16}.${(i >> 8) & 255}.${i & 255}`);
      if (row < 0 || table.rows.get(row, 0) !== i) wrong++;
    }
    expect(wrong).toBe(0);
    expect(table.bytes).toBeLessThan(40_000_000);
  });
});

/** Returns texts with the same hash under seed 0: the fifth and sixth byte undo the difference of the first ones. */
function collide(count: number): readonly Uint8Array[] {
  const mix = (hash: number, word: number): number => {
    const h = Math.imul(hash ^ word, 0x9e37_79b1);
    return h ^ (h >>> 15);
  };
  const found: Uint8Array[] = [];
  for (let first = 0; found.length < count; first++) {
    for (let second = 0; second < 0x1_0000; second++) {
      const last = mix(mix(0, first), second) ^ 0x1234_5678;
      if (last >= 0 && last < 0x1_0000)
        found.push(new Uint8Array(Uint16Array.of(first, second, last, 0).buffer, 0, 7));
    }
  }
  return found.slice(0, count);
}
