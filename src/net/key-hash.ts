import { assert } from '../base/assert.ts';
import { Int32Rows } from '../base/int32-rows.ts';
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

// A segment has 1,024 buckets and is split when 4 of 5 are taken: about 50 µs for its 819 keys.
const SEGMENT_BITS = 10;
const FULL_AT = 0.8;
// Beyond 2^16 segments (53 million keys), or for keys that were made to collide, segments grow instead.
const MAX_DEPTH = 16;

/** The keys whose hash begins with the same `depth` bits, by open addressing. */
interface Segment {
  readonly depth: number;
  /** How many buckets there are, less one. */
  readonly mask: number;
  /** For each bucket: hash, kind·slot. */
  readonly buckets: Int32Array;
  /** Buckets that are not empty, deleted ones included. */
  used: number;
}

function newSegment(depth: number, bits: number): Segment {
  return { depth, mask: (1 << bits) - 1, buckets: new Int32Array(2 << bits), used: 0 };
}

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

function place(segment: Segment, hash: number, kindAndSlot: number): void {
  const { buckets, mask } = segment;
  let at = hash & mask;
  while (isLive(buckets[2 * at + 1] ?? EMPTY)) at = (at + 1) & mask;
  if (buckets[2 * at + 1] === EMPTY) segment.used++;
  buckets[2 * at] = hash;
  buckets[2 * at + 1] = kindAndSlot;
}

function countLive({ buckets, mask }: Segment): number {
  let live = 0;
  for (let at = 0; at <= mask; at++) if (isLive(buckets[2 * at + 1] ?? EMPTY)) live++;
  return live;
}

/** One round; for a fixed `hash` a bijection of `word`. */
function mix(hash: number, word: number): number {
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
 * For one length the hash of an IPv4 key is a bijection of its address: equal hash and kind mean equal keys, and
 * `find` touches a single cache line. An IPv6 key is compared in full.
 *
 * A full segment is split in two by one more bit of the hash. Buckets hold the whole hash, so that splitting reads
 * no key; the hash grows by small steps and no insertion stalls. Slots of removed keys form a list through their
 * key rows: the last one freed is used first. Index: 10 to 20 bytes a key.
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
    const kind = kindOf(words.family, word);
    const { buckets, mask } = this.#segment(hash);
    for (let at = hash & mask; ; at = (at + 1) & mask) {
      const kindAndSlot = buckets[2 * at + 1] ?? EMPTY;
      if (kindAndSlot === EMPTY) return -1;
      if (buckets[2 * at] !== hash || (kindAndSlot & KIND_MASK) !== kind) continue;
      const slot = (kindAndSlot & SLOT_MASK) - 1;
      if (words.family === 4 ? kindAndSlot !== DELETED : this.#holds(slot, words, word)) return slot;
    }
  }

  /** Adds a key that is not there and gives its slot. */
  insert(words: Readonly<AddressWords>, word: number): number {
    const slot = this.#takeSlot();
    this.#keys.set(slot, 0, words.w0);
    this.#keys.set(slot, 1, word);
    if (words.family === 6) this.#setWide(slot, words);
    this.#link(this.#hash(words, word), kindOf(words.family, word) | (slot + 1));
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

  #segment(hash: number): Segment {
    const segment = this.#directory[leadingBits(hash, this.#depth)];
    assert(segment !== undefined, 'every hash has a segment');
    return segment;
  }

  #link(hash: number, kindAndSlot: number): void {
    let segment = this.#segment(hash);
    while (segment.used > segment.mask * FULL_AT) {
      this.#makeRoom(segment, leadingBits(hash, segment.depth));
      segment = this.#segment(hash);
    }
    place(segment, hash, kindAndSlot);
  }

  #unlink(hash: number, slot: number): void {
    const segment = this.#segment(hash);
    const { buckets, mask } = segment;
    let at = hash & mask;
    while (((buckets[2 * at + 1] ?? EMPTY) & SLOT_MASK) !== slot + 1) at = (at + 1) & mask;
    const next = (at + 1) & mask;
    const last = buckets[2 * next + 1] === EMPTY;
    buckets[2 * at + 1] = last ? EMPTY : DELETED;
    if (last) segment.used--;
  }

  /** Splits a segment; or, where that cannot help, makes it anew: without deleted buckets, or larger. */
  #makeRoom(full: Segment, prefix: number): void {
    const bits = 32 - Math.clz32(full.mask);
    if (countLive(full) < (full.mask * FULL_AT) / 2) {
      this.#install(newSegment(full.depth, bits), prefix, full);
    } else if (full.depth === MAX_DEPTH) {
      this.#install(newSegment(full.depth, bits + 1), prefix, full);
    } else {
      if (full.depth === this.#depth) this.#doubleDirectory();
      this.#install(newSegment(full.depth + 1, bits), prefix * 2, full);
      this.#install(newSegment(full.depth + 1, bits), prefix * 2 + 1, full);
    }
  }

  /** Puts a segment where hashes begin with `prefix`, and those keys of `from` into it that belong there. */
  #install(segment: Segment, prefix: number, from: Segment): void {
    const { buckets, mask } = from;
    for (let at = 0; at <= mask; at++) {
      const hash = buckets[2 * at] ?? 0;
      const kindAndSlot = buckets[2 * at + 1] ?? EMPTY;
      if (isLive(kindAndSlot) && leadingBits(hash, segment.depth) === prefix)
        place(segment, hash, kindAndSlot);
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
