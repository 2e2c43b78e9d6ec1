import fc from 'fast-check';
import { expect, it } from 'vitest';
import { jsonString } from '../../../src/kvstore/codec/go-json.ts';
import { JsonBytes } from '../../../src/kvstore/codec/json-bytes.ts';

const part = fc.oneof(
  fc.record({ kind: fc.constant('json' as const), text: fc.string({ unit: 'grapheme' }) }),
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
          bytes.json(each.text);
          expected += each.text;
        }
      }
      expect(Buffer.from(bytes.copy()).toString()).toBe(Buffer.from(expected).toString());
    }),
  );
});
