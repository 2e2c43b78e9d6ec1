import { PAGE_ROWS } from '../columns/int32-rows.ts';
import { addressBits, type Family, maskWords } from '../net/address-words.ts';
import { containsWords, type PrefixRegister, prefixRegister } from '../net/prefix.ts';
import { BLOCK_KEYS, type PrefixBlock } from '../net/prefix-block.ts';
import { familyOfWord, KeyHash, lengthOfWord, lengthWord, spaceOfWord } from './key-hash.ts';
import type { PrefixTable } from './prefix-table.ts';
import { SegmentDirectory } from './segment-directory.ts';
import { type FamilyStems, newStems } from './stem-index.ts';

/** Key lengths of a family: 0 to 128, and 129 for an endpoint. */
const LENGTHS = 130;

// Buffers of `prefetch`, which is not re-entrant.
const prefetched = prefixRegister();
const buckets = new Int32Array(BLOCK_KEYS);

/** The keys of one family in one address space. */
class FamilyKeys {
  /** The segments of the keys in {@link KeyHash}. */
  readonly directory: SegmentDirectory;
  readonly #seed: number;
  /** Number of keys of each key length. */
  readonly #counts: Int32Array;
  /** The prefixes shorter than an address; undefined before the first one. */
  #stems: FamilyStems | undefined;

  constructor(
    seed: number,
    directory: SegmentDirectory,
    counts: Int32Array = new Int32Array(LENGTHS),
    stems?: FamilyStems,
  ) {
    this.#seed = seed;
    this.directory = directory;
    this.#counts = counts;
    this.#stems = stems;
  }

