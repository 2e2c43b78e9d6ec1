import { Int32Rows } from '../columns/int32-rows.ts';
import { type AddressWords, wordAt } from '../net/address-words.ts';

/** Maximum number of bits by which a prefix is longer than the stem of its set, the first bits of all its prefixes. */
export const STRIDE = 8;

/** Sets from this number on are rows of bits. */
const FIRST_ROW: number = 2 << STRIDE;
const ROW_WORDS: number = FIRST_ROW / 32;

/**
 * Returns the base index of a prefix in the set of its stem: the `bits` (0 to 8) bits after the stem, with a
 * leading one (the numbering of ART). `stemLength` is a multiple of 8.
 */
export function baseIndex(words: Readonly<AddressWords>, stemLength: number, bits: number): number {
  const octet = (wordAt(words, stemLength >>> 5) >>> (24 - (stemLength & 31))) & 255;
  return ((1 << STRIDE) | octet) >>> (STRIDE - bits);
}

/**
 * Sets of prefixes with the same stem, at most eight bits longer. A prefix is identified by its
 * {@link baseIndex}. Half of a base index is the base index of the prefix that is one bit shorter:
 *
 *     10.1/16   0b1      10.1.128/17   0b11      10.1.128/18   0b110      10.1.2/24   0b1_0000_0010
 *
 * The owner stores a set as a number. 0 is the empty set. A base index is the set of only this prefix. A
 * larger number is a row of bits, one cache line. Most sets of a sparse table need no row.
 */
export class StrideSets {
  #rows = new Int32Rows(ROW_WORDS);
  #limit = 0;
  #free: number[] = [];

  /** Returns a copy, which shares pages until one side writes. */
  fork(): StrideSets {
    const fork = new StrideSets();
    fork.#rows = this.#rows.fork();
    fork.#limit = this.#limit;
    fork.#free = this.#free.slice();
    return fork;
  }

  get bytes(): number {
    return this.#rows.bytes;
  }

  /** Returns the set with another prefix, which must not be in `set`. `set` must not be used afterwards. */
  add(set: number, index: number): number {
    if (set === 0) return index;
    const row = set < FIRST_ROW ? this.#takeRow(set) : set - FIRST_ROW;
    this.#flip(row, index);
    return FIRST_ROW + row;
  }

  /** Returns the set without a prefix, which must be in `set`. `set` must not be used afterwards. */
  remove(set: number, index: number): number {
    if (set < FIRST_ROW) return 0;
    const row = set - FIRST_ROW;
    this.#flip(row, index);
    for (let word = 0; word < ROW_WORDS; word++) if (this.#rows.get(row, word) !== 0) return set;
    this.#free.push(row); // all zero, like a new row
    return 0;
  }

  has(set: number, index: number): boolean {
    if (set < FIRST_ROW) return set === index;
    return ((this.#rows.get(set - FIRST_ROW, index >>> 5) >>> (index & 31)) & 1) !== 0;
  }

  /**
   * Returns the number of bits by which the longest prefix in the set that contains (or equals) `index` is longer than
   * the stem; -1 if the set has none.
   */
  longest(set: number, index: number): number {
    if (set < FIRST_ROW) {
      const length = 31 - Math.clz32(set);
      const bits = 31 - Math.clz32(index);
      return length <= bits && index >>> (bits - length) === set ? length : -1;
    }
    const page = this.#rows.pageOf(set - FIRST_ROW);
    const at = this.#rows.offsetOf(set - FIRST_ROW);
    let around = index;
    while (around > 0 && (((page[at + (around >>> 5)] ?? 0) >>> (around & 31)) & 1) === 0) around >>>= 1;
    return 31 - Math.clz32(around);
  }

  #takeRow(first: number): number {
    const row = this.#free.pop() ?? this.#limit++;
    this.#rows.reserve(row);
    this.#flip(row, first);
    return row;
  }

  #flip(row: number, index: number): void {
    this.#rows.set(row, index >>> 5, this.#rows.get(row, index >>> 5) ^ (1 << (index & 31)));
  }
}
