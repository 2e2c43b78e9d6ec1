import { compareKeys, inRange, type KeyRange } from '../key-range.ts';

const BLOCK = 512; // keys per block: an insertion moves at most so many pointers

/** A set of keys in byte order, in blocks, so that insertion costs a little and not the length of the list. */
export class SortedKeys {
  #blocks: string[][] = [[]];

  /** The index of the block that holds `key`, or would. */
  #blockOf(key: string): number {
    let low = 0;
    let high = this.#blocks.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >>> 1;
      const first = this.#blocks[middle]?.[0];
      if (first !== undefined && compareKeys(first, key) <= 0) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  /** Where `key` is in the block, or would be. */
  static #position(block: readonly string[], key: string): number {
    let low = 0;
    let high = block.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (compareKeys(block[middle] ?? '', key) < 0) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  add(key: string): void {
    const index = this.#blockOf(key);
    const block = this.#blocks[index] ?? [];
    const position = SortedKeys.#position(block, key);
    if (block[position] === key) return;
    block.splice(position, 0, key);
    if (block.length > 2 * BLOCK) this.#blocks.splice(index + 1, 0, block.splice(BLOCK));
  }

  delete(key: string): void {
    const index = this.#blockOf(key);
    const block = this.#blocks[index] ?? [];
    const position = SortedKeys.#position(block, key);
    if (block[position] !== key) return;
    block.splice(position, 1);
    if (block.length === 0 && this.#blocks.length > 1) this.#blocks.splice(index, 1);
  }

  /** The keys of the range, ascending. The set must not change while they are read. */
  *range(range: KeyRange): Generator<string> {
    const start = this.#blockOf(range.start);
    for (let i = start; i < this.#blocks.length; i++) {
      const block = this.#blocks[i] ?? [];
      for (let k = i === start ? SortedKeys.#position(block, range.start) : 0; k < block.length; k++) {
        const key = block[k] ?? '';
        if (!inRange(key, range)) return;
        yield key;
      }
    }
  }
}
