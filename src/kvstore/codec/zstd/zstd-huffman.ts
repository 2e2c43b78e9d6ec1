/*
 * A compressed block begins with its literals (RFC 8878, section 3.1.1.3.1):
 *
 *     header       3, 4 or 5 bytes
 *     size         1 byte: the size of the FSE table and the weights; from 128 on, the weights are not compressed
 *     FSE table    4 bits: the accuracy; then the probabilities, each of a variable number of bits
 *     weights      of the Huffman table, compressed with the FSE table
 */

/** The stored accuracy plus this is the accuracy. */
const MIN_ACCURACY = 5;
/** Maximum accuracy of a table for weights. */
const MAX_ACCURACY = 6;

/** Returns `count` bits of `bytes`, at most 8, from the bit `at`. */
function bitsAt(bytes: Uint8Array, at: number, count: number): number {
  const byte = at >> 3;
  return (((bytes[byte] ?? 0) | ((bytes[byte + 1] ?? 0) << 8)) >> (at & 7)) & ((1 << count) - 1);
}

/**
 * Returns true if the Huffman weights of a compressed block have a table in which one weight has the whole probability,
 * or a table that does not end within its size. No encoder writes such a table. Reading a weight with such a table
 * takes no bits, so `fzstd` 0.1.1 would never end.
 */
export function hasEndlessWeights(block: Uint8Array): boolean {
  const first = block[0] ?? 0;
  if ((first & 3) !== 2) return false; // the literals have no table
  const format = (first >> 2) & 3;
  const at = format < 2 ? 3 : format + 2;
  const size = block[at] ?? 0;
  if (size >= 128) return false; // the weights are not compressed
  const accuracy = ((block[at + 1] ?? 0) & 15) + MIN_ACCURACY;
  if (accuracy > MAX_ACCURACY) return false; // decoders reject it
  const whole = (1 << (accuracy + 1)) - 1;
  const end = Math.min(block.length, at + 1 + size) * 8;
  for (let bit = (at + 1) * 8 + 4; bit < end; ) {
    // While no probability is assigned, the number 1 in `accuracy` bits means probability 0. Counts of further zeros
    // follow, of 2 bits each; after a count of 3, there is another one. With one bit more, all bits set mean the whole
    // probability.
    const number = bitsAt(block, bit, accuracy + 1);
    if (number === whole) return true;
    if ((number & (whole >> 1)) !== 1) return false;
    bit += accuracy;
    for (let repeat = 3; repeat === 3 && bit < end; bit += 2) repeat = bitsAt(block, bit, 2);
  }
  return true;
}
