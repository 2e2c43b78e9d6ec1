import { assert } from '../base/assert.ts';
import { Int32Rows } from '../columns/int32-rows.ts';
import { GOLDEN, mix } from '../columns/mix.ts';
import { SharedPages } from '../columns/shared-pages.ts';
import { type AddressWords, addressBits, type Family, wordAt } from '../net/address-words.ts';
import { type AddressColumn, readAddress, type SegmentDirectory, writeAddress } from './segment-directory.ts';

// A bucket has two words: the tag of a key, and its slot plus one with six bits for the kind (the length) of the key.
const SLOT_BITS = 26; // 67 million keys
const SLOT_MASK: number = (1 << SLOT_BITS) - 1;
const KIND_MASK: number = ~SLOT_MASK;
const EMPTY = 0;
const DELETED: number = SLOT_MASK; // this slot is never allocated

// The kinds of keys. Each IPv4 length (0 to 33, where 33 is the endpoint) has its own kind. IPv6 lengths share the
// others.
const IPV4_KINDS = 34;
const IPV6_KINDS: number = 64 - IPV4_KINDS;

// 8 buckets of 8 bytes are a cache line. Prefixes which differ only in their last three bits share one.
const LINE_BITS = 3;
const LINE_MASK: number = (1 << LINE_BITS) - 1;

// A page holds 4 segments: an index has few arrays, an empty one is small, and copying a shared page takes a few µs.
const PAGE_BITS = 2;
const PAGE_MASK: number = (1 << PAGE_BITS) - 1;

/** A segment has 2^10 buckets and is full if 80 % of them are used. Splitting its 819 keys takes about 20 µs. */
const SEGMENT_BITS = 10;
/** Minimum: the keys at one address, at most 130, must not fill half a segment. */
const MIN_SEGMENT_BITS = 9;

/** Returns the upper six bits of a bucket's second word. For IPv4 they identify the length. */
function kindOf(family: Family, word: number): number {
  const length = lengthOfWord(word);
  return (family === 4 ? length : IPV4_KINDS + (length % IPV6_KINDS)) << SLOT_BITS;
}

function isLive(kindAndSlot: number): boolean {
  return kindAndSlot !== EMPTY && kindAndSlot !== DELETED;
}

/** Buffers of a split. One of each is enough because a split is not re-entrant. */
const scratch = {
  /** A copy of the segment's buckets. */
  before: new Int32Array(2 << SEGMENT_BITS),
  /** The addresses of the keys in these buckets. */
  addresses: new Int32Array(4 << SEGMENT_BITS),
  /** A copy of the addresses for {@link SegmentDirectory.split}, which reorders them. */
  reordered: new Int32Array(4 << SEGMENT_BITS),
};
const register: AddressWords = { family: 4, w0: 0, w1: 0, w2: 0, w3: 0 };

// Bit 8 of a length word marks IPv6, the bits above are the address space. One is added so that the word of a key is
// never 0.
const IPV6 = 256;
const SPACE_SHIFT = 9;

/**
 * Returns the length word of a key: its family, address space and length in one word, which is never 0. `length` is
 * below 255. The word of a key that is n bits longer is greater by n.
 */
export function lengthWord(family: Family, length: number, clusterID: number): number {
  return ((clusterID << SPACE_SHIFT) | (family === 6 ? IPV6 : 0)) + length + 1;
}

export function lengthOfWord(word: number): number {
  return (word - 1) & (IPV6 - 1);
}

export function familyOfWord(word: number): Family {
  return ((word - 1) & IPV6) === 0 ? 4 : 6;
}

export function spaceOfWord(word: number): number {
  return (word - 1) >>> SPACE_SHIFT;
}

/**
 * Extendible hash table in typed arrays. It assigns a slot to each key, grows in small steps, and stores neighbouring
 * keys together.
 *
 *     address ─► SegmentDirectory ─► segment ─► line ─► bucket: tag │ kind·slot ─► keys:  w0 │ length word
 *                                    1,024 buckets                                 wide:  w1 │ w2 │ w3
 *
 * A key takes 8 bytes, and 12 more for IPv6 (`wide`).
 *
 * A segment holds the keys of one range of addresses ({@link SegmentDirectory}). A full segment is split between two of
 * its keys. Within a segment, keys are hashed by their *line prefix* (the prefix without its last three bits), so that
 * keys with the same line prefix share a cache line.
 *
 * - Access in the order of addresses, or nearly so, hits the cache. Access in random order reads one line for an IPv4
 *   key.
 * - No insertion stalls, and no probe is longer than a segment, whatever keys an attacker chooses.
 * - Slots of removed keys form a free list in their key rows, last in, first out.
 * - The index takes 10 to 20 bytes a key.
 * - The owner has a {@link SegmentDirectory} for each family and address space; all share the slots.
 *
 * The tag of an IPv4 key is its address, so equal tag and kind mean equal keys. The tag of an IPv6 key is a hash, so
 * the key itself is compared as well.
 */
