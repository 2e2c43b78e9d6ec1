import { assert } from '../base/assert.ts';
import { Int32Rows } from '../base/int32-rows.ts';
import type { AddressWords, Family } from './address-words.ts';

// A bucket is one word: a slot plus one, and six bits of the key's hash, which tell most strangers apart without
// a look at their keys.
const SLOT_BITS = 26; // 67 million keys
const SLOT_MASK: number = (1 << SLOT_BITS) - 1;
const TAG_MASK: number = ~SLOT_MASK;
const EMPTY = 0;
const DELETED: number = SLOT_MASK; // the slot that this would be is never given out

// A segment has 1,024 buckets and is split when 4 of 5 are taken: about 50 µs for its 819 keys.
const SEGMENT_BITS = 10;
const FULL_AT = 0.8;
// Beyond 2^16 segments (53 million keys), or for keys that were made to collide, segments grow instead.
const MAX_DEPTH = 16;

/** The keys whose hash begins with the same `depth` bits, by open addressing. */
interface Segment {
  readonly depth: number;
  readonly buckets: Int32Array;
  /** Buckets that are not empty, deleted ones included. */
  used: number;
}

function newSegment(depth: number, bits: number): Segment {
  return { depth, buckets: new Int32Array(1 << bits), used: 0 };
}

/** The first `depth` bits of a hash. A shift by 32 would be one by 0: depth 0 takes two steps. */
function leadingBits(hash: number, depth: number): number {
  return (hash >>> 1) >>> (31 - depth);
}

/** The six bits above those that choose the bucket, moved to the top of the word. */
function tagOf(hash: number): number {
  return (hash << (SLOT_BITS - SEGMENT_BITS)) & TAG_MASK;
}

function place(segment: Segment, hash: number, slot: number): void {
  const { buckets } = segment;
  const mask = buckets.length - 1;
  let at = hash & mask;
  while (buckets[at] !== EMPTY && buckets[at] !== DELETED) at = (at + 1) & mask;
  if (buckets[at] === EMPTY) segment.used++;
  buckets[at] = tagOf(hash) | (slot + 1);
}