  get bytes(): number {
    return this.directory.bytes + (this.#stems?.bytes ?? 0);
  }

  get stems(): FamilyStems | undefined {
    return this.#stems;
  }

  fork(): FamilyKeys {
    return new FamilyKeys(this.#seed, this.directory.fork(), this.#counts.slice(), this.#stems?.fork());
  }

  /** Returns the number of keys of a key length. */
  countOf(length: number): number {
    return this.#counts[length] ?? 0;
  }

  /** Adds (`by` 1) or removes (-1) a key of this key length. */
  adjust(key: Readonly<PrefixRegister>, length: number, by: 1 | -1): void {
    this.#counts[length] = this.countOf(length) + by;
    if (length >= addressBits(key.family)) return;
    this.#stems ??= newStems(key.family, this.#seed);
    this.#stems.adjust(key, length, by);
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
 * The {@link PrefixTable} for millions of keys: {@link KeyHash} for exact lookup, {@link FamilyStems} to find the
 * longest match in few probes.
 *
 * Cost: `find`, `insert` and `remove` are O(1) without pauses (a step of growth takes well below a millisecond).
 * `longestMatch` probes the address itself, then the prefix of the length that `FamilyStems` returns. `covered` reads
 * its results and the rest of two segments, which takes a few µs. An IPv4 key takes about 17 bytes, an IPv6 key 29,
 * plus the stems. Each family of another address space takes about 10 KiB.
 */
export class HashPrefixTable implements PrefixTable {
  readonly #seed: number;
  readonly #keys: KeyHash;
  /** The families of address space 0. */
  #ipv4: FamilyKeys;
  #ipv6: FamilyKeys;
  /** The families of the other address spaces by {@link spaceFamily}, each created by its first key. */
  readonly #others = new Map<number, FamilyKeys>();

  /** A secret `seed` prevents attackers from choosing colliding keys. */
  constructor(seed = 0, keys: KeyHash = new KeyHash(seed)) {
    this.#seed = seed;
    this.#keys = keys;
    this.#ipv4 = new FamilyKeys(seed, new SegmentDirectory(4));
    this.#ipv6 = new FamilyKeys(seed, new SegmentDirectory(6));
  }

  fork(): HashPrefixTable {
    const fork = new HashPrefixTable(this.#seed, this.#keys.fork());
    fork.#ipv4 = this.#ipv4.fork();
    fork.#ipv6 = this.#ipv6.fork();
    for (const [number, family] of this.#others) fork.#others.set(number, family.fork());
    return fork;
  }

  get size(): number {
    return this.#keys.size;
  }

  get slotLimit(): number {
    return this.#keys.slotLimit;
  }

  get bytes(): number {
    let bytes = this.#keys.bytes + this.#ipv4.bytes + this.#ipv6.bytes;
    for (const family of this.#others.values()) bytes += family.bytes;
    return bytes;
  }

  find(key: Readonly<PrefixRegister>): number {
    const family = this.#familyOf(key.family, key.clusterID);
    return family === undefined ? -1 : this.#keys.find(family.directory, key, wordOf(key));
  }

  prefetch(block: PrefixBlock, count: number): void {
    for (let at = 0; at < count; at++) {
      const isKey = block.get(at, prefetched);
      const family = isKey ? this.#familyOf(prefetched.family, prefetched.clusterID) : undefined;
      buckets[at] =
        family === undefined ? -1 : this.#keys.bucketOf(family.directory, prefetched, wordOf(prefetched));
    }
    this.#keys.prefetch(buckets, count);
  }

  insert(key: Readonly<PrefixRegister>): number {
    const family = this.#familyOf(key.family, key.clusterID) ?? this.#newFamily(key.family, key.clusterID);
    const slot = this.#keys.insert(family.directory, key, wordOf(key));
    family.adjust(key, keyLength(key), 1);
    return slot;
  }

  remove(slot: number, key: Readonly<PrefixRegister>): void {
    const family = this.#familyOf(key.family, key.clusterID);
    if (family === undefined) return;
    this.#keys.remove(family.directory, slot, key, wordOf(key));
    family.adjust(key, keyLength(key), -1);
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
    let count = (family === 4 ? this.#ipv4 : this.#ipv6).countOf(lengthOfKey);
    for (const [number, keys] of this.#others)
      if (number % 2 === spaceFamily(family, 0)) count += keys.countOf(lengthOfKey); // of the same family
    return count;
  }

  longestMatch(key: PrefixRegister): number {
    const { family, length, clusterID } = key;
    const keys = this.#familyOf(family, clusterID);
    if (keys === undefined) return -1;
    const { directory, stems } = keys;
    const word = lengthWord(family, length, clusterID); // of the full-length CIDR; the endpoint is one longer
    if (keys.countOf(length + 1) > 0) {
      const endpoint = this.#keys.find(directory, key, word + 1);
      if (endpoint >= 0) return endpoint;
    }
    key.form = 'cidr'; // because all shorter matches are CIDRs
    if (keys.countOf(length) > 0) {
      const cidr = this.#keys.find(directory, key, word);
      if (cidr >= 0) return cidr;
    }
    return stems === undefined ? -1 : this.#longestShorter(key, word - length, stems, directory);
  }

  *slots(isPageWanted?: (firstSlot: number) => boolean): Generator<number, void, void> {
    for (let first = 0; first < this.#keys.slotLimit; first += PAGE_ROWS) {
      if (isPageWanted?.(first) === false) continue;
      const end = first + PAGE_ROWS;
      // The limit is read each time, because the reader may insert keys.
      for (let slot = first; slot < end && slot < this.#keys.slotLimit; slot++)
        if (this.#keys.wordAt(slot) !== 0) yield slot;
    }
  }

  *covered(prefix: Readonly<PrefixRegister>): Generator<number, void, void> {
    const family = this.#familyOf(prefix.family, prefix.clusterID);
    if (family === undefined) return;
    const key = prefixRegister();
    for (const slot of this.#keys.within(family.directory, prefix, prefix.length)) {
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
      const slot = this.#keys.find(directory, key, zeroWord + length);
      if (slot >= 0) return slot;
    }
    return -1;
  }

  #familyOf(family: Family, clusterID: number): FamilyKeys | undefined {
    if (clusterID !== 0) return this.#others.get(spaceFamily(family, clusterID));
    return family === 4 ? this.#ipv4 : this.#ipv6;
  }

  #newFamily(family: Family, clusterID: number): FamilyKeys {
    const added = new FamilyKeys(this.#seed, new SegmentDirectory(family));
    this.#others.set(spaceFamily(family, clusterID), added);
    return added;
  }
}

/** Returns a number for a family of an address space. The last bit marks IPv6. */
function spaceFamily(family: Family, clusterID: number): number {
  return 2 * clusterID + (family === 6 ? 1 : 0);
}
