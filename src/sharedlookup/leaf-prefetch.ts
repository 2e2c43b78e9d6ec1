import { prefixRegister } from '../net/prefix.ts';
import { BLOCK_KEYS, type PrefixBlock } from '../net/prefix-block.ts';
import {
  capacityOf,
  HEADER,
  homeOf,
  LEAF,
  LINE_WORDS,
  leafOf,
  MAX_SIZE_CLASS,
  partOf,
  seededPrefixHash,
  sizeClassOf,
  slotWords,
} from './layout.ts';

// Buffers of `LeafPrefetch.read`, which is not re-entrant.
const key = prefixRegister();
const hashes = new Int32Array(BLOCK_KEYS);
const strides = new Int32Array(BLOCK_KEYS);
/** Positions in the directory, then references to leaves. */
const positions = new Int32Array(BLOCK_KEYS);

/** Reads the leaves of many prefixes before they are searched or written, so that their cache misses overlap. */
export class LeafPrefetch {
  /** XOR of the read words. Storing it prevents the compiler from removing the reads. */
  #read = 0;

  /**
   * Reads a part of the leaf of each of the first `count` keys of a block. `slot`: the first probed slot, for a change
   * in place. `header`: this slot and the header, for a lookup. `leaf`: all of it, for a copy.
   */
  read(
    words: Readonly<Int32Array>,
    seed: number,
    block: PrefixBlock,
    count: number,
    part: 'slot' | 'header' | 'leaf',
  ): void {
    for (let at = 0; at < count; at++) {
      strides[at] = 0;
      if (!block.get(at, key)) continue;
      const directory = words[key.family === 4 ? HEADER.directory4 : HEADER.directory6] ?? 0;
      const hash = seededPrefixHash(seed, key.family, key, key.length);
      hashes[at] = hash;
      strides[at] = slotWords(key.family);
      positions[at] = directory + 1 + partOf(hash, words[directory] ?? 0);
    }
    for (let at = 0; at < count; at++) positions[at] = words[positions[at] ?? 0] ?? 0;
    let read = 0;
    for (let at = 0; at < count; at++) {
      const reference = positions[at] ?? 0;
      const leaf = leafOf(reference);
      const capacity = capacityOf(Math.min(sizeClassOf(reference), MAX_SIZE_CLASS));
      const home = homeOf(hashes[at] ?? 0, capacity) * (strides[at] ?? 0);
      read ^= words[leaf + LEAF.slots + home] ?? 0;
      if (part === 'slot') continue;
      read ^= words[leaf + LEAF.stamp] ?? 0;
      if (part === 'header') continue;
      const end = leaf + LEAF.slots + capacity * (strides[at] ?? 0);
      for (let line = leaf + LINE_WORDS; line < end; line += LINE_WORDS) read ^= words[line] ?? 0;
    }
    this.#read ^= read;
  }
}
