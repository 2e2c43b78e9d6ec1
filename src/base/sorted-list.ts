/** Compares texts by UTF-16 code unit. ASCII texts then have the same order as in JSON libraries of other languages. */
export function ascending(a: string, b: string): number {
  return a < b ? -1 : Number(a > b);
}

/** Items per block. An insertion or deletion moves at most twice this number of pointers. */
const BLOCK = 512;

/**
 * A set of items in the order of `compare`, divided into blocks so that a change does not cost the length of the list.
 */
export class SortedList<T> {
  readonly #compare: (a: T, b: T) => number;
  #blocks: T[][] = [[]];
  #size = 0;

  /** @param compare must return a constant order for two items that are in the list, and 0 only if they are equal */
  constructor(compare: (a: T, b: T) => number) {
    this.#compare = compare;
  }

  get size(): number {
    return this.#size;
  }

  get first(): T | undefined {
    return this.#blocks[0]?.[0];
  }

  /** Adds an item unless the list has an equal one. */
  add(item: T): void {
    const index = this.#blockOf(item);
    const block = this.#blocks[index] ?? [];
    const position = this.#position(block, item);
    if (this.#isAt(block, position, item)) return;
    this.#size++;
    block.splice(position, 0, item);
    if (block.length > 2 * BLOCK) this.#blocks.splice(index + 1, 0, block.splice(BLOCK));
  }

  delete(item: T): void {
    const index = this.#blockOf(item);
    const block = this.#blocks[index] ?? [];
    const position = this.#position(block, item);
    if (!this.#isAt(block, position, item)) return;
    this.#size--;
    block.splice(position, 1);
    if (block.length === 0 && this.#blocks.length > 1) this.#blocks.splice(index, 1);
  }

  clear(): void {
    this.#blocks = [[]];
    this.#size = 0;
  }

  /** Iterates over the items from `start` on, in order. The list must not change during the iteration. */
  *from(start: T): Generator<T> {
    const first = this.#blockOf(start);
    for (let i = first; i < this.#blocks.length; i++) {
      const block = this.#blocks[i] ?? [];
      const from = i === first ? this.#position(block, start) : 0;
      for (const item of from === 0 ? block : block.slice(from)) yield item;
    }
  }

  /**
   * Returns the number of items before `item`, which need not be in the list. Costs one step for each block before it.
   */
  rank(item: T): number {
    const index = this.#blockOf(item);
    let rank = this.#position(this.#blocks[index] ?? [], item);
    for (let i = 0; i < index; i++) rank += this.#blocks[i]?.length ?? 0;
    return rank;
  }

  /** Returns the index of the block that contains the item, or into which it would be inserted. */
  #blockOf(item: T): number {
    let low = 0;
    let high = this.#blocks.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >>> 1;
      const first = this.#blocks[middle]?.[0];
      if (first !== undefined && this.#compare(first, item) <= 0) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  /** Returns the position of the item in the block, or the position at which it would be inserted. */
  #position(block: readonly T[], item: T): number {
    let low = 0;
    let high = block.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      const other = block[middle];
      if (other !== undefined && this.#compare(other, item) < 0) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  #isAt(block: readonly T[], position: number, item: T): boolean {
    const other = block[position];
    return other !== undefined && this.#compare(other, item) === 0;
  }
}
