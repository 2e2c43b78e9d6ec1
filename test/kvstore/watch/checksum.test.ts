import fc from 'fast-check';
import { expect, it } from 'vitest';
import { checksumOf } from '../../../src/kvstore/watch/checksum.ts';

it('a checksum depends on the bytes alone, not on the message that contains them', () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 40 }), fc.nat(9), (value, offset) => {
      const message = new Uint8Array(value.length + offset + 3).fill(7);
      message.set(value, offset);
      expect(checksumOf(message.subarray(offset, offset + value.length))).toBe(checksumOf(value));
    }),
  );
});

it('a checksum changes with every bit, and with the length', () => {
  fc.assert(
    fc.property(fc.uint8Array({ minLength: 1, maxLength: 40 }), fc.nat(), fc.nat(7), (value, at, bit) => {
      const other = Uint8Array.from(value);
      const index = at % value.length;
      other[index] = (other[index] ?? 0) ^ (1 << bit);
      expect(checksumOf(other)).not.toBe(checksumOf(value));
      expect(checksumOf(Uint8Array.of(...value, 0))).not.toBe(checksumOf(value));
    }),
  );
});
