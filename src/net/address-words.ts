/** `4` or `6`. An IPv4-mapped IPv6 address counts as 4 everywhere (SEMANTICS 2.1). */
export type Family = 4 | 6;

/**
 * An address as machine words, in a register that its owner reuses: parsing allocates nothing.
 *
 *     IPv4  10.1.2.3   w0 = 0x0a010203   w1 = w2 = w3 = 0
 *     IPv6  fd00::1    w0 = 0xfd000000   w1 = w2 = 0   w3 = 1
 *
 * Words are **signed** 32-bit integers (`x | 0`), so that V8 keeps them as small integers; compare them with
 * `===`, order them with `>>> 0`.
 */
export interface AddressWords {
  family: Family;
  w0: number;
  w1: number;
  w2: number;
  w3: number;
}

/** How many bits an address of this family has. */
export function addressBits(family: Family): 32 | 128 {
  return family === 4 ? 32 : 128;
}

/** The mask of the `bits` (0–32) upper bits of a word; counts outside are cut to that range. */
export function wordMask(bits: number): number {
  if (bits <= 0) return 0;
  return bits >= 32 ? -1 : -1 << (32 - bits);
}

/** Zeroes every bit below the first `length`, in place. `length` is at most the family's bits. */
export function maskWords(words: AddressWords, length: number): void {
  words.w0 &= wordMask(length);
  words.w1 &= wordMask(length - 32);
  words.w2 &= wordMask(length - 64);
  words.w3 &= wordMask(length - 96);
}
