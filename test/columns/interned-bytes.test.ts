import fc from 'fast-check';
import { expect, it } from 'vitest';
import { bufferView } from '../../src/columns/byte-words.ts';
import { InternedBytes } from '../../src/columns/interned-bytes.ts';
import { bytesOfText } from '../../src/kvstore/codec/bytes.ts';

function get<T>(interned: InternedBytes<T>, text: string): T | undefined {
  const bytes = bytesOfText(text);
  return interned.get(bufferView(bytes), bytes.byteOffset, bytes.byteOffset + bytes.length);
}

it('every text has its own value, however many there are', () => {
  const interned = new InternedBytes((text) => ({ text }));
  const texts = Array.from({ length: 30_000 }, (_, i) => `10.${i >> 8}.0.${i & 255}`);
  const wrong: string[] = [];
  for (let round = 0; round < 3; round++)
    for (const text of texts) if (get(interned, text)?.text !== text) wrong.push(text);
  expect(wrong).toEqual([]);
});

it('a text that differs in any one byte from the last text has its own value', () => {
  const interned = new InternedBytes((text) => text);
  for (let length = 0; length <= 20; length++) {
    const text = 'x'.repeat(length);
    for (let at = 0; at < length; at++) {
      const other = `${text.slice(0, at)}y${text.slice(at + 1)}`;
      expect([get(interned, text), get(interned, text), get(interned, other)]).toEqual([text, text, other]);
    }
  }
});

it('the values of a limited number of texts are kept', () => {
  let made = 0;
  const interned = new InternedBytes(() => ++made, 512);
  const texts = Array.from({ length: 3000 }, (_, i) => `node-${i}`);
  for (let round = 0; round < 4; round++) for (const text of texts) get(interned, text);
  made = 0;
  for (const text of texts) get(interned, text);
  expect(texts.length - made).toBeLessThanOrEqual(512);
  expect(made).toBeLessThan(texts.length);
});

it('texts that repeat are made once, also those of a large mesh', () => {
  let made = 0;
  const interned = new InternedBytes(() => ++made);
  const texts = Array.from({ length: 25_000 }, (_, i) => `10.${i >> 8}.0.${i & 255}`);
  for (let round = 0; round < 12; round++) for (const text of texts) get(interned, text);
  made = 0;
  for (const text of texts) get(interned, text);
  expect(made).toBeLessThan(texts.length / 2); // two texts may share a slot
  expect(get(interned, '10.0.0.1')).toBe(get(interned, '10.0.0.1'));
});

it('texts that are not ASCII have no value, and long ones are made each time', () => {
  let made = 0;
  const interned = new InternedBytes(() => ++made);
  fc.assert(
    fc.property(fc.string({ unit: 'grapheme', maxLength: 9 }), (text) => {
      expect(get(interned, text) === undefined).toBe(!/^[\0-\x7f]*$/.test(text));
    }),
  );
  const long = 'x'.repeat(600);
  expect(get(interned, long)).not.toBe(get(interned, long));
});
