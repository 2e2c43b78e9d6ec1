import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  bytesOfKey,
  bytesOfText,
  equalBytes,
  keyJoiner,
  keyOfBytes,
  textOfBytes,
} from '../../../src/kvstore/codec/bytes.ts';

/** Bytes with their text in a key, whatever follows: none begins with a continuation byte. */
const PIECES: readonly (readonly [bytes: readonly number[], text: string])[] = [
  [[0x00], '\u0000'],
  [[0x61], 'a'],
  [[0x7f], '\u007f'],
  [[0xc2, 0x80], '\u0080'],
  [[0xdf, 0xbf], '\u07ff'],
  [[0xe0, 0xa0, 0x80], '\u0800'],
  [[0xef, 0xbb, 0xbf], '\ufeff'],
  [[0xef, 0xbf, 0xbd], '\ufffd'],
  [[0xef, 0xbf, 0xbf], '\uffff'],
  [[0xf0, 0x90, 0x80, 0x80], '\u{10000}'],
  [[0xf4, 0x8f, 0xbf, 0xbf], '\u{10ffff}'],
  [[0xc0], '\udcc0'],
  [[0xc2], '\udcc2'],
  [[0xe0, 0xa0], '\udce0\udca0'],
  [[0xed, 0xa0, 0x80], '\udced\udca0\udc80'],
  [[0xf0, 0x90, 0x80], '\udcf0\udc90\udc80'],
  [[0xff], '\udcff'],
];

describe('a key', () => {
  it('is text if it is UTF-8, and contains each other byte as a surrogate of its own', () => {
    fc.assert(
      fc.property(fc.array(fc.constantFrom(...PIECES), { maxLength: 6 }), (pieces) => {
        const bytes = Uint8Array.from(pieces.flatMap(([of]) => of));
        const key = keyOfBytes(bytes);
        expect(key).toBe(pieces.map(([, text]) => text).join(''));
        expect([...bytesOfKey(key)]).toEqual([...bytes]);
      }),
    );
  });

  it('is joined from a prefix and the bytes of any name', () => {
    const names = fc.array(fc.constantFrom(...PIECES), { maxLength: 40 });
    for (const prefix of ['', 'a/b/', 'ä/', '\udc80/']) {
      const join = keyJoiner(prefix);
      fc.assert(
        fc.property(names, fc.nat(3), (pieces, at) => {
          const bytes = Uint8Array.from(pieces.flatMap(([of]) => of));
          const padded = Uint8Array.from([...new Uint8Array(at), ...bytes, 0x61]);
          expect(join(padded, at, at + bytes.length)).toBe(prefix + keyOfBytes(bytes));
        }),
      );
      const ascii = Buffer.from('10.1.2.3');
      expect(join(ascii, 0, ascii.length)).toBe(`${prefix}10.1.2.3`);
    }
  });

  it('contains the first and the last byte that is not ASCII', () => {
    expect(keyOfBytes(Uint8Array.of(0x80))).toBe('\udc80');
    expect(keyOfBytes(Uint8Array.of(0x80, 0x80, 0x61))).toBe('\udc80\udc80a');
    expect([...bytesOfKey('\udc80\udcff')]).toEqual([0x80, 0xff]);
  });

  it.each(['\ud800', '\udc7f', '\udd00'])('writes a surrogate that stands for no byte as U+FFFD', (key) => {
    expect([...bytesOfKey(`a${key}`)]).toEqual([0x61, 0xef, 0xbf, 0xbd]);
  });
});

describe('a value', () => {
  it('is text if it is UTF-8, including the replacement character', () => {
    expect(textOfBytes(bytesOfText('a\ufffdé'))).toBe('a\ufffdé');
    expect(textOfBytes(Uint8Array.of(0x61, 0xff))).toBeUndefined();
    expect(textOfBytes(new Uint8Array([0x61, 0x62, 0x63]).subarray(1, 2))).toBe('b');
  });

  it('equals another one of the same bytes', () => {
    const bytes = bytesOfText('ab');
    expect([bytes, bytesOfText('ab')].map((other) => equalBytes(bytes, other))).toEqual([true, true]);
    expect(['', 'a', 'ac', 'abc'].map((other) => equalBytes(bytes, bytesOfText(other)))).toEqual([
      ...[false, false, false, false],
    ]);
  });
});
