import { Int32Map } from '../columns/int32-map.ts';
import type { Family } from '../net/address-words.ts';
import type { PrefixRegister } from '../net/prefix.ts';
import { FILTER, filterWords, maskWordsOf, stemOf } from './layout.ts';
import { NumberList } from './number-list.ts';
import type { SharedHeap } from './shared-memory.ts';

/** Number of bits of a length (0 to 127) in a key of `LengthFilter.#counts`. The index of the mask precedes them. */
const LENGTH_BITS = 7;

/**
 * The prefix lengths of one family that a longest match must try ({@link FILTER}). One thread writes the filter, other
 * threads read it. The bit of a length is set before the first prefix of this length is published. It is deleted one
 * batch after the last such prefix, because lookups of the previous revision may still need it.
 */
export class LengthFilter {
  readonly #heap: SharedHeap;
  readonly #family: Family;
  readonly #seed: number;
  /** Index of the header word with the position of the masks. */
  readonly #root: number;
  /** Position of the masks. 0 before the first prefix shorter than an address. */
  #masks = 0;
  /** Number of prefixes by mask and length. */
  readonly #counts = new Int32Map();
  /** Keys of `#counts` which have lost their last prefix in this batch. */
  readonly #unused = new NumberList();

  constructor(heap: SharedHeap, family: Family, seed: number, root: number) {
    this.#heap = heap;
    this.#family = family;
    this.#seed = seed;
    this.#root = root;
  }

  /** Adds (`by` 1) or removes (-1) a prefix shorter than an address. */
  adjust(prefix: Readonly<PrefixRegister>, by: 1 | -1): void {
    const stemBits = this.#family === 4 ? FILTER.stemBits4 : FILTER.stemBits6;
    const mask = prefix.length <= stemBits ? 0 : stemOf(this.#seed, this.#family, prefix);
    const key = (mask << LENGTH_BITS) | prefix.length;
    const count = this.#counts.get(key) + by;
    this.#counts.exchange(key, count);
    if (count === 0) this.#unused.push(key);
    else if (by > 0 && count === 1) this.#setBit(key, true);
  }

  /** Starts a batch. Deletes the bits of lengths without prefixes. Call it when no valid lookup can need them. */
  begin(): void {
    for (let i = 0; i < this.#unused.length; i++) {
      const key = this.#unused.at(i);
      if (this.#counts.get(key) === 0) this.#setBit(key, false);
    }
    this.#unused.clear();
  }

  #setBit(key: number, isSet: boolean): void {
    if (this.#masks === 0) this.#allocate();
    const mask = key >>> LENGTH_BITS;
    const length = key & ((1 << LENGTH_BITS) - 1);
    const at = this.#masks + mask * maskWordsOf(this.#family) + (length >>> 5);
    const bit = 1 << (length & 31);
    const { words } = this.#heap;
    const word = words[at] ?? 0;
    words[at] = isSet ? word | bit : word & ~bit;
  }

  #allocate(): void {
    const size = filterWords(this.#family);
    this.#masks = this.#heap.allocate(size);
    this.#heap.words.fill(0, this.#masks, this.#masks + size);
    Atomics.store(this.#heap.words, this.#root, this.#masks);
  }
}
