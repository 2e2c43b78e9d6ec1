import { assert } from '../base/assert.ts';
import { Int32Rows } from '../base/int32-rows.ts';
import { SharedPages } from '../base/shared-pages.ts';
import type { AddressWords, Family } from './address-words.ts';

// A bucket is two words: the hash of a key, and its slot (plus one) with six bits that say which length it has.
const SLOT_BITS = 26; // 67 million keys
const SLOT_MASK: number = (1 << SLOT_BITS) - 1;
const KIND_MASK: number = ~SLOT_MASK;
const EMPTY = 0;
const DELETED: number = SLOT_MASK; // the slot that this would be is never given out

// The kinds of keys: every length of IPv4 (0 to 33, the endpoint) has its own; those of IPv6 share the rest.
const IPV4_KINDS = 34;
const IPV6_KINDS: number = 64 - IPV4_KINDS;

// Segments lie in pages of 2: few arrays, an empty index is small, and a page that a fork shares is copied in a few µs.
const PAGE_BITS = 1;
const PAGE_MASK: number = (1 << PAGE_BITS) - 1;

/** How a {@link KeyHash} grows; tests make it small. */
export interface KeyHashSizes {
  /** A segment has 2 to the power of this many buckets, 3 or more, and is full when 4 of 5 are taken. */
  readonly segmentBits: number;
  /** How many bits of a hash choose the segment. What no segment takes any more is kept in a map. */
  readonly maxDepth: number;
}

// 1,024 buckets: about 20 µs to split the 819 keys, and 16 KiB a page. 2^20 segments hold 850 million keys: only keys
// made to collide ever get there.
const SIZES: KeyHashSizes = { segmentBits: 10, maxDepth: 20 };

/** The first `depth` bits of a hash. A shift by 32 would be one by 0: depth 0 takes two steps. */
function leadingBits(hash: number, depth: number): number {
  return (hash >>> 1) >>> (31 - depth);
}

/** The upper six bits of a bucket's second word. For IPv4 they tell the length exactly. */
function kindOf(family: Family, word: number): number {
  const length = lengthOfWord(word);
  return (family === 4 ? length : IPV4_KINDS + (length % IPV6_KINDS)) << SLOT_BITS;
}

function isLive(kindAndSlot: number): boolean {
  return kindAndSlot !== EMPTY && kindAndSlot !== DELETED;
}

function countLive(buckets: Int32Array): number {
  let live = 0;
  for (let i = 1; i < buckets.length; i += 2) if (isLive(buckets[i] ?? EMPTY)) live++;
  return live;
}

function overflowKey({ w0, w1, w2, w3 }: Readonly<AddressWords>, word: number): string {
  return `${word},${w0},${w1},${w2},${w3}`;
}

/** One round of hashing; for a fixed `hash` a bijection of `word`. */
export function mix(hash: number, word: number): number {
  const h = Math.imul(hash ^ word, 0x9e37_79b1); // 2^32 divided by the golden ratio: odd, so it can be undone
  return h ^ (h >>> 15);
}

// Bit 8 of a length word marks IPv6; one is added so that the word of a key is never 0.
const IPV6 = 256;

/** Family and length of a key in one word, never 0. `length` is below 255. */
export function lengthWord(family: Family, length: number): number {
  return (family === 6 ? IPV6 : 0) + length + 1;
}

export function lengthOfWord(word: number): number {
  return (word - 1) & (IPV6 - 1);
}

export function familyOfWord(word: number): Family {
  return word > IPV6 ? 6 : 4;
}

/**
 * An extendible hash over keys of address words and a length word, in typed arrays. Each key has a slot.
 *
 *     hash ─► directory ─► segment ─► bucket: hash │ kind·slot ─► keys:  w0 │ length word      8 bytes a key
 *             2^depth      1,024 buckets                          wide:  w1 │ w2 │ w3          12 more for IPv6
 *
 * A segment holds the keys whose hash begins with the same bits. When it is full, one bit more splits it in two;
 * buckets hold the whole hash, so that this reads no key. The hash grows by such small steps, no insertion stalls,
 * and no probe is longer than a segment. Slots of removed keys form a list through their key rows: the last one
 * freed is used first. Index: 10 to 20 bytes a key.
 *
 * For one length the hash of an IPv4 key is a bijection of its address: equal hash and kind mean equal keys, and
 * `find` touches a single cache line. An IPv6 key is compared in full.
 */
