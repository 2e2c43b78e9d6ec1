import fc from 'fast-check';
import { expect, it } from 'vitest';
import { bufferView, equalFrom, hashOfBytes, isAscii } from '../../src/columns/byte-words.ts';

function hashOf(value: Uint8Array): number {
  return hashOfBytes(bufferView(value), value.byteOffset, value.byteOffset + value.length);
}

it('a hash depends on the bytes alone, not on the message that contains them', () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 40 }), fc.nat(9), (value, offset) => {
      const message = new Uint8Array(value.length + offset + 3).fill(7);
      message.set(value, offset);
      expect(hashOf(message.subarray(offset, offset + value.length))).toBe(hashOf(value));
    }),
  );
});

it('a hash changes with every bit, and with the length', () => {
  fc.assert(
    fc.property(fc.uint8Array({ minLength: 1, maxLength: 40 }), fc.nat(), fc.nat(7), (value, at, bit) => {
      const other = Uint8Array.from(value);
      const index = at % value.length;
      other[index] = (other[index] ?? 0) ^ (1 << bit);
      expect(hashOf(other)).not.toBe(hashOf(value));
      expect(hashOf(Uint8Array.of(...value, 0))).not.toBe(hashOf(value));
    }),
  );
});

it('a hash changes with each byte of values of every length, also in each of its lanes', () => {
  const same: string[] = [];
  for (let length = 1; length <= 80; length++) {
    const value = Uint8Array.from({ length }, (_, at) => 31 * at);
    const hash = hashOf(value);
    for (let at = 0; at < length; at++) {
      const other = Uint8Array.from(value);
      other[at] = (value[at] ?? 0) ^ 1;
      if (hashOf(other) === hash) same.push(`byte ${at} of ${length}`);
    }
  }
  expect(same).toEqual([]);
});

it('bytes equal other bytes, or are ASCII, as their bytes one by one', () => {
  const bytes = fc.uint8Array({ maxLength: 9 });
  fc.assert(
    fc.property(bytes, bytes, fc.nat(3), (value, other, offset) => {
      const all = Uint8Array.of(...value.subarray(0, offset), ...other, ...value);
      const from = Math.min(offset, value.length);
      const { length } = other;
      expect(equalFrom(bufferView(all), from, new DataView(other.slice().buffer), length)).toBe(true);
      const changed = other.map((byte, i) => (i === length - 1 ? byte ^ 1 : byte));
      expect(equalFrom(bufferView(all), from, new DataView(changed.buffer), length)).toBe(length === 0);
      expect(isAscii(bufferView(all), from, from + length)).toBe(other.every((byte) => byte < 0x80));
    }),
  );
});
