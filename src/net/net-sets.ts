import { Int32Rows } from '../base/int32-rows.ts';
import type { AddressWords } from './address-words.ts';

/** By how many bits, at most, the prefixes of a set are longer than their stem. */
export const STRIDE = 8;

/** Sets from here on are rows of bits. */
const FIRST_ROW: number = 2 << STRIDE;
const ROW_WORDS: number = FIRST_ROW / 32;

/**
 * The number of a prefix in the set of its stem: the bits behind the stem, of which there are `bits` (0 to 8), with a one
 * before them. `stem` is a multiple of 8.
 */
export function netOf(words: Readonly<AddressWords>, stem: number, bits: number): number {
  const { w0, w1, w2, w3 } = words;
  const word = stem < 32 ? w0 : stem < 64 ? w1 : stem < 96 ? w2 : w3;
  return ((1 << STRIDE) | ((word >>> (24 - (stem & 31))) & 255)) >>> (STRIDE - bits);
}

/**
 * Sets of prefixes that have a stem in common and are at most eight bits longer. Each has a number ({@link netOf}), whose
 * half is that of the prefix one bit shorter:
 *
 *     10.1/16   1        10.1.128/17   3 = 11        10.1.128/18   6 = 110        10.1.2/24   258 = 1 0000 0010
 *
 * A set is a number, too, which its owner keeps: 0 is empty, a prefix's number is the set of that one alone, and what is
 * above is a row of bits, one cache line. Most sets of a sparse table need no row.
 */
export class NetSets {
  #rows = new Int32Rows(ROW_WORDS);
  #limit = 0;
  #free: number[] = [];

  /** The same sets; writes to either do not show in the other. */
  fork(): NetSets {
    const fork = new NetSets();
    fork.#rows = this.#rows.fork();
    fork.#limit = this.#limit;
    fork.#free = this.#free.slice();
    return fork;
  }

  get bytes(): number {
    return this.#rows.bytes;
  }

  /** The set with a prefix that was not in it. The one given is not to be used any more. */
  add(set: number, net: number): number {
    if (set === 0) return net;
    const row = set < FIRST_ROW ? this.#takeRow(set) : set - FIRST_ROW;
    this.#flip(row, net);
    return FIRST_ROW + row;
  }

  /** The set without a prefix that was in it. The one given is not to be used any more. */
  remove(set: number, net: number): number {
    if (set < FIRST_ROW) return 0;
    const row = set - FIRST_ROW;
    this.#flip(row, net);
    for (let word = 0; word < ROW_WORDS; word++) if (this.#rows.get(row, word) !== 0) return set;
    this.#free.push(row); // all zero, as a new one
    return 0;
  }

  has(set: number, net: number): boolean {
    if (set < FIRST_ROW) return set === net;
    return ((this.#rows.get(set - FIRST_ROW, net >>> 5) >>> (net & 31)) & 1) !== 0;
  }

  /** By how many bits the longest prefix of a set that contains `net`, or is it, is longer than the stem; -1 for none. */
  longest(set: number, net: number): number {
    if (set < FIRST_ROW) {
      const own = 31 - Math.clz32(set);
      const bits = 31 - Math.clz32(net);
      return own <= bits && net >>> (bits - own) === set ? own : -1;
    }
    const page = this.#rows.pageOf(set - FIRST_ROW);
    const at = this.#rows.offsetOf(set - FIRST_ROW);
    let around = net;
    while (around > 0 && (((page[at + (around >>> 5)] ?? 0) >>> (around & 31)) & 1) === 0) around >>>= 1;
    return 31 - Math.clz32(around);
  }

  #takeRow(first: number): number {
    const row = this.#free.pop() ?? this.#limit++;
    this.#rows.reserve(row);
    this.#flip(row, first);
    return row;
  }

  #flip(row: number, net: number): void {
    this.#rows.set(row, net >>> 5, this.#rows.get(row, net >>> 5) ^ (1 << (net & 31)));
  }
}
