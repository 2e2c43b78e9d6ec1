import { GOLDEN, mix } from '../columns/mix.ts';
import { type AddressWords, type Family, wordMask } from '../net/address-words.ts';

// All positions and lengths are in 32-bit words. Position 0 is in the header, so 0 means "none" everywhere.

/** Marks the buffer and the version of its layout. */
export const LAYOUT = 0x6c70_0002;

/** Words of the header, at the start of the buffer. The words that change with every batch share a cache line. */
export const HEADER = {
  layout: 0,
  seed: 1,
  /** Number of the last started batch. */
  started: 16,
  /** Number of the last complete batch. */
  published: 17,
  /** Number of words to map. */
  words: 18,
  /** Directories of IPv4 and IPv6. */
  directory4: 19,
  directory6: 20,
  /** The length filters of IPv4 and IPv6. */
  filter4: 21,
  filter6: 22,
  /** Rows of hosts and encryption keys. */
  peers: 23,
  /** 1 after the writer was closed. */
  closed: 24,
  /** Two tables of changed identities. */
  changed: 25,
  /** Revision (two words) and number of entries: first of even batches, then of odd ones. */
  state: 32,
} as const;
/** Words of the header. Blocks of memory follow. */
export const HEADER_WORDS = 64;

/** Words of a cache line. Blocks of memory begin at multiples of it. */
export const LINE_WORDS = 16;

/** Words of one half of {@link HEADER.state}: revision modulo 2^32, revision divided by 2^32, entries. */
export const STATE_WORDS = 4;

// Numbers of batches have 31 bits and wrap.
const BATCH_MASK = 0x7fff_ffff;

export function nextBatch(batch: number): number {
  return (batch + 1) & BATCH_MASK;
}

/** Returns true if not more than one batch was started since `batch` was published. */
export function isRecent(batch: number, started: number): boolean {
  return ((started - batch) & BATCH_MASK) <= 1;
}

/** Returns the stamp of the leaves of a batch. It is never 0. */
export function stampOf(batch: number): number {
  return batch | ~BATCH_MASK;
}

/**
 * Words of a leaf, a small hash table with linear probes:
 *
 *     leaf     stamp │ before │ shape │ beforeHigh │ 20 slots or more
 *
 *     slot     IPv4: tag │ meta │ identity     IPv6: tag │ meta │ identity │ w0 │ w1 │ w2
 *
 * Leaves begin at multiples of 16 words. A *reference* to a leaf has its size class in the lower four bits, so that a
 * lookup can read the header and the slot at the same time.
 */
export const LEAF = {
  /** {@link stampOf} the batch that wrote the leaf, until the next batch starts; then 0. */
  stamp: 0,
  /** Reference to the leaf that had these entries before the batch; of two merged leaves, the lower one. */
  before: 1,
  /** Number of entries in bits 0 to 15; above, the depth: the number of bits common to their hashes. */
  shape: 2,
  /** Reference to the upper one of two merged leaves. Otherwise the same as `before`. */
  beforeHigh: 3,
  slots: 4,
} as const;

/** Slots of a leaf of size class 0: four cache lines for IPv4, eight for IPv6. Each class doubles them. */
const LEAF_SLOTS = 20;
/** The largest class: 40,960 slots. It is needed only if thousands of keys have the same hash. */
export const MAX_SIZE_CLASS = 11;
const CLASS_MASK = 15;

export function leafOf(reference: number): number {
  return reference & ~CLASS_MASK;
}

export function sizeClassOf(reference: number): number {
  return reference & CLASS_MASK;
}

export function capacityOf(sizeClass: number): number {
  return LEAF_SLOTS << sizeClass;
}

export function slotWords(family: Family): number {
  return family === 4 ? 3 : 6;
}

export function leafWords(family: Family, sizeClass: number): number {
  return LEAF.slots + capacityOf(sizeClass) * slotWords(family);
}

/**
 * Offsets in a slot. `tag` is the word of the address that differs most: `w0` of IPv4, `w3` of IPv6. `meta` has the
 * prefix length plus one in bits 0 to 7, the number of the peer above, and {@link MARK}. It is 0 if the slot is empty.
 */
export const SLOT = { tag: 0, meta: 1, identity: 2, w0: 3, w1: 4, w2: 5 } as const;
const LENGTH_MASK = 0xff;
/** Bit of `meta` that is set if one of the last two batches has changed the identity in place ({@link CHANGED}). */
export const MARK: number = 1 << 31;
const PEER_SHIFT = 8;

/** Returns `meta` of an unmarked slot. */
export function metaOf(length: number, peer: number): number {
  return (length + 1) | (peer << PEER_SHIFT);
}

export function lengthOf(meta: number): number {
  return (meta & LENGTH_MASK) - 1;
}

export function peerOf(meta: number): number {
  return (meta & ~MARK) >>> PEER_SHIFT;
}

/** Returns true if the identity of a slot may be in a table of changed ones. */
export function isMarked(words: Readonly<Int32Array>, slot: number): boolean {
  return ((words[slot + SLOT.meta] ?? 0) & MARK) !== 0;
}

/** Odd factor, the last step of a hash. Without it, consecutive addresses would fill all leaves at the same time. */
const SPREAD = 0x85eb_ca6b;

/** Returns the hash of a prefix. Directories use its upper bits, leaves its lower ones. */
export function seededPrefixHash(
  seed: number,
  family: Family,
  words: Readonly<AddressWords>,
  length: number,
): number {
  let hash = mix(mix(seed, length), words.w0);
  if (family === 6) hash = mix(mix(mix(hash, words.w1), words.w2), words.w3);
  return Math.imul(hash, SPREAD);
}