export class KeyHash {
  readonly #seed: number;
  readonly #segmentBits: number;
  readonly #bucketMask: number;
  /** Right shift of a hash: leaves the upper bits, which select a line of the segment. */
  readonly #lineShift: number;
  readonly #segmentWords: number;
  /** Number of used buckets at which a segment is split. */
  readonly #full: number;
  #keys = new Int32Rows(2);
  #wide = new Int32Rows(3);
  #pages = new SharedPages<Int32Array>();
  /** Number of used buckets of each segment, including those marked as deleted. */
  #used: number[] = [];
  #size = 0;
  #limit = 0;
  /** The slot freed last, plus one; 0 if the free list is empty. */
  #free = 0;
  /** Result of {@link prefetch}. Storing it prevents the compiler from removing the reads. */
  #prefetched = 0;

  /** A secret `seed` prevents attackers from choosing colliding keys. Tests use small segments. */
  constructor(seed: number, segmentBits: number = SEGMENT_BITS) {
    assert(
      segmentBits >= MIN_SEGMENT_BITS && segmentBits <= SEGMENT_BITS,
      'a segment has room for the keys at one address and fits into the buffers of a split',
    );
    const buckets = 1 << segmentBits;
    this.#seed = seed | 0;
    this.#segmentBits = segmentBits;
    this.#bucketMask = buckets - 1;
    this.#lineShift = 32 - segmentBits + LINE_BITS;
    this.#segmentWords = 2 * buckets;
    this.#full = 0.8 * buckets;
  }

  get size(): number {
    return this.#size;
  }

  /** One more than the highest slot ever allocated. */
  get slotLimit(): number {
    return this.#limit;
  }