export class KeyHash {
  readonly #seed: number;
  readonly #sizes: KeyHashSizes;
  readonly #bucketMask: number;
  readonly #segmentWords: number;
  /** How many buckets of a segment may be taken before it is split. */
  readonly #full: number;
  #keys = new Int32Rows(2);
  #wide = new Int32Rows(3);
  #pages = new SharedPages<Int32Array>();
  /** For each segment: how many leading bits its hashes share, and how many buckets are not empty. */
  #depths: number[] = [];
  #used: number[] = [];
  /** Slots by key of what no segment could take. */
  #overflow: Map<string, number> = new Map();
  #directory: Int32Array = new Int32Array(1);
  #depth = 0;
  #size = 0;
  #limit = 0;
  /** The slot freed last, plus one; 0 when there is none. */
  #free = 0;

  /** A `seed` that strangers do not know keeps them from choosing keys that collide. */
  constructor(seed: number, sizes: KeyHashSizes = SIZES) {
    const buckets = 1 << sizes.segmentBits;
    this.#seed = seed | 0;
    this.#sizes = sizes;
    this.#bucketMask = buckets - 1;
    this.#segmentWords = 2 * buckets;
    this.#full = 0.8 * buckets;
    this.#addSegment(0);
  }

  get size(): number {
    return this.#size;
  }

  /** One more than the highest slot ever given out. */
  get slotLimit(): number {
    return this.#limit;
  }

  /** Bytes held. */
  get bytes(): number {
    const pages = (this.#pages.count << PAGE_BITS) * this.#segmentWords * Int32Array.BYTES_PER_ELEMENT;
    return this.#keys.bytes + this.#wide.bytes + pages + this.#directory.byteLength;
  }

  /**
   * The same keys in the same slots; writes to either do not show in the other. Costs a few words for each segment;
   * the first write to a page copies it.
   */
  fork(): KeyHash {
    const fork = new KeyHash(this.#seed, this.#sizes);
    fork.#keys = this.#keys.fork();
    fork.#wide = this.#wide.fork();
    fork.#pages = this.#pages.fork();
    fork.#depths = this.#depths.slice();
    fork.#used = this.#used.slice();
    fork.#overflow = new Map(this.#overflow);
    fork.#directory = this.#directory.slice();
    fork.#depth = this.#depth;
    fork.#size = this.#size;
    fork.#limit = this.#limit;
    fork.#free = this.#free;
    return fork;
  }

  /** The slot of a key, or -1. `words` are masked to the key's length. */
  find(words: Readonly<AddressWords>, word: number): number {
    const hash = this.#hash(words, word);
    const kind = kindOf(words.family, word);
    const segment = this.#segmentOf(hash);
    const page = this.#pageOf(segment);
    const base = this.#baseOf(segment);
    const mask = this.#bucketMask;
    for (let at = hash & mask; ; at = (at + 1) & mask) {
      const kindAndSlot = page[base + 2 * at + 1] ?? EMPTY;
      if (kindAndSlot === EMPTY) break;
      if (page[base + 2 * at] !== hash || (kindAndSlot & KIND_MASK) !== kind) continue;
      const slot = (kindAndSlot & SLOT_MASK) - 1;
      if (words.family === 4 ? kindAndSlot !== DELETED : this.#holds(slot, words, word)) return slot;
    }
    return this.#overflow.size === 0 ? -1 : (this.#overflow.get(overflowKey(words, word)) ?? -1);
  }

  /** Adds a key that is not there and gives its slot. */
  insert(words: Readonly<AddressWords>, word: number): number {
    const slot = this.#takeSlot();
    this.#keys.set(slot, 0, words.w0);
    this.#keys.set(slot, 1, word);
    if (words.family === 6) this.#setWide(slot, words);
    const linked = this.#link(this.#hash(words, word), kindOf(words.family, word) | (slot + 1));
    if (!linked) this.#overflow.set(overflowKey(words, word), slot);
    this.#size++;
    return slot;
  }

  /** Removes a slot in use, whose key the caller knows: nothing is read of it. */
  remove(slot: number, words: Readonly<AddressWords>, word: number): void {
    const overflown = this.#overflow.size > 0 && this.#overflow.delete(overflowKey(words, word));
    if (!overflown) this.#unlink(this.#hash(words, word), slot);
    this.#keys.set(slot, 0, this.#free);
    this.#keys.set(slot, 1, 0);
    this.#free = slot + 1;
    this.#size--;
  }

  /** The length word of a slot's key; 0 when the slot is free. */
  wordAt(slot: number): number {
    return this.#keys.get(slot, 1);
  }

  /** Writes the address words of a slot in use to `out`. */
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

  /** The upper bits choose the segment, the lower ones the bucket. */
  #hash(words: Readonly<AddressWords>, word: number): number {
    let hash = mix(this.#seed ^ word, words.w0);
    if (words.family === 6) hash = mix(mix(mix(hash, words.w1), words.w2), words.w3);
    hash = Math.imul(hash ^ (hash >>> 13), 0x85eb_ca6b);
    return hash ^ (hash >>> 16);
  }

  #holds(slot: number, words: Readonly<AddressWords>, word: number): boolean {
    if (this.#keys.get(slot, 0) !== words.w0 || this.#keys.get(slot, 1) !== word) return false;
    const wide = this.#wide;
    return wide.get(slot, 0) === words.w1 && wide.get(slot, 1) === words.w2 && wide.get(slot, 2) === words.w3;
  }

  #segmentOf(hash: number): number {
    return this.#directory[leadingBits(hash, this.#depth)] ?? 0;
  }

  /** Where a segment begins in its page. */
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

  /** Adds a segment without keys. */
  #addSegment(depth: number): number {
    const segment = this.#depths.length;
    if ((segment & PAGE_MASK) === 0) this.#pages.push(new Int32Array(this.#segmentWords << PAGE_BITS));
    this.#depths.push(depth);
    this.#used.push(0);
    return segment;
  }

  /** False when no segment can take the key: too many have the same hash. */
  #link(hash: number, kindAndSlot: number): boolean {
    let segment = this.#segmentOf(hash);
    while ((this.#used[segment] ?? 0) >= this.#full) {
      if (!this.#makeRoom(segment, hash)) return false;
      segment = this.#segmentOf(hash);
    }
    this.#place(segment, hash, kindAndSlot);
    return true;
  }

  #place(segment: number, hash: number, kindAndSlot: number): void {
    const page = this.#writablePageOf(segment);
    const base = this.#baseOf(segment);
    let at = hash & this.#bucketMask;
    while (isLive(page[base + 2 * at + 1] ?? EMPTY)) at = (at + 1) & this.#bucketMask;
    const bucket = base + 2 * at;
    if (page[bucket + 1] === EMPTY) this.#used[segment] = (this.#used[segment] ?? 0) + 1;
    page[bucket] = hash;
    page[bucket + 1] = kindAndSlot;
  }

  #unlink(hash: number, slot: number): void {
    const segment = this.#segmentOf(hash);
    const page = this.#writablePageOf(segment);
    const base = this.#baseOf(segment);
    let at = hash & this.#bucketMask;
    while (((page[base + 2 * at + 1] ?? EMPTY) & SLOT_MASK) !== slot + 1) at = (at + 1) & this.#bucketMask;
    const next = (at + 1) & this.#bucketMask;
    const last = page[base + 2 * next + 1] === EMPTY;
    page[base + 2 * at + 1] = last ? EMPTY : DELETED;
    if (last) this.#used[segment] = (this.#used[segment] ?? 0) - 1;
  }