/** Returns the leaf of a hash. `directory`: position of the number of bits, then a reference for each part. */
export function leafAt(words: Readonly<Int32Array>, directory: number, hash: number): number {
  return words[directory + 1 + partOf(hash, words[directory] ?? 0)] ?? 0;
}

const DEPTH_SHIFT = 16;

/** Returns the content of {@link LEAF.shape}. */
export function shapeOf(depth: number, count: number): number {
  return (depth << DEPTH_SHIFT) | count;
}

export function depthOf(words: Readonly<Int32Array>, reference: number): number {
  return (words[leafOf(reference) + LEAF.shape] ?? 0) >>> DEPTH_SHIFT;
}

export function countOf(words: Readonly<Int32Array>, reference: number): number {
  return (words[leafOf(reference) + LEAF.shape] ?? 0) & ((1 << DEPTH_SHIFT) - 1);
}

/** Returns the leaf that contained a hash before a batch replaced it by the leaf of `reference`. */
export function leafBefore(words: Readonly<Int32Array>, reference: number, hash: number): number {
  const isHigh = (partOf(hash, depthOf(words, reference) + 1) & 1) === 1;
  return words[leafOf(reference) + (isHigh ? LEAF.beforeHigh : LEAF.before)] ?? 0;
}

/** Returns the upper `bits` (0 to 31) of a hash. */
export function partOf(hash: number, bits: number): number {
  return (hash >>> 1) >>> (31 - bits);
}

/** Returns the first probed slot of a hash. */
export function homeOf(hash: number, capacity: number): number {
  return ((hash & 0xffff) * capacity) >>> 16;
}

/** Returns the position of a prefix in a leaf, or 0. Must end for any content, because the leaf may be overwritten. */
export function findSlot(
  words: Readonly<Int32Array>,
  reference: number,
  key: Readonly<AddressWords>,
  length: number,
  hash: number,
): number {
  const { family, w0, w1, w2, w3 } = key;
  const stride = slotWords(family);
  const first = leafOf(reference) + LEAF.slots;
  const capacity = capacityOf(Math.min(sizeClassOf(reference), MAX_SIZE_CLASS));
  const end = first + capacity * stride;
  const tag = family === 4 ? w0 : w3;
  let at = first + homeOf(hash, capacity) * stride;
  for (let probes = 0; probes < capacity; probes++) {
    const meta = words[at + SLOT.meta] ?? 0;
    if (meta === 0) return 0;
    if (words[at + SLOT.tag] === tag && lengthOf(meta) === length) {
      if (family === 4) return at;
      if (words[at + SLOT.w0] === w0 && words[at + SLOT.w1] === w1 && words[at + SLOT.w2] === w2) return at;
    }
    at += stride;
    if (at === end) at = first;
  }
  return 0;
}

/**
 * Identities that a batch has changed in place: a table of pairs, found by the position of the slot, for even batches
 * and for odd ones.
 *
 *     slot │ identity │ slot │ identity │ 0 │ …
 *
 * If a slot is marked and the table of the lookup's batch contains it, its identity is in the table. Otherwise it is in
 * the slot. A table has `words` words and at most `limit` pairs, so that at least half of it is empty.
 */
export const CHANGED = { words: 4_096, limit: 1_024 } as const;
const CHANGED_BITS = 11; // 2,048 pairs

/** Returns the table of a batch. `tables` is the content of {@link HEADER.changed}. */
export function changedTable(tables: number, batch: number): number {
  return tables + (batch & 1) * CHANGED.words;
}

/** Returns the position of the pair of a slot, or of the empty one for it. Ends for any memory content. */
export function findChanged(words: Readonly<Int32Array>, table: number, slot: number): number {
  let at = (Math.imul(slot, GOLDEN) >>> (32 - CHANGED_BITS)) * 2;
  for (let probes = 0; probes < CHANGED.words / 2; probes++) {
    const found = words[table + at] ?? 0;
    if (found === slot || found === 0) break;
    at = (at + 2) % CHANGED.words;
  }
  return table + at;
}

/**
 * A filter of lengths. For each *stem* (the first 16 bits of an IPv4 address, a hash of the first 48 bits of an IPv6
 * address) it has a mask with one bit for each length of the prefixes that begin with it. Before these masks is the one
 * of all stems: the lengths of the prefixes that are not longer than a stem.
 *
 *     all stems: /0 /8 /16     10.1: /24     10.2: –     10.3: /20 /24 /28
 */
export const FILTER = { stemBits4: 16, stemBits6: 48, stems4: 65_536, stems6: 4_096 } as const;
const STEM_HASH_BITS6 = 12; // 4,096 stems

/** Returns the number of words of a mask: one bit for each length shorter than an address. */
export function maskWordsOf(family: Family): number {
  return family === 4 ? 1 : 4;
}

export function filterWords(family: Family): number {
  return family === 4 ? 1 + FILTER.stems4 : 4 * (1 + FILTER.stems6);
}

/** Returns the index of the mask of an address, beginning with 1. Mask 0 is the one of the short prefixes. */
export function stemOf(seed: number, family: Family, words: Readonly<AddressWords>): number {
  if (family === 4) return 1 + (words.w0 >>> (32 - FILTER.stemBits4));
  const hash = mix(mix(seed, words.w0), words.w1 & wordMask(FILTER.stemBits6 - 32));
  return 1 + (Math.imul(hash, SPREAD) >>> (32 - STEM_HASH_BITS6));
}

/** A peer: encryption key, family of the host (0: no host) and its address. */
export const PEER = { encryptKey: 0, family: 1, w0: 2, w1: 3, w2: 4, w3: 5 } as const;
export const PEER_WORDS = 8;
/** Peers are numbered with 23 bits. 0 is the peer without host and encryption key. */
export const MAX_PEERS = 0x7f_ffff;
