import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { ReservedPrefixes } from '../../../../src/datapath/linux/paths/reserved-prefixes.ts';
import { Prefix } from '../../../../src/net/prefix.ts';

/** Few bits, so that prefixes overlap often. */
const prefix = fc.oneof(
  fc
    .record({ bits: fc.integer({ min: 0, max: 15 }), length: fc.integer({ min: 4, max: 8 }) })
    .map(({ bits, length }) => Prefix.parse(`${bits * 16}.0.0.0/${length}`)?.toString() ?? ''),
  fc.integer({ min: 0, max: 7 }).map((last) => `10.0.0.${last}/32`),
  fc
    .record({ bits: fc.integer({ min: 0, max: 15 }), length: fc.integer({ min: 112, max: 128 }) })
    .map(({ bits, length }) => Prefix.parse(`fd00::${bits.toString(16)}/${length}`)?.toString() ?? ''),
);

describe('reserved prefixes', () => {
  it('find an overlap exactly when a naive search does, after any reserves and releases', () => {
    const step = fc.record({
      owner: fc.constantFrom('a', 'b', 'c'),
      prefixes: fc.uniqueArray(prefix, { maxLength: 4 }),
      asked: prefix,
    });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 30 }), (steps) => {
        const reserved = new ReservedPrefixes();
        const naive = new Map<string, readonly string[]>();
        for (const { owner, prefixes, asked } of steps) {
          reserved.replace(owner, prefixes);
          naive.set(owner, prefixes);
          const question = Prefix.parse(asked);
          if (question === undefined) throw new Error(asked);
          const overlapping = [...naive].flatMap(([holder, all]) =>
            all.flatMap((text) => {
              const one = Prefix.parse(text);
              const isOverlap = one?.contains(question) || (one && question.contains(one));
              return isOverlap ? `${text} of ${holder}` : [];
            }),
          );
          const found = reserved.overlapping(question);
          if (found === undefined) expect(overlapping).toEqual([]);
          else expect(overlapping).toContain(`${found.prefix} of ${found.owner}`);
        }
      }),
    );
  });
});