  /** Splits a full segment, or only clears it of deleted buckets; false when neither helps. */
  #makeRoom(segment: number, hash: number): boolean {
    const page = this.#writablePageOf(segment);
    const base = this.#baseOf(segment);
    const end = base + this.#segmentWords;
    const { maxDepth } = this.#sizes;
    const before = page.slice(base, end);
    const live = countLive(before);
    const depth = this.#depths[segment] ?? 0;
    const splits = live >= this.#full / 2;
    if (splits && depth === maxDepth && live >= this.#full) return false;
    if (splits && depth < maxDepth) this.#splitDirectory(segment, depth, leadingBits(hash, depth));
    page.fill(0, base, end);
    this.#used[segment] = 0;
    for (let i = 0; i < before.length; i += 2) {
      const kindAndSlot = before[i + 1] ?? EMPTY;
      const moved = before[i] ?? 0;
      if (isLive(kindAndSlot)) this.#place(this.#segmentOf(moved), moved, kindAndSlot);
    }
    return true;
  }

  /** Gives the upper half of the hashes that begin with `prefix` a segment of their own. */
  #splitDirectory(segment: number, depth: number, prefix: number): void {
    if (depth === this.#depth) this.#doubleDirectory();
    const upper = this.#addSegment(depth + 1);
    this.#depths[segment] = depth + 1;
    const span = 1 << (this.#depth - depth - 1);
    this.#directory.fill(upper, (2 * prefix + 1) * span, (2 * prefix + 2) * span);
  }

  #doubleDirectory(): void {
    const doubled = new Int32Array(this.#directory.length * 2);
    for (let i = 0; i < doubled.length; i++) doubled[i] = this.#directory[i >>> 1] ?? 0;
    this.#directory = doubled;
    this.#depth++;
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