function mix(hash: number, word: number): number {
  const h = Math.imul(hash ^ word, 0x9e37_79b1); // 2^32 divided by the golden ratio
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
 *     hash ─► directory ─► segment ─► bucket: tag·slot ─► keys:  w0 │ length word      8 bytes a key
 *             2^depth      1,024 buckets                  wide:  w1 │ w2 │ w3          12 more for IPv6
 *
 * A full segment is split in two by one more bit of the hash, so the hash grows by small steps and no insertion
 * stalls. Slots of removed keys form a list through their key rows: the last one freed is used first.
 *
 * `find` touches two cache lines in the common case: a bucket and a key. Index: 5 to 10 bytes a key.
 */
export class KeyHash {
  readonly #seed: number;
  readonly #keys = new Int32Rows(2);
  readonly #wide = new Int32Rows(3);
  readonly #moved: AddressWords = { family: 4, w0: 0, w1: 0, w2: 0, w3: 0 };
  #directory: Segment[] = [newSegment(0, SEGMENT_BITS)];
  #depth = 0;
  #size = 0;
  #limit = 0;
  /** The slot freed last, plus one; 0 when there is none. */
  #free = 0;

  /** A `seed` that strangers do not know keeps them from choosing keys that collide. */
  constructor(seed: number) {
    this.#seed = seed | 0;
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
    const segments = new Set(this.#directory);
    let buckets = 0;
    for (const segment of segments) buckets += segment.buckets.byteLength;
    return this.#keys.bytes + this.#wide.bytes + buckets + this.#directory.length * 8;
  }

  /** The slot of a key, or -1. `words` are masked to the key's length. */
  find(words: Readonly<AddressWords>, word: number): number {
    const hash = this.#hash(words, word);
    const { buckets } = this.#segment(hash);
    const mask = buckets.length - 1;
    const tag = tagOf(hash);
    for (let at = hash & mask; ; at = (at + 1) & mask) {
      const bucket = buckets[at] ?? EMPTY;
      if (bucket === EMPTY) return -1;
      if ((bucket & TAG_MASK) !== tag) continue;
      const slot = (bucket & SLOT_MASK) - 1;
      if (this.#holds(slot, words, word)) return slot;
    }
  }

  /** Adds a key that is not there and gives its slot. */
  insert(words: Readonly<AddressWords>, word: number): number {
    const slot = this.#takeSlot();
    this.#keys.set(slot, 0, words.w0);
    this.#keys.set(slot, 1, word);
    if (words.family === 6) this.#setWide(slot, words);
    this.#link(this.#hash(words, word), slot);
    this.#size++;
    return slot;
  }

  /** Removes the key of a slot in use. */
  remove(slot: number): void {
    this.readWords(slot, this.#moved);
    this.#unlink(this.#hash(this.#moved, this.wordAt(slot)), slot);
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

  /** All 32 bits count: the upper ones choose the segment, the lowest the bucket, those between are the tag. */
  #hash(words: Readonly<AddressWords>, word: number): number {
    let hash = mix(this.#seed ^ word, words.w0);
    if (words.family === 6) hash = mix(mix(mix(hash, words.w1), words.w2), words.w3);
    hash = Math.imul(hash ^ (hash >>> 13), 0x85eb_ca6b);
    return hash ^ (hash >>> 16);
  }

  #holds(slot: number, words: Readonly<AddressWords>, word: number): boolean {
    if (this.#keys.get(slot, 0) !== words.w0 || this.#keys.get(slot, 1) !== word) return false;
    return words.family === 4 || this.#holdsWide(slot, words);
  }

  #holdsWide(slot: number, words: Readonly<AddressWords>): boolean {
    const wide = this.#wide;
    return wide.get(slot, 0) === words.w1 && wide.get(slot, 1) === words.w2 && wide.get(slot, 2) === words.w3;
  }

  #segment(hash: number): Segment {
    const segment = this.#directory[leadingBits(hash, this.#depth)];
    assert(segment !== undefined, 'every hash has a segment');
    return segment;
  }

  #link(hash: number, slot: number): void {
    let segment = this.#segment(hash);
    while (segment.used >= segment.buckets.length * FULL_AT) {
      this.#makeRoom(segment, leadingBits(hash, segment.depth));
      segment = this.#segment(hash);
    }
    place(segment, hash, slot);
  }

  #unlink(hash: number, slot: number): void {
    const segment = this.#segment(hash);
    const { buckets } = segment;
    const mask = buckets.length - 1;
    const wanted = tagOf(hash) | (slot + 1);
    let at = hash & mask;
    while (buckets[at] !== wanted) at = (at + 1) & mask;
    const last = buckets[(at + 1) & mask] === EMPTY;
    buckets[at] = last ? EMPTY : DELETED;
    if (last) segment.used--;
  }

  /** Splits a segment; or, where that cannot help, makes it anew: without deleted buckets, or larger. */
  #makeRoom(segment: Segment, prefix: number): void {
    const live = segment.buckets.filter((bucket) => bucket !== EMPTY && bucket !== DELETED);
    const bits = 31 - Math.clz32(segment.buckets.length);
    if (live.length < (segment.buckets.length * FULL_AT) / 2) {
      this.#install(newSegment(segment.depth, bits), prefix, live);
    } else if (segment.depth === MAX_DEPTH) {
      this.#install(newSegment(segment.depth, bits + 1), prefix, live);
    } else {
      if (segment.depth === this.#depth) this.#doubleDirectory();
      this.#install(newSegment(segment.depth + 1, bits), prefix * 2, live);
      this.#install(newSegment(segment.depth + 1, bits), prefix * 2 + 1, live);
    }
  }

  /** Puts a segment where hashes begin with `prefix`, and those of the `live` buckets into it that belong there. */
  #install(segment: Segment, prefix: number, live: Int32Array): void {
    for (const bucket of live) {
      const slot = (bucket & SLOT_MASK) - 1;
      this.readWords(slot, this.#moved);
      const hash = this.#hash(this.#moved, this.wordAt(slot));
      if (leadingBits(hash, segment.depth) === prefix) place(segment, hash, slot);
    }
    const span = 1 << (this.#depth - segment.depth);
    this.#directory.fill(segment, prefix * span, (prefix + 1) * span);
  }

  #doubleDirectory(): void {
    this.#directory = this.#directory.flatMap((segment) => [segment, segment]);
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
