import { Int32Map } from '../columns/int32-map.ts';
import { Int32Rows } from '../columns/int32-rows.ts';
import { mix } from '../columns/mix.ts';
import { type AddressWords, type Family, wordMask } from '../net/address-words.ts';
import { baseIndex, STRIDE, StrideSets } from './stride-sets.ts';

/**
 * Finds the prefix lengths to try for a longest match in one family. Each prefix shorter than an address is in the set
 * of its *stem*: as many of its first bits as the greatest multiple of eight below its length ({@link StrideSets}). One
 * read of a set yields the longest prefix in it that contains an address. A *root* (IPv4) or *guide* (IPv6) records
 * which sets exist, so that only these are read. `longest` usually reads two cache lines. Memory: 16 to 32 bytes for a
 * stem, 64 more if it has several prefixes; for IPv6 16 to 32 bytes for each first 48 bits, for IPv4 up to half a
 * megabyte of roots.
 */
export interface FamilyStems {
  /**
   * Returns the length of the longest prefix shorter than `below` that contains the address, or -1. It misses no
   * prefix. For IPv6 it may return the length of a missing prefix, because stems are hashes.
   */
  longest(address: Readonly<AddressWords>, below: number): number;
  /** Adds (`by` 1) or removes (-1) a prefix. */
  adjust(words: Readonly<AddressWords>, length: number, by: 1 | -1): void;
  /** Returns a copy. Later writes to one do not affect the other. The next write to each copies its maps. */
  fork(): FamilyStems;
  readonly bytes: number;
}

/** IPv4 prefixes up to this length are bits of one array. Longer ones are indexed by their first 16 bits. */
const SHORT = 16;
// Columns of a root, the row of a /16.
const SET = 0;
const DEEPER = 1;

/**
 * The IPv4 prefixes of 0 to 16 bits (`#short`), 17 to 24 (`#roots`) and 25 to 31 (`#deep`).
 *
 *     10.1.9.200?   roots[10.1]: set of /17 … /24 │ 32 bits, one for each /21: may it have prefixes longer than /24?
 *                                                     └─► deep[10.1.9]: set of /25 … /31
 */
class IPv4Stems implements FamilyStems {
  readonly #seed: number;
  /** One bit for each prefix of at most 16 bits, by its base index. */
  #short = new Int32Array((2 << SHORT) / 32);
  #roots = new Int32Rows(2);
  #deep = new Int32Map();
  #sets = new StrideSets();

  constructor(seed: number) {
    this.#seed = seed;
  }

