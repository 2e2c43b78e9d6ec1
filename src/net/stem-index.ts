import { Int32Map } from '../base/int32-map.ts';
import { Int32Rows } from '../base/int32-rows.ts';
import { type AddressWords, type Family, wordMask } from './address-words.ts';
import { mix } from './key-hash.ts';
import { NetSets, netOf, STRIDE } from './net-sets.ts';

/** Which prefixes of one family there are that are shorter than an address. */
export interface FamilyStems {
  /**
   * The length, below `below`, of the longest prefix that contains the address, or -1. It passes over none; for IPv6 it may
   * name one that is not there.
   */
  longest(address: Readonly<AddressWords>, below: number): number;
  /** Counts one prefix more (`by` 1) or less (-1). */
  adjust(words: Readonly<AddressWords>, length: number, by: 1 | -1): void;
  /** The same prefixes; writes to either do not show in the other. */
  fork(): FamilyStems;
  readonly bytes: number;
}

/** IPv4 prefixes up to this length are a set of bits; longer ones are found from their first 16 bits on. */
const SHORT = 16;
// Columns of the row that 16 bits have.
const SET = 0;
const DEEPER = 1;

/**
 *     10.1.9.200?   roots[10.1]: set of /17 … /24 │ 32 bits, one for each /21: may it have prefixes longer than /24?
 *                                                     └─► deep[10.1.9]: set of /25 … /31
 */
class IPv4Stems implements FamilyStems {
  readonly #seed: number;
  /** A bit for each prefix of at most 16 bits: these, with a one before them. */
  #short = new Int32Array((2 << SHORT) / 32);
  #roots = new Int32Rows(2);
  #deep = new Int32Map();
  #sets = new NetSets();

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

  longest({ w0 }: Readonly<AddressWords>): number {
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
      const bit = ((1 << SHORT) | root) >>> (SHORT - length);
      this.#short[bit >>> 5] = (this.#short[bit >>> 5] ?? 0) ^ (1 << (bit & 31));
      return;
    }
    this.#roots.reserve(root);
    if (length <= 24) {
      const net = netOf(words, 16, length - 16);
      this.#roots.set(root, SET, adjusted(this.#sets, this.#roots.get(root, SET), net, by));
    } else this.#adjustDeep(words, netOf(words, 24, length - 24), by);
  }

  #adjustDeep(words: Readonly<AddressWords>, net: number, by: 1 | -1): void {
    const stem = words.w0 >> 8;
    this.#deep.exchange(stem ^ this.#seed, adjusted(this.#sets, this.#deepAt(stem), net, by));
    const root = words.w0 >>> 16;
    const deeper = this.#roots.get(root, DEEPER);
    const bit = deeperBit(words.w0);
    this.#roots.set(root, DEEPER, this.#hasDeeper(stem & ~7) ? deeper | bit : deeper & ~bit);
  }

  /** The set of a /24. The seed is mixed in, so that strangers cannot choose ones that crowd one part of the map. */
  #deepAt(stem: number): number {
    return this.#deep.get(stem ^ this.#seed);
  }

  /** Whether any of eight /24 has longer prefixes. */
  #hasDeeper(first: number): boolean {
    for (let stem = first; stem < first + 8; stem++) if (this.#deepAt(stem) !== 0) return true;
    return false;
  }
}

function deeperBit(w0: number): number {
  return 1 << ((w0 >>> 11) & 31);
}

function adjusted(sets: NetSets, set: number, net: number, by: 1 | -1): number {
  return by > 0 ? sets.add(set, net) : sets.remove(set, net);
}

const LEVELS: number = 128 / STRIDE;
/** The first of the levels that guides tell of: that of the stems of 48 bits, which a site usually has. */
const GUIDED: number = 48 / STRIDE;
const GUIDED_MASK: number = (1 << (LEVELS - GUIDED)) - 1;
/** What a prefix counts in a guide; and from where on a guide does not count any more, and stays: 2 million. */
const ONE: number = GUIDED_MASK + 1;
const MANY: number = 0x7fff_ffff - GUIDED_MASK;

/**
 * Stems of 0, 8, 16 … 120 bits: the levels. A stem is a hash: where two have the same, what is said of one is said of the
 * other. A guide is a word for the first 48 bits: how many longer prefixes there are below, and at which levels.
 *
 *     2a00:1:2:3::4?   guides[2a00:1:2]: levels 56, 64      sets[2a00:1:2:3]: none
 *                                                           sets[2a00:1:2::/56]: { 2a00:1:2::/62 }, which it is in
 *                      no guide: levels 40, 32 … 0
 */
