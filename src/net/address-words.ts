/** `4` or `6`. An IPv4-mapped IPv6 address has family 4 everywhere (SEMANTICS 2.1). */
export type Family = 4 | 6;

/**
 * An address as machine words. Its owner reuses the object so that parsing allocates nothing.
 *
 *     IPv4  10.1.2.3   w0 = 0x0a010203   w1 = w2 = w3 = 0
 *     IPv6  fd00::1    w0 = 0xfd000000   w1 = w2 = 0   w3 = 1
 *
 * Words are **signed** 32-bit integers (`x | 0`) because V8 stores these as small integers. Compare them with `===`,
 * order them with `>>> 0`.
 */
export interface AddressWords {
  family: Family;
  w0: number;
  w1: number;
  w2: number;
  w3: number;
}

export function addressBits(family: Family): 32 | 128 {
  return family === 4 ? 32 : 128;
}

/** Returns a word of an address. `index` is from 0 to 3; a smaller one selects the first word. */
export function wordAt({ w0, w1, w2, w3 }: Readonly<AddressWords>, index: number): number {
  if (index <= 0) return w0;
  if (index === 1) return w1;
  return index === 2 ? w2 : w3;
}

/** Returns the mask of the upper `bits` of a word. `bits` is clamped to 0–32. */
export function wordMask(bits: number): number {
  if (bits <= 0) return 0;
  return bits >= 32 ? -1 : -1 << (32 - bits);
}

/** Zeroes every bit after the first `length`, in place. `length` is at most the number of bits of the family. */
export function maskWords(words: AddressWords, length: number): void {
  words.w0 &= wordMask(length);
  words.w1 &= wordMask(length - 32);
  words.w2 &= wordMask(length - 64);
  words.w3 &= wordMask(length - 96);
}
