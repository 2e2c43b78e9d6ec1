import { PAGE_ROWS } from '../columns/int32-rows.ts';
import { addressBits, type Family, maskWords } from '../net/address-words.ts';
import { containsWords, type PrefixRegister, prefixRegister } from '../net/prefix.ts';
import { BLOCK_KEYS, type PrefixBlock } from '../net/prefix-block.ts';
import { familyOfWord, KeyHash, lengthOfWord, lengthWord, spaceOfWord } from './key-hash.ts';
import type { PrefixTable } from './prefix-table.ts';
import type { SegmentDirectory } from './segment-directory.ts';
import { type FamilyStems, StemIndex } from './stem-index.ts';

/** Key lengths of a family: 0 to 128, and 129 for an endpoint. */
const LENGTHS = 130;

// Buffers of `prefetch`, which is not re-entrant.
const prefetched = prefixRegister();
const buckets = new Int32Array(BLOCK_KEYS);

/** The index by length of an address space. */
class Space {
  readonly stems: StemIndex;
  /** Number of keys of each family (0: IPv4, 1: IPv6) and key length. */
  readonly counts: Int32Array;

  constructor(stems: StemIndex, counts: Int32Array = new Int32Array(2 * LENGTHS)) {
    this.stems = stems;
    this.counts = counts;
  }

  get bytes(): number {
    return this.stems.bytes;
  }

  fork(): Space {
    return new Space(this.stems.fork(), this.counts.slice());
  }

  /** Returns the number of keys of a family and key length. */
  countOf(family: Family, length: number): number {
    return this.counts[(family === 6 ? LENGTHS : 0) + length] ?? 0;
  }

  /** Adds (`by` 1) or removes (-1) a key of this key length. */
  adjust(key: Readonly<PrefixRegister>, length: number, by: 1 | -1): void {
    const at = (key.family === 6 ? LENGTHS : 0) + length;
    this.counts[at] = (this.counts[at] ?? 0) + by;
    if (length < addressBits(key.family)) this.stems.adjust(key, length, by);
  }
}

/** Returns the length of a key in this table. An endpoint is one longer than its full-length CIDR (I4). */
function keyLength(key: Readonly<PrefixRegister>): number {
  return key.form === 'endpoint' ? key.length + 1 : key.length;
}

function wordOf(key: Readonly<PrefixRegister>): number {
  return lengthWord(key.family, keyLength(key), key.clusterID);
}

/**
 * The {@link PrefixTable} for millions of keys: {@link KeyHash} for exact lookup, {@link StemIndex} to find the longest
 * match in few probes.
 *
 * Cost: `find`, `insert` and `remove` are O(1) without pauses (a step of growth takes well below a millisecond).
 * `longestMatch` probes the address itself, then the prefix of the length that `StemIndex` returns. `covered` reads its
 * results and the rest of two segments, which takes a few µs. An IPv4 key takes about 17 bytes, an IPv6 key 29, plus
 * the stems. Each other address space takes about 20 KiB.
 */
export class HashPrefixTable implements PrefixTable {
  readonly #seed: number;
  readonly #keys: KeyHash;
  /** The address space of id 0. */
  readonly #main: Space;
  /** The other address spaces by id, each created by its first key. */
  readonly #spaces = new Map<number, Space>();

  /** A secret `seed` prevents attackers from choosing colliding keys. */
  constructor(seed = 0, keys: KeyHash = new KeyHash(seed), main: Space = new Space(new StemIndex(seed))) {
    this.#seed = seed;
    this.#keys = keys;
    this.#main = main;
  }