class IPv6Stems implements FamilyStems {
  readonly #seed: number;
  #guides = new Int32Map();
  #setOf = new Int32Map();
  #sets = new NetSets();
  /** How many prefixes each level has: one without any is not looked at. */
  readonly #prefixes = new Int32Array(LEVELS);
  /** Prefixes that the set of their stem seemed to have already, since another stem has the same hash: how many. */
  #doubled: Map<number, number> = new Map();

  constructor(seed: number) {
    this.#seed = seed;
  }

  fork(): IPv6Stems {
    const fork = new IPv6Stems(this.#seed);
    fork.#guides = this.#guides.fork();
    fork.#setOf = this.#setOf.fork();
    fork.#sets = this.#sets.fork();
    fork.#prefixes.set(this.#prefixes);
    fork.#doubled = new Map(this.#doubled);
    return fork;
  }

  get bytes(): number {
    return this.#guides.bytes + this.#setOf.bytes + this.#sets.bytes;
  }

  longest(address: Readonly<AddressWords>, below: number): number {
    const guide = this.#guides.get(this.#stem(address, GUIDED * STRIDE)) & GUIDED_MASK;
    for (let level = Math.max(0, (below - 2) >> 3); level >= 0; level--) {
      if (level >= GUIDED ? (guide & (1 << (level - GUIDED))) === 0 : this.#prefixes[level] === 0) continue;
      const stem = level * STRIDE;
      const set = this.#setOf.get(this.#stem(address, stem));
      const bits = this.#sets.longest(set, netOf(address, stem, Math.min(STRIDE, below - 1 - stem)));
      if (bits >= 0) return stem + bits;
    }
    return -1;
  }

  adjust(words: Readonly<AddressWords>, length: number, by: 1 | -1): void {
    const level = Math.max(0, (length - 1) >> 3);
    this.#prefixes[level] = (this.#prefixes[level] ?? 0) + by;
    if (level >= GUIDED) this.#adjustGuide(words, 1 << (level - GUIDED), by);
    const stem = this.#stem(words, level * STRIDE);
    const net = netOf(words, level * STRIDE, length - level * STRIDE);
    const set = this.#setOf.get(stem);
    const id = stem * 512 + net;
    const doubled = this.#doubled.get(id) ?? 0;
    if (by > 0 ? this.#sets.has(set, net) : doubled > 0) {
      if (doubled + by > 0) this.#doubled.set(id, doubled + by);
      else this.#doubled.delete(id);
    } else this.#setOf.exchange(stem, adjusted(this.#sets, set, net, by));
  }

  #adjustGuide(words: Readonly<AddressWords>, level: number, by: 1 | -1): void {
    const stem = this.#stem(words, GUIDED * STRIDE);
    const guide = this.#guides.get(stem);
    const now = (guide | level) + (guide < MANY ? by * ONE : 0);
    this.#guides.exchange(stem, now < ONE ? 0 : now);
  }

  /** A number for the first bits of an address. */
  #stem(words: Readonly<AddressWords>, length: number): number {
    let stem = mix(this.#seed ^ length, words.w0 & wordMask(length));
    if (length > 32) stem = mix(stem, words.w1 & wordMask(length - 32));
    if (length > 64) stem = mix(stem, words.w2 & wordMask(length - 64));
    if (length > 96) stem = mix(stem, words.w3 & wordMask(length - 96));
    return stem;
  }
}

/**
 * Which prefix lengths a longest match has to try. Each prefix is in the set of its *stem*, which is a multiple of eight bits
 * and one to eight bits shorter ({@link NetSets}), so that one look at a set tells exactly which prefix, if any, contains an
 * address there; and before it is looked at one, a *root* (IPv4) or a *guide* (IPv6) tells which sets there are.
 *
 * A miss usually touches two lines of memory, a match in a CIDR as many before that is looked up. Costs only prefixes shorter
 * than an address: endpoints are found without it. 16 to 32 bytes for a stem, 64 more where it has several prefixes; and for
 * IPv6 16 to 32 for the first 48 bits, for IPv4 up to half a megabyte of roots.
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
    if (key.family === 4) this.#ipv4 ??= new IPv4Stems(this.#seed);
    else this.#ipv6 ??= new IPv6Stems(this.#seed);
    this.of(key.family)?.adjust(key, length, by);
  }

  get bytes(): number {
    return (this.#ipv4?.bytes ?? 0) + (this.#ipv6?.bytes ?? 0);
  }
}