  /** Memory of the table in bytes, without the directories. */
  get bytes(): number {
    const pages = (this.#pages.count << PAGE_BITS) * this.#segmentWords * Int32Array.BYTES_PER_ELEMENT;
    return this.#keys.bytes + this.#wide.bytes + pages;
  }

  /**
   * Returns a table with the same keys in the same slots, for forks of the directories. Later writes to one do not
   * affect the other. Costs a few words for each segment; the first write to a page copies it.
   */
  fork(): KeyHash {
    const fork = new KeyHash(this.#seed, this.#segmentBits);
    fork.#keys = this.#keys.fork();
    fork.#wide = this.#wide.fork();
    fork.#pages = this.#pages.fork();
    fork.#used = this.#used.slice();
    fork.#size = this.#size;
    fork.#limit = this.#limit;
    fork.#free = this.#free;
    return fork;
  }

  /**
   * Returns the slot of a key, or -1. `directory` is that of its family and address space, `words` must be masked to
   * the length of the key, and `word` is its {@link lengthWord}.
   */
  find(directory: SegmentDirectory, words: Readonly<AddressWords>, word: number): number {
    const segment = directory.at(words);
    if (segment < 0) return -1;
    const tag = this.#tag(words, word);
    const kind = kindOf(words.family, word);
    const page = this.#pageOf(segment);
    const base = this.#baseOf(segment);
    const mask = this.#bucketMask;
    for (let at = this.#home(tag, kind); ; at = (at + 1) & mask) {
      const kindAndSlot = page[base + 2 * at + 1] ?? EMPTY;
      if (kindAndSlot === EMPTY) return -1;
      if (page[base + 2 * at] !== tag || (kindAndSlot & KIND_MASK) !== kind) continue;
      const slot = (kindAndSlot & SLOT_MASK) - 1;
      if (words.family === 4 ? kindAndSlot !== DELETED : this.#holds(slot, words, word)) return slot;
    }
  }

  /** Returns the number of a key's home bucket, for {@link prefetch}; -1 if the table has no segment for it. */
  bucketOf(directory: SegmentDirectory, words: Readonly<AddressWords>, word: number): number {
    const segment = directory.at(words);
    if (segment < 0) return -1;
    return (segment << this.#segmentBits) | this.#home(this.#tag(words, word), kindOf(words.family, word));
  }

  /**
   * Reads buckets by number, so that their cache misses overlap. A processor executes some hundred instructions ahead;
   * it reaches several buckets only if the loop does nothing else.
   */
  prefetch(buckets: Int32Array, count: number): void {
    const pageMask = (1 << (this.#segmentBits + PAGE_BITS)) - 1;
    let read = 0;
    for (let i = 0; i < count; i++) {
      const bucket = buckets[i] ?? -1;
      if (bucket >= 0) read ^= this.#pageOf(bucket >>> this.#segmentBits)[2 * (bucket & pageMask)] ?? 0;
    }
    this.#prefetched ^= read;
  }

  /** Adds a new key and returns its slot. */
  insert(directory: SegmentDirectory, words: Readonly<AddressWords>, word: number): number {
    const slot = this.#takeSlot();
    this.#keys.set(slot, 0, words.w0);
    this.#keys.set(slot, 1, word);
    if (words.family === 6) this.#setWide(slot, words);
    this.#link(directory, words, this.#tag(words, word), kindOf(words.family, word) | (slot + 1));
    this.#size++;
    return slot;
  }

  /** Removes a slot in use. The caller passes its key, so that the key row need not be read. */
  remove(directory: SegmentDirectory, slot: number, words: Readonly<AddressWords>, word: number): void {
    this.#unlink(directory.at(words), this.#home(this.#tag(words, word), kindOf(words.family, word)), slot);
    this.#keys.set(slot, 0, this.#free);
    this.#keys.set(slot, 1, 0);
    this.#free = slot + 1;
    this.#size--;
  }

  /**
   * Yields the slots of all keys in the segments of the addresses of a prefix, unordered. The caller filters them: the
   * first and the last segment contain other keys, and shorter prefixes are included. Keys must not be added or removed
   * during the iteration.
   */
  *within(
    directory: SegmentDirectory,
    words: Readonly<AddressWords>,
    length: number,
  ): Generator<number, void, void> {
    for (const segment of directory.within(words, length)) {
      const page = this.#pageOf(segment);
      const base = this.#baseOf(segment);
      for (let at = base; at < base + this.#segmentWords; at += 2) {
        const kindAndSlot = page[at + 1] ?? EMPTY;
        if (isLive(kindAndSlot)) yield (kindAndSlot & SLOT_MASK) - 1;
      }
    }
  }

  /** Returns the length word of a slot's key; 0 if the slot is free. */
  wordAt(slot: number): number {
    return this.#keys.get(slot, 1);
  }

  /** Reads the address words of a slot in use into `out`. */
  readWords(slot: number, out: AddressWords): void {
    out.w0 = this.#keys.get(slot, 0);
    if (familyOfWord(this.wordAt(slot)) === 6) {
      out.family = 6;
      out.w1 = this.#wide.get(slot, 0);
      out.w2 = this.#wide.get(slot, 1);
      out.w3 = this.#wide.get(slot, 2);
    } else {
      out.family = 4;
      out.w1 = 0;
      out.w2 = 0;
      out.w3 = 0;
    }
  }

  /**
   * Returns the first word of a key's bucket. For IPv6 the upper bits hash the line prefix; the last three select the
   * bucket in its line.
   */
  #tag(words: Readonly<AddressWords>, word: number): number {
    if (words.family === 4) return words.w0;
    const length = Math.min(lengthOfWord(word), addressBits(6));
    const at = (length - 1) >> 5; // the word in which the prefix ends
    const { w0, w1, w2 } = words;
    const last = wordAt(words, at) >>> (-length & 31);
    let hash = mix(this.#seed, length);
    if (at > 0) hash = mix(hash, w0);
    if (at > 1) hash = mix(hash, w1);
    if (at > 2) hash = mix(hash, w2);
    hash = Math.imul(hash ^ (last >>> LINE_BITS), GOLDEN);
    return (hash & ~LINE_MASK) | (last & LINE_MASK);
  }

  /**
   * Returns the home bucket of a key in its segment. An endpoint is next to its full-length CIDR. Consecutive line
   * prefixes are spread evenly over the lines. Buckets within a line are rotated by the hash of the line prefix, so
   * that not all keys start with the first one.
   */
  #home(tag: number, kindAndSlot: number): number {
    const kind = kindAndSlot >>> SLOT_BITS;
    let hash = tag; // of the line prefix
    let place = tag;
    if (kind < IPV4_KINDS) {
      // Two steps, because a shift by 32 (for length 0) would be a shift by 0.
      place = kind > 31 ? tag : (tag >>> 1) >>> (31 - kind);
      hash = Math.imul((place >>> LINE_BITS) ^ this.#seed, GOLDEN);
    }
    return ((hash >>> this.#lineShift) << LINE_BITS) | ((place + (hash >>> LINE_BITS)) & LINE_MASK);
  }

  #holds(slot: number, words: Readonly<AddressWords>, word: number): boolean {
    const keys = this.#keys.pageOf(slot);
    const key = this.#keys.offsetOf(slot);
    if (keys[key] !== words.w0 || keys[key + 1] !== word) return false;
    const wide = this.#wide.pageOf(slot);
    const rest = this.#wide.offsetOf(slot);
    return wide[rest] === words.w1 && wide[rest + 1] === words.w2 && wide[rest + 2] === words.w3;
  }

  /** Returns the offset of a segment in its page. */
  #baseOf(segment: number): number {
    return (segment & PAGE_MASK) * this.#segmentWords;
  }

  #pageOf(segment: number): Int32Array {
    const page = this.#pages.at(segment >>> PAGE_BITS);
    assert(page !== undefined, 'every segment lies in a page');
    return page;
  }

  #writablePageOf(segment: number): Int32Array {
    const page = this.#pages.writable(segment >>> PAGE_BITS);
    assert(page !== undefined, 'every segment lies in a page');
    return page;
  }

  #addSegment(): number {
    const segment = this.#used.length;
    if ((segment & PAGE_MASK) === 0) this.#pages.push(new Int32Array(this.#segmentWords << PAGE_BITS));
    this.#used.push(0);
    return segment;
  }

  #link(directory: SegmentDirectory, words: Readonly<AddressWords>, tag: number, kindAndSlot: number): void {
    let segment = directory.at(words);
    if (segment < 0) {
      segment = this.#addSegment();
      directory.begin(segment);
    }
    while ((this.#used[segment] ?? 0) >= this.#full) {
      this.#makeRoom(directory, segment);
      segment = directory.at(words);
    }
    this.#place(segment, tag, kindAndSlot);
  }

  #place(segment: number, tag: number, kindAndSlot: number): void {
    const page = this.#writablePageOf(segment);
    const base = this.#baseOf(segment);
    let at = this.#home(tag, kindAndSlot);
    while (isLive(page[base + 2 * at + 1] ?? EMPTY)) at = (at + 1) & this.#bucketMask;
    const bucket = base + 2 * at;
    if (page[bucket + 1] === EMPTY) this.#used[segment] = (this.#used[segment] ?? 0) + 1;
    page[bucket] = tag;
    page[bucket + 1] = kindAndSlot;
  }

  /** Removes the bucket of a slot. `home` is the home bucket of its key. */
  #unlink(segment: number, home: number, slot: number): void {
    const page = this.#writablePageOf(segment);
    const base = this.#baseOf(segment);
    let at = home;
    while (((page[base + 2 * at + 1] ?? EMPTY) & SLOT_MASK) !== slot + 1) at = (at + 1) & this.#bucketMask;
    const next = (at + 1) & this.#bucketMask;
    const isEndOfRun = page[base + 2 * next + 1] === EMPTY;
    page[base + 2 * at + 1] = isEndOfRun ? EMPTY : DELETED;
    if (isEndOfRun) this.#used[segment] = (this.#used[segment] ?? 0) - 1;
  }

  /** Splits a full segment. If more than half of its used buckets are marked as deleted, only clears these. */
  #makeRoom(directory: SegmentDirectory, segment: number): void {
    const page = this.#writablePageOf(segment);
    const base = this.#baseOf(segment);
    const { before, addresses, reordered } = scratch;
    before.set(page.subarray(base, base + this.#segmentWords));
    const live = this.#readAddresses(before, addresses);
    if (live >= this.#full / 2) {
      reordered.set(addresses);
      directory.split(segment, this.#addSegment(), reordered, live);
    }
    page.fill(0, base, base + this.#segmentWords);
    this.#used[segment] = 0;
    for (let i = 0, from = 0; from < live; i += 2) {
      const kindAndSlot = before[i + 1] ?? EMPTY;
      if (!isLive(kindAndSlot)) continue;
      readAddress(addresses, from++, register);
      this.#place(directory.at(register), before[i] ?? 0, kindAndSlot);
    }
  }

  /**
   * Copies the addresses of the keys in the buckets to `out`, in order, and returns their number. IPv4 buckets contain
   * them.
   */
  #readAddresses(buckets: Int32Array, out: AddressColumn): number {
    let live = 0;
    for (let i = 0; i < this.#segmentWords; i += 2) {
      const kindAndSlot = buckets[i + 1] ?? EMPTY;
      if (!isLive(kindAndSlot)) continue;
      if (kindAndSlot >>> SLOT_BITS < IPV4_KINDS) out[4 * live] = buckets[i] ?? 0;
      else {
        this.readWords((kindAndSlot & SLOT_MASK) - 1, register);
        writeAddress(out, live, register);
      }
      live++;
    }
    return live;
  }

  #takeSlot(): number {
    if (this.#free !== 0) {
      const slot = this.#free - 1;
      this.#free = this.#keys.get(slot, 0);
      return slot;
    }
    const slot = this.#limit++;
    assert(slot < SLOT_MASK - 1, 'a prefix table holds 67 million keys');
    this.#keys.reserve(slot);
    return slot;
  }

  #setWide(slot: number, words: Readonly<AddressWords>): void {
    this.#wide.reserve(slot);
    this.#wide.set(slot, 0, words.w1);
    this.#wide.set(slot, 1, words.w2);
    this.#wide.set(slot, 2, words.w3);
  }
}
