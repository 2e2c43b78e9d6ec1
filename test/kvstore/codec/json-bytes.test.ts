import fc from 'fast-check';
import { expect, it } from 'vitest';
import { jsonString } from '../../../src/kvstore/codec/go-json.ts';
import { JsonBytes } from '../../../src/kvstore/codec/json-bytes.ts';

const part = fc.oneof(
  fc.record({ kind: fc.constant('json' as const), text: fc.string({ unit: 'grapheme' }) }),
  fc.record({ kind: fc.constant('ascii' as const), text: fc.string({ maxLength: 3000 }) }),
  fc.record({ kind: fc.constant('string' as const), text: fc.string({ unit: 'binary', maxLength: 3000 }) }),
  fc.record({ kind: fc.constant('string' as const), text: fc.string({ unit: 'grapheme-ascii' }) }),
  fc.record({
    kind: fc.constant('number' as const),
    number: fc.oneof(fc.nat(), fc.double(), fc.maxSafeInteger()),
  }),
);

it('writes the bytes of the concatenated text', () => {
  const bytes = new JsonBytes();
  fc.assert(
    fc.property(fc.array(part), (parts) => {
      let expected = '';
      bytes.begin();
      for (const each of parts) {
        if (each.kind === 'number') {
          bytes.number(each.number);
          expected += String(each.number);
        } else if (each.kind === 'string') {
          bytes.string(each.text);
          expected += jsonString(each.text);
        } else {
          if (each.kind === 'ascii') bytes.ascii(Buffer.from(each.text));
          else bytes.json(each.text);
          expected += each.text;
        }
      }
      expect(Buffer.from(bytes.copy()).toString()).toBe(Buffer.from(expected).toString());
      expect(Buffer.compare(bytes.view(), bytes.copy())).toBe(0);
    }),
  );
});

it('gives the same view to values of equal length, also after its buffer has grown', () => {
  const bytes = new JsonBytes();
  const textOf = (text: string): string => {
    bytes.begin();
    bytes.json(text);
    return Buffer.from(bytes.view()).toString();
  };
  expect([textOf('one'), textOf('two')]).toEqual(['one', 'two']);
  const view = bytes.view();
  expect(textOf('x'.repeat(5000))).toHaveLength(5000);
  expect(textOf('six')).toBe('six');
  expect(bytes.view()).not.toBe(view);
  expect(bytes.view()).toBe(bytes.view());
});
