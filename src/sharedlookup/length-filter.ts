import { Int32Map } from '../columns/int32-map.ts';
import type { Family } from '../net/address-words.ts';
import type { PrefixRegister } from '../net/prefix.ts';
import { FILTER, filterWords, maskWordsOf, stemOf } from './layout.ts';
import { NumberList } from './number-list.ts';
import type { SharedHeap } from './shared-memory.ts';

/** Lengths of a mask: 0 to 127. */
const LENGTH_BITS = 7;

/**
 * The prefix lengths of one family that a longest match must try ({@link FILTER}). One thread writes it, readers of
 * other threads read it. The filter contains every length that the lookups of any revision need: a bit is set before
 * the prefix is published, and deleted in the batch after the one that deletes the last prefix.
 */
export class LengthFilter {
  readonly #heap: SharedHeap;
  readonly #family: Family;
  readonly #seed: number;
  readonly #root: number;
  /** Position of the masks. 0 before the first prefix that is shorter than an address. */
  #masks = 0;
  /** Number of prefixes of each mask and length. */
  readonly #counts = new Int32Map();
  /** Masks and lengths that have lost their last prefix in this batch. */
  readonly #unused = new NumberList();

  constructor(heap: SharedHeap, family: Family, seed: number, root: number) {
    this.#heap = heap;
    this.#family = family;
    this.#seed = seed;
    this.#root = root;
  }

  /** Adds (`by` 1) or removes (-1) a prefix that is shorter than an address. */
  adjust(key: Readonly<PrefixRegister>, by: 1 | -1): void {
    const stemBits = this.#family === 4 ? FILTER.stemBits4 : FILTER.stemBits6;
    const mask = key.length <= stemBits ? 0 : stemOf(this.#seed, this.#family, key);
    const bit = (mask << LENGTH_BITS) | key.length;
    const count = this.#counts.get(bit) + by;
    this.#counts.exchange(bit, count);
    if (count === 0) this.#unused.push(bit);
    else if (by > 0 && count === 1) this.#set(bit, true);
  }

  /**
   * Starts a batch. Deletes the bits of lengths that had no prefix at the end of the last batch. Must be called when no
   * valid lookup can need them.
   */
  begin(): void {
    for (let i = 0; i < this.#unused.length; i++) {
      const bit = this.#unused.at(i);
      if (this.#counts.get(bit) === 0) this.#set(bit, false);
    }
    this.#unused.clear();
  }

  #set(bit: number, value: boolean): void {
    if (this.#masks === 0) this.#allocate();
    const length = bit & ((1 << LENGTH_BITS) - 1);
    const at = this.#masks + (bit >>> LENGTH_BITS) * maskWordsOf(this.#family) + (length >>> 5);
    const { words } = this.#heap;
    const mask = words[at] ?? 0;
    words[at] = value ? mask | (1 << (length & 31)) : mask & ~(1 << (length & 31));
  }

  #allocate(): void {
    const size = filterWords(this.#family);
    this.#masks = this.#heap.allocate(size);
    this.#heap.words.fill(0, this.#masks, this.#masks + size);
    Atomics.store(this.#heap.words, this.#root, this.#masks);
  }
}
