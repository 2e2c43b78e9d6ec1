import { Int32Rows } from '../base/int32-rows.ts';
import { type AddressWords, type Family, maskWords } from './address-words.ts';
import { KeyHash, lengthWord } from './key-hash.ts';

/** Lengths up to this one are kept exactly, in a set of bits; longer ones by their stems. */
const SHORT = 16;

/** How many lengths one stem speaks for. */
function tierOf(family: Family): 8 | 16 {
  return family === 4 ? 8 : 16;
}

/** Which lengths are in use below each stem of one family. */
class FamilyStems {
  readonly tier: 8 | 16;
  readonly #family: Family;
  readonly #stems: KeyHash;
  /** For each stem: a bit for every length in use, then how many prefixes have each length. */
  readonly #rows: Int32Rows;
  /** How many stems of each length there are: a tier without any is not looked at. */
  readonly #stemsOfLength = new Int32Array(128);
  /** Bit (1 << length) + leading bits, for every short prefix; made with the first one. */
  #short: Uint8Array | undefined;
  readonly #at: AddressWords;

  constructor(family: Family, seed: number) {
    this.#family = family;
    this.tier = tierOf(family);
    this.#stems = new KeyHash(seed);
    this.#rows = new Int32Rows(1 + this.tier);
    this.#at = { family, w0: 0, w1: 0, w2: 0, w3: 0 };
  }

  get bytes(): number {
    return this.#stems.bytes + this.#rows.bytes + (this.#short?.byteLength ?? 0);
  }

  /** Counts one prefix more (`by` 1) or less (-1). */
  adjust(words: Readonly<AddressWords>, length: number, by: 1 | -1): void {
    if (length <= SHORT) {
      this.#short ??= new Uint8Array((2 << SHORT) / 8);
      const bit = shortBit(words, length);
      this.#short[bit >>> 3] = (this.#short[bit >>> 3] ?? 0) ^ (1 << (bit & 7));
      return;
    }
    const stemLength = (length - 1) & ~(this.tier - 1);
    const slot = this.#stemSlot(words, stemLength, by === 1);
    const bit = length - stemLength - 1;
    const count = this.#rows.get(slot, 1 + bit) + by;
    const lengths = this.#rows.get(slot, 0);
    const left = count > 0 ? lengths | (1 << bit) : lengths & ~(1 << bit);
    this.#rows.set(slot, 1 + bit, count);
    this.#rows.set(slot, 0, left);
    if (left === 0) {
      this.#stems.remove(slot, this.#at, lengthWord(this.#family, stemLength));
      this.#countStems(stemLength, -1);
    }
  }

  /** A bit for each length (stem + 1 + bit) of which there is some prefix below this stem of the address. */
  lengthsUnder(address: Readonly<AddressWords>, stemLength: number): number {
    if (this.#stemsOfLength[stemLength] === 0) return 0;
    const slot = this.#stemSlot(address, stemLength, false);
    return slot < 0 ? 0 : this.#rows.get(slot, 0);
  }

  /** The longest short prefix that contains the address, as a length; or -1. Exact. */
  longestShort(address: Readonly<AddressWords>): number {
    if (this.#short === undefined) return -1;
    for (let length = SHORT; length >= 0; length--) {
      const bit = shortBit(address, length);
      if (((this.#short[bit >>> 3] ?? 0) & (1 << (bit & 7))) !== 0) return length;
    }
    return -1;
  }

  /** The slot of the stem of some words, which are in `#at` then. */
  #stemSlot(words: Readonly<AddressWords>, stemLength: number, make: boolean): number {
    const at = this.#at;
    at.w0 = words.w0;
    at.w1 = words.w1;
    at.w2 = words.w2;
    at.w3 = words.w3;
    maskWords(at, stemLength);
    const word = lengthWord(this.#family, stemLength);
    const found = this.#stems.find(at, word);
    if (found >= 0 || !make) return found;
    const slot = this.#stems.insert(at, word);
    this.#rows.reserve(slot); // a row used before was left all zero
    this.#countStems(stemLength, 1);
    return slot;
  }

  #countStems(stemLength: number, by: number): void {
    this.#stemsOfLength[stemLength] = (this.#stemsOfLength[stemLength] ?? 0) + by;
  }
}

/** The leading bits of a short prefix, with a one before them: distinct for every length. */
function shortBit(words: Readonly<AddressWords>, length: number): number {
  return (1 << length) | ((words.w0 >>> 16) >>> (SHORT - length));
}

/**
 * Which prefix lengths a longest match has to try. A prefix of length 17 to 24 is counted at its *stem* of 16
 * bits, one of 25 to 32 at its stem of 24 bits (IPv6: stems every 16 bits), so that one look at a stem tells which
 * lengths exist in that neighbourhood; most addresses have one or two. Lengths up to 16 are bits in a small set.
 *
 * Costs only prefixes shorter than an address: endpoints are found without it. Up to 60 bytes for a stem.
 */
export class StemIndex {
  readonly #seed: number;
  #ipv4: FamilyStems | undefined;
  #ipv6: FamilyStems | undefined;

  constructor(seed: number) {
    this.#seed = seed;
  }

  /** The stems of a family; undefined until it has had a prefix that is shorter than an address. */
  of(family: Family): FamilyStems | undefined {
    return family === 4 ? this.#ipv4 : this.#ipv6;
  }

  /** Counts one prefix more (`by` 1) or less (-1). It is shorter than an address. */
  adjust(key: Readonly<AddressWords>, length: number, by: 1 | -1): void {
    if (key.family === 4) {
      this.#ipv4 ??= new FamilyStems(4, this.#seed);
      this.#ipv4.adjust(key, length, by);
    } else {
      this.#ipv6 ??= new FamilyStems(6, this.#seed);
      this.#ipv6.adjust(key, length, by);
    }
  }

  get bytes(): number {
    return (this.#ipv4?.bytes ?? 0) + (this.#ipv6?.bytes ?? 0);
  }
}