  fork(): HashPrefixTable {
    const fork = new HashPrefixTable(this.#seed, this.#keys.fork(), this.#main.fork());
    for (const [clusterID, space] of this.#spaces) fork.#spaces.set(clusterID, space.fork());
    return fork;
  }

  get size(): number {
    return this.#keys.size;
  }

  get slotLimit(): number {
    return this.#keys.slotLimit;
  }

  get bytes(): number {
    let bytes = this.#keys.bytes + this.#main.bytes;
    for (const space of this.#spaces.values()) bytes += space.bytes;
    return bytes;
  }

  find(key: Readonly<PrefixRegister>): number {
    return this.#keys.find(key, wordOf(key));
  }

  prefetch(block: PrefixBlock, count: number): void {
    for (let at = 0; at < count; at++) {
      const isKey = block.get(at, prefetched);
      buckets[at] = isKey ? this.#keys.bucketOf(prefetched, wordOf(prefetched)) : -1;
    }
    this.#keys.prefetch(buckets, count);
  }

  insert(key: Readonly<PrefixRegister>): number {
    const slot = this.#keys.insert(key, wordOf(key));
    const space = this.#spaceOf(key.clusterID) ?? this.#newSpace(key.clusterID);
    space.adjust(key, keyLength(key), 1);
    return slot;
  }

  remove(slot: number, key: Readonly<PrefixRegister>): void {
    this.#keys.remove(slot, key, wordOf(key));
    this.#spaceOf(key.clusterID)?.adjust(key, keyLength(key), -1);
  }

  keyOf(slot: number, out: PrefixRegister): void {
    const word = this.#keys.wordAt(slot);
    this.#keys.readWords(slot, out);
    const bits = addressBits(familyOfWord(word));
    const length = lengthOfWord(word);
    out.form = length > bits ? 'endpoint' : 'cidr';
    out.length = Math.min(length, bits);
    out.clusterID = spaceOfWord(word);
  }

  countOf(family: Family, length: number, form: PrefixRegister['form']): number {
    const lengthOfKey = form === 'endpoint' ? length + 1 : length;
    let count = this.#main.countOf(family, lengthOfKey);
    for (const space of this.#spaces.values()) count += space.countOf(family, lengthOfKey);
    return count;
  }

  longestMatch(key: PrefixRegister): number {
    const { family, length, clusterID } = key;
    const space = this.#spaceOf(clusterID);
    const directory = this.#keys.directoryOf(family, clusterID);
    if (space === undefined || directory === undefined) return -1;
    const word = lengthWord(family, length, clusterID); // of the full-length CIDR; the endpoint is one longer
    if (space.countOf(family, length + 1) > 0) {
      const endpoint = this.#keys.findIn(directory, key, word + 1);
      if (endpoint >= 0) return endpoint;
    }
    key.form = 'cidr'; // because all shorter matches are CIDRs
    if (space.countOf(family, length) > 0) {
      const cidr = this.#keys.findIn(directory, key, word);
      if (cidr >= 0) return cidr;
    }
    const stems = space.stems.of(family);
    return stems === undefined ? -1 : this.#longestShorter(key, word - length, stems, directory);
  }

  *slots(isWanted?: (slot: number) => boolean): Generator<number, void, void> {
    for (let first = 0; first < this.#keys.slotLimit; first += PAGE_ROWS) {
      if (isWanted?.(first) === false) continue;
      const end = first + PAGE_ROWS;
      // The limit is read each time, because the reader may insert keys.
      for (let slot = first; slot < end && slot < this.#keys.slotLimit; slot++)
        if (this.#keys.wordAt(slot) !== 0) yield slot;
    }
  }

  *covered(prefix: Readonly<PrefixRegister>): Generator<number, void, void> {
    const key = prefixRegister();
    for (const slot of this.#keys.within(
      prefix,
      lengthWord(prefix.family, prefix.length, prefix.clusterID),
    )) {
      this.keyOf(slot, key);
      if (key.length >= prefix.length && containsWords(prefix, prefix.length, key)) yield slot;
    }
  }

  /**
   * Returns the longest match among the prefixes shorter than an address. `key` is the address; it is
   * shortened in place to the match. `zeroWord` is the length word of length 0, to which a length is added.
   */
  #longestShorter(
    key: PrefixRegister,
    zeroWord: number,
    stems: FamilyStems,
    directory: SegmentDirectory,
  ): number {
    for (let length = stems.longest(key, key.length); length >= 0; length = stems.longest(key, length)) {
      maskWords(key, length);
      key.length = length;
      const slot = this.#keys.findIn(directory, key, zeroWord + length);
      if (slot >= 0) return slot;
    }
    return -1;
  }

  #spaceOf(clusterID: number): Space | undefined {
    return clusterID === 0 ? this.#main : this.#spaces.get(clusterID);
  }

  #newSpace(clusterID: number): Space {
    const space = new Space(new StemIndex(this.#seed));
    this.#spaces.set(clusterID, space);
    return space;
  }
}
