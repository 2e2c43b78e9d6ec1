import { PAGE_ROWS } from '../columns/int32-rows.ts';
import { addressBits, type Family, maskWords } from '../net/address-words.ts';
import { containsWords, type PrefixRegister, prefixRegister } from '../net/prefix.ts';
import { BLOCK_KEYS, type PrefixBlock } from '../net/prefix-block.ts';
import { familyOfWord, KeyHash, lengthOfWord, lengthWord } from './key-hash.ts';
import type { PrefixTable } from './prefix-table.ts';
import { StemIndex } from './stem-index.ts';

/** Key lengths of a family: 0 to 128, and 129 for an endpoint. */
const LENGTHS = 130;

// Buffers of `prefetch`, which is not re-entrant.
const prefetched = prefixRegister();
const buckets = new Int32Array(BLOCK_KEYS);

/** Returns the length of a key in this table. An endpoint is one longer than its full-length CIDR (I4). */
function keyLength(key: Readonly<PrefixRegister>): number {
  return key.form === 'endpoint' ? key.length + 1 : key.length;
}

/**
 * The {@link PrefixTable} for millions of keys: {@link KeyHash} for exact look-up, {@link StemIndex} to find the
 * longest match in few probes.
 *
 * Cost: `find`, `insert` and `remove` are O(1) without pauses (a step of growth takes well below a millisecond).
 * `longestMatch` probes the address itself, then the longest prefix that the stems name. `covered` reads its results and the
 * rest of two segments, a few µs. An IPv4 key takes about 17 bytes, an IPv6 key 29, plus the stems.
 */
export class HashPrefixTable implements PrefixTable {
  readonly #keys: KeyHash;
  readonly #stems: StemIndex;
  /** Number of keys of each family (0: IPv4, 1: IPv6) and key length. */
  readonly #counts = new Int32Array(2 * LENGTHS);

  /** A secret `seed` prevents attackers from choosing keys that collide. */
  constructor(seed = 0, keys: KeyHash = new KeyHash(seed), stems: StemIndex = new StemIndex(seed)) {
    this.#keys = keys;
    this.#stems = stems;
  }

  fork(): HashPrefixTable {
    const fork = new HashPrefixTable(0, this.#keys.fork(), this.#stems.fork());
    fork.#counts.set(this.#counts);
    return fork;
  }

  get size(): number {
    return this.#keys.size;
  }

  get slotLimit(): number {
    return this.#keys.slotLimit;
  }

  get bytes(): number {
    return this.#keys.bytes + this.#stems.bytes;
  }

  find(key: Readonly<PrefixRegister>): number {
    return this.#keys.find(key, lengthWord(key.family, keyLength(key)));
  }

  prefetch(block: PrefixBlock, count: number): void {
    for (let at = 0; at < count; at++) {
      const isKey = block.get(at, prefetched);
      buckets[at] = isKey
        ? this.#keys.bucketOf(prefetched, lengthWord(prefetched.family, keyLength(prefetched)))
        : -1;
    }
    this.#keys.prefetch(buckets, count);
  }

  insert(key: Readonly<PrefixRegister>): number {
    const length = keyLength(key);
    const slot = this.#keys.insert(key, lengthWord(key.family, length));
    this.#adjust(key, length, 1);
    return slot;
  }

  remove(slot: number, key: Readonly<PrefixRegister>): void {
    const length = keyLength(key);
    this.#keys.remove(slot, key, lengthWord(key.family, length));
    this.#adjust(key, length, -1);
  }

  keyOf(slot: number, out: PrefixRegister): void {
    const word = this.#keys.wordAt(slot);
    this.#keys.readWords(slot, out);
    const bits = addressBits(familyOfWord(word));
    const length = lengthOfWord(word);
    out.form = length > bits ? 'endpoint' : 'cidr';
    out.length = Math.min(length, bits);
  }

  countOf(family: Family, length: number, form: PrefixRegister['form']): number {
    return this.#countOf(family, form === 'endpoint' ? length + 1 : length);
  }

  longestMatch(key: PrefixRegister): number {
    const { family, length } = key;
    if (this.#countOf(family, length + 1) > 0) {
      const endpoint = this.#keys.find(key, lengthWord(family, length + 1));
      if (endpoint >= 0) return endpoint;
    }
    key.form = 'cidr';
    if (this.#countOf(family, length) > 0) {
      const cidr = this.#keys.find(key, lengthWord(family, length));
      if (cidr >= 0) return cidr;
    }
    return this.#longestShorter(key);
  }

  *slots(isWanted?: (slot: number) => boolean): Generator<number, void, void> {
    for (let first = 0; first < this.#keys.slotLimit; first += PAGE_ROWS) {
      if (isWanted?.(first) === false) continue;
      for (let slot = first; slot < first + PAGE_ROWS; slot++) if (this.#keys.wordAt(slot) !== 0) yield slot;
    }
  }

  *covered(prefix: Readonly<PrefixRegister>): Generator<number, void, void> {
    const key = prefixRegister();
    for (const slot of this.#keys.within(prefix, prefix.length)) {
      this.keyOf(slot, key);
      if (key.length >= prefix.length && containsWords(prefix, prefix.length, key)) yield slot;
    }
  }

  /** Returns the longest match among the prefixes that are shorter than an address. `key` is the address. */
  #longestShorter(key: PrefixRegister): number {
    const stems = this.#stems.of(key.family);
    if (stems === undefined) return -1;
    for (let length = stems.longest(key, key.length); length >= 0; length = stems.longest(key, length)) {
      const slot = this.#findShortened(key, length);
      if (slot >= 0) return slot;
    }
    return -1;
  }

  /** Shortens the key in place and looks it up. Its other bits are not needed afterwards. */
  #findShortened(key: PrefixRegister, length: number): number {
    maskWords(key, length);
    key.length = length;
    return this.#keys.find(key, lengthWord(key.family, length));
  }

  #adjust(key: Readonly<PrefixRegister>, length: number, by: 1 | -1): void {
    const at = (key.family === 6 ? LENGTHS : 0) + length;
    this.#counts[at] = (this.#counts[at] ?? 0) + by;
    if (length < addressBits(key.family)) this.#stems.adjust(key, length, by);
  }

  #countOf(family: Family, length: number): number {
    return this.#counts[(family === 6 ? LENGTHS : 0) + length] ?? 0;
  }
}
