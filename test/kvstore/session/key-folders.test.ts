import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { KeyFolders } from '../../../src/kvstore/session/key-folders.ts';

type Step = readonly ['set' | 'delete' | 'get' | 'below' | 'clear', string];

describe('a table of keys in folders', () => {
  it('behaves like a map that is scanned for a prefix', () => {
    const key = fc
      .array(fc.constantFrom('a', 'ab', '/', '//'), { maxLength: 3 })
      .map((parts) => parts.join(''));
    const step: fc.Arbitrary<Step> = fc.tuple(
      fc.constantFrom('set', 'set', 'set', 'delete', 'get', 'below', 'clear'),
      key,
    );
    fc.assert(
      fc.property(fc.array(step, { maxLength: 40, size: 'max' }), (steps) => {
        const table = new KeyFolders<number>();
        const model = new Map<string, number>();
        for (const [i, [what, of]] of steps.entries()) {
          if (what === 'set') {
            table.set(of, i);
            model.set(of, i);
          } else if (what === 'delete') {
            table.delete(of);
            model.delete(of);
          } else if (what === 'get') expect(table.get(of)).toBe(model.get(of));
          else if (what === 'clear') {
            table.clear();
            model.clear();
          } else {
            const expected = [...model].filter(([name]) => name.startsWith(of)).map(([, value]) => value);
            expect([...table.below(of)].sort()).toEqual(expected.sort());
          }
        }
      }),
    );
  });

  it('contains a key that is set after the last key of its folder was deleted', () => {
    const table = new KeyFolders<number>();
    table.set('p/1', 1);
    table.delete('p/1');
    table.set('p/2', 2);
    expect([...table.below('p/')]).toEqual([2]);
    table.set('q/1', 3);
    expect(table.get('p/2')).toBe(2);
  });

  it('visits the remaining keys of a prefix once while they are deleted and put again', () => {
    const table = new KeyFolders<string>();
    const keys = Array.from({ length: 100 }, (_, i) => `p/${i}`);
    for (const key of keys) table.set(key, key);
    const seen: string[] = [];
    for (const key of table.below('p/')) {
      seen.push(key);
      table.delete(key);
      table.set(key, key); // added at the end: the loop must not visit it
    }
    expect(seen.sort()).toEqual(keys.sort());
  });
});