  fork(): IPv4Stems {
    const fork = new IPv4Stems(this.#seed);
    fork.#short = this.#short.slice();
    fork.#roots = this.#roots.fork();
    fork.#deep = this.#deep.fork();
    fork.#sets = this.#sets.fork();
    return fork;
  }

  get bytes(): number {
    return this.#short.byteLength + this.#roots.bytes + this.#deep.bytes + this.#sets.bytes;
  }

  /** Ignores `below`: the first result is exact, so the caller does not call again with a smaller length. */
  longest({ w0 }: Readonly<AddressWords>): number {
    // `256 | octet` is the base index of all eight bits of an octet.
    const page = this.#roots.pageOf(w0 >>> 16);
    const at = this.#roots.offsetOf(w0 >>> 16);
    if (((page[at + DEEPER] ?? 0) & deeperBit(w0)) !== 0) {
      const bits = this.#sets.longest(this.#deepAt(w0 >> 8), 256 | (w0 & 255));
      if (bits >= 0) return 24 + bits;
    }
    const bits = this.#sets.longest(page[at + SET] ?? 0, 256 | ((w0 >>> 8) & 255));
    if (bits >= 0) return 16 + bits;
    let short = (1 << SHORT) | (w0 >>> 16);
    while (short > 0 && (((this.#short[short >>> 5] ?? 0) >>> (short & 31)) & 1) === 0) short >>>= 1;
    return 31 - Math.clz32(short);
  }

  adjust(words: Readonly<AddressWords>, length: number, by: 1 | -1): void {
    const root = words.w0 >>> 16;
    if (length <= SHORT) {
      const bit = ((1 << SHORT) | root) >>> (SHORT - length); // its base index; both values of `by` flip the bit
      this.#short[bit >>> 5] = (this.#short[bit >>> 5] ?? 0) ^ (1 << (bit & 31));
      return;
    }
    this.#roots.reserve(root);
    if (length <= 24) {
      const index = baseIndex(words, 16, length - 16);
      this.#roots.set(root, SET, adjusted(this.#sets, this.#roots.get(root, SET), index, by));
    } else this.#adjustDeep(words, baseIndex(words, 24, length - 24), by);
  }

  #adjustDeep(words: Readonly<AddressWords>, index: number, by: 1 | -1): void {
    const stem = words.w0 >> 8;
    this.#deep.exchange(stem ^ this.#seed, adjusted(this.#sets, this.#deepAt(stem), index, by));
    const root = words.w0 >>> 16;
    const deeper = this.#roots.get(root, DEEPER);
    const bit = deeperBit(words.w0);
    this.#roots.set(root, DEEPER, this.#hasDeeper(stem & ~7) ? deeper | bit : deeper & ~bit);
  }

  /**
   * Returns the set of a /24. The seed is mixed in, so that an attacker cannot choose prefixes colliding in the map.
   */
  #deepAt(stem: number): number {
    return this.#deep.get(stem ^ this.#seed);
  }

  /** Returns true if any of eight /24 has longer prefixes. */
  #hasDeeper(first: number): boolean {
    for (let stem = first; stem < first + 8; stem++) if (this.#deepAt(stem) !== 0) return true;
    return false;
  }
}

function deeperBit(w0: number): number {
  return 1 << ((w0 >>> 11) & 31);
}

function adjusted(sets: StrideSets, set: number, index: number, by: 1 | -1): number {
  return by > 0 ? sets.add(set, index) : sets.remove(set, index);
}

const LEVELS: number = 128 / STRIDE;
/** The first level described by guides: stems of 48 bits, the usual prefix of a site. */
const GUIDED: number = 48 / STRIDE;
const GUIDED_MASK: number = (1 << (LEVELS - GUIDED)) - 1;
/** The increment of a guide for one prefix. */
const ONE_PREFIX: number = GUIDED_MASK + 1;
/** From this value on (2 million prefixes) a guide does not count any more and is never removed. */
const UNCOUNTED: number = 0x7fff_ffff - GUIDED_MASK;

/**
 * Stems of 0, 8, 16 … 120 bits, called levels. A stem is stored as a hash; two stems with the same hash share a set. A
 * guide is one word for the first 48 bits of an address: the number of longer prefixes and their levels.
 *
 *     2a00:1:2:3::4?   guides[2a00:1:2]: levels 56, 64      sets[2a00:1:2:3]: empty
 *                                                           sets[2a00:1:2::/56]: { 2a00:1:2::/62 }, which contains it
 *                      no guide: levels 40, 32 … 0
 */
class IPv6Stems implements FamilyStems {
  readonly #seed: number;
  #guides = new Int32Map();
  /** The set of each stem, by hash. */
  #setOf = new Int32Map();
  #sets = new StrideSets();
  /** Number of prefixes of each level. Empty levels are skipped. */
  readonly #prefixes = new Int32Array(LEVELS);
  /**
   * Number of further prefixes with the same bit of a set, by bit: stems with the same hash share a set, so several
   * prefixes may share a bit.
   */
  #extra: Map<number, number> = new Map();

  constructor(seed: number) {
    this.#seed = seed;
  }

  fork(): IPv6Stems {
    const fork = new IPv6Stems(this.#seed);
    fork.#guides = this.#guides.fork();
    fork.#setOf = this.#setOf.fork();
    fork.#sets = this.#sets.fork();
    fork.#prefixes.set(this.#prefixes);
    fork.#extra = new Map(this.#extra);
    return fork;
  }

  get bytes(): number {
    return this.#guides.bytes + this.#setOf.bytes + this.#sets.bytes;
  }

  longest(address: Readonly<AddressWords>, below: number): number {
    const guide = this.#guides.get(this.#stem(address, GUIDED * STRIDE)) & GUIDED_MASK;
    for (let level = Math.max(0, (below - 2) >> 3); level >= 0; level--) {
      if (level >= GUIDED ? (guide & (1 << (level - GUIDED))) === 0 : this.#prefixes[level] === 0) continue;
      const stemLength = level * STRIDE;
      const set = this.#setOf.get(this.#stem(address, stemLength));
      const maxBits = Math.min(STRIDE, below - 1 - stemLength);
      const bits = this.#sets.longest(set, baseIndex(address, stemLength, maxBits));
      if (bits >= 0) return stemLength + bits;
    }
    return -1;
  }

  adjust(words: Readonly<AddressWords>, length: number, by: 1 | -1): void {
    const level = Math.max(0, (length - 1) >> 3);
    this.#prefixes[level] = (this.#prefixes[level] ?? 0) + by;
    if (level >= GUIDED) this.#adjustGuide(words, 1 << (level - GUIDED), by);
    const stem = this.#stem(words, level * STRIDE);
    const index = baseIndex(words, level * STRIDE, length - level * STRIDE);
    const set = this.#setOf.get(stem);
    const id = stem * 512 + index; // because base indexes are below 512
    const extra = this.#extra.get(id) ?? 0;
    if (by > 0 ? this.#sets.has(set, index) : extra > 0) {
      if (extra + by > 0) this.#extra.set(id, extra + by);
      else this.#extra.delete(id);
    } else this.#setOf.exchange(stem, adjusted(this.#sets, set, index, by));
  }

  /** Adjusts the guide of a prefix: its count, and the bit of the prefix's level. */
  #adjustGuide(words: Readonly<AddressWords>, levelBit: number, by: 1 | -1): void {
    const stem = this.#stem(words, GUIDED * STRIDE);
    const guide = this.#guides.get(stem);
    const adjustedGuide = (guide | levelBit) + (guide < UNCOUNTED ? by * ONE_PREFIX : 0);
    this.#guides.exchange(stem, adjustedGuide < ONE_PREFIX ? 0 : adjustedGuide);
  }

  /** Returns the hash of the first `length` bits of an address. */
  #stem(words: Readonly<AddressWords>, length: number): number {
    let stem = mix(this.#seed ^ length, words.w0 & wordMask(length));
    if (length > 32) stem = mix(stem, words.w1 & wordMask(length - 32));
    if (length > 64) stem = mix(stem, words.w2 & wordMask(length - 64));
    if (length > 96) stem = mix(stem, words.w3 & wordMask(length - 96));
    return stem;
  }
}

/** Returns the stems of a family without prefixes. */
export function newStems(family: Family, seed: number): FamilyStems {
  return family === 4 ? new IPv4Stems(seed) : new IPv6Stems(seed);
}
