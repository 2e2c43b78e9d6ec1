import { Int32Map } from '../base/int32-map.ts';
import { Int32Rows } from '../base/int32-rows.ts';
import { type AddressWords, type Family, wordMask } from './address-words.ts';
import { mix } from './key-hash.ts';

/** Lengths up to this one are kept exactly, in a set of bits; longer ones by their stems. */
const SHORT = 16;

/** How many lengths one stem speaks for. */
function tierOf(family: Family): 8 | 16 {
  return family === 4 ? 8 : 16;
}

/** Which lengths are in use below each stem of one family. */
class FamilyStems {
  readonly tier: 8 | 16;
  readonly #seed: number;
  /** For each stem a bit for every length in use: all that a look-up reads. */
  #lengths = new Int32Map();
  /** For each stem the row, plus one, that says how many prefixes have each length. */
  #rowOf = new Int32Map();
  #rows: Int32Rows;
  #freeRows: number[] = [];
  #rowLimit = 0;
  /** How many prefixes there are at stems of each length: a tier without any is not looked at. */
  readonly #prefixes = new Int32Array(128);
  /** Bit (1 << length) + leading bits, for every short prefix; made with the first one. */
  #short: Uint8Array | undefined;

  constructor(family: Family, seed: number) {
    this.tier = tierOf(family);
    this.#seed = seed;
    this.#rows = new Int32Rows(this.tier);
  }

  fork(): FamilyStems {
    const fork = new FamilyStems(this.tier === 8 ? 4 : 6, this.#seed);
    fork.#lengths = this.#lengths.fork();
    fork.#rowOf = this.#rowOf.fork();
    fork.#rows = this.#rows.fork();
    fork.#freeRows = this.#freeRows.slice();
    fork.#rowLimit = this.#rowLimit;
    fork.#prefixes.set(this.#prefixes);
    fork.#short = this.#short?.slice();
    return fork;
  }

  get bytes(): number {
    return this.#lengths.bytes + this.#rowOf.bytes + this.#rows.bytes + (this.#short?.byteLength ?? 0);
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
    this.#prefixes[stemLength] = (this.#prefixes[stemLength] ?? 0) + by;
    const stem = this.#stem(words, stemLength);
    const bit = length - stemLength - 1;
    const row = this.#row(stem);
    const count = this.#rows.get(row, bit) + by;
    this.#rows.set(row, bit, count);
    const lengths = this.#lengths.get(stem);
    const left = count > 0 ? lengths | (1 << bit) : lengths & ~(1 << bit);
    if (left !== lengths) this.#lengths.exchange(stem, left);
    if (left === 0) this.#freeRows.push(this.#rowOf.exchange(stem, 0) - 1); // all zero, as a new one
  }

  /** A bit for each length (stem + 1 + bit) of which there may be some prefix below this stem of the address. */
  lengthsUnder(address: Readonly<AddressWords>, stemLength: number): number {
    if (this.#prefixes[stemLength] === 0) return 0;
    return this.#lengths.get(this.#stem(address, stemLength));
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

  /**
   * A number for the first bits of an address. For IPv4 it is those bits, above their number. Different IPv6 stems may
   * have the same one: then each is said to have the other's lengths too, and a look-up tries some in vain.
   */
  #stem(words: Readonly<AddressWords>, length: number): number {
    if (words.family === 4) return (words.w0 & wordMask(length)) | length;
    let stem = mix(this.#seed ^ length, words.w0 & wordMask(length));
    if (length > 32) stem = mix(stem, words.w1 & wordMask(length - 32));
    if (length > 64) stem = mix(stem, words.w2 & wordMask(length - 64));
    if (length > 96) stem = mix(stem, words.w3 & wordMask(length - 96));
    return stem;
  }

  #row(stem: number): number {
    const found = this.#rowOf.get(stem);
    if (found !== 0) return found - 1;
    const row = this.#freeRows.pop() ?? this.#rowLimit++;
    this.#rows.reserve(row);
    this.#rowOf.exchange(stem, row + 1);
    return row;
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
 *     10.1.2.0/24, 10.1.9.128/25   ──►   stem 10.1/16: { 24 }   stem 10.1.9/24: { 25 }
 *     10.1.2.3?   stem 10.1.2/24: none; stem 10.1/16: try 10.1.2.0/24
 *
 * A look-up touches one cache line for each tier. Costs only prefixes shorter than an address: endpoints are found
 * without it. 50 to 80 bytes for a stem.
 */
export class StemIndex {
  readonly #seed: number;
  #ipv4: FamilyStems | undefined;
  #ipv6: FamilyStems | undefined;

  constructor(seed: number) {
    this.#seed = seed;
  }

  /** The same stems; writes to either do not show in the other. The next write to each copies its maps. */
  fork(): StemIndex {
    const fork = new StemIndex(this.#seed);
    fork.#ipv4 = this.#ipv4?.fork();
    fork.#ipv6 = this.#ipv6?.fork();
    return fork;
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
