/** Compares texts by UTF-16 code unit. ASCII texts then have the same order as in JSON libraries of other languages. */
export function ascending(a: string, b: string): number {
  return a < b ? -1 : Number(a > b);
}

/** Keys per block after a split. A block has at most twice as many keys, and an insertion moves keys and values. */
const BLOCK = 512;

interface Block<K, V> {
  readonly keys: K[];
  readonly values: V[];
}

/**
 * A map whose keys are in the order of `compare`. It is divided into blocks, so that a change moves few entries, and
 * grows in small steps, unlike a `Map`. An entry takes 16 bytes. A search begins at the place of the last access.
 */
export class SortedMap<K, V> {
  readonly #compare: (a: K, b: K) => number;
  #blocks: Block<K, V>[] = [{ keys: [], values: [] }];
  #size = 0;
  /** Index of the block which has, or would get, the key of the last search. */
  #block = 0;
  /** Index of this key in the block. */
  #position = 0;

  /** @param compare must return a constant order for two keys in the map, and 0 only if they are equal */
  constructor(compare: (a: K, b: K) => number) {
    this.#compare = compare;
  }

  get size(): number {
    return this.#size;
  }

  get first(): K | undefined {
    return this.#blocks[0]?.keys[0];
  }

  get(key: K): V | undefined {
    return this.#find(key) ? this.#blocks[this.#block]?.values[this.#position] : undefined;
  }

  set(key: K, value: V): void {
    const isKnown = this.#find(key);
    const block = this.#blocks[this.#block];
    if (block === undefined) return;
    const { keys, values } = block;
    if (isKnown) {
      values[this.#position] = value;
      return;
    }
    keys.splice(this.#position, 0, key);
    values.splice(this.#position, 0, value);
    this.#size++;
    if (keys.length > 2 * BLOCK)
      this.#blocks.splice(this.#block + 1, 0, { keys: keys.splice(BLOCK), values: values.splice(BLOCK) });
  }

  delete(key: K): void {
    const block = this.#find(key) ? this.#blocks[this.#block] : undefined;
    if (block === undefined) return;
    block.keys.splice(this.#position, 1);
    block.values.splice(this.#position, 1);
    this.#size--;
    if (block.keys.length === 0 && this.#blocks.length > 1) this.#blocks.splice(this.#block, 1);
  }

  clear(): void {
    this.#blocks = [{ keys: [], values: [] }];
    this.#size = 0;
  }

  /** Iterates over the entries from the key `start` on, in order. The map must not change during the iteration. */
  *from(start: K): Generator<readonly [key: K, value: V], void, void> {
    this.#find(start);
    let position = this.#position;
    for (let at = this.#block; at < this.#blocks.length; at++, position = 0) {
      const { keys = [], values = [] } = this.#blocks[at] ?? {};
      for (; position < keys.length; position++) {
        const [key, value] = [keys[position], values[position]];
        if (key !== undefined && value !== undefined) yield [key, value];
      }
    }
  }

  /** Returns the number of keys before `key`, which need not be in the map. Costs one step for each block before it. */
  rank(key: K): number {
    this.#find(key);
    let rank = this.#position;
    for (let at = 0; at < this.#block; at++) rank += this.#blocks[at]?.keys.length ?? 0;
    return rank;
  }

  /** Sets `#block` and `#position` to the place of a key. Returns true if the key is there. */
  #find(key: K): boolean {
    const known = this.#blocks[this.#block]?.keys;
    if (known?.[this.#position] === key) return true;
    if (known?.[this.#position + 1] === key) {
      this.#position++;
      return true;
    }
    if (!this.#isInBlock(key)) this.#block = this.#blockOf(key);
    const keys = this.#blocks[this.#block]?.keys ?? [];
    this.#position = this.#nearby(key, keys) ?? lowerBound(keys, (other) => this.#isBefore(other, key));
    return keys[this.#position] === key;
  }

  /**
   * Returns the place of a key if it is that of the last search, or the next one; otherwise undefined. So a series of
   * keys in order needs few comparisons for each key.
   */
  #nearby(key: K, keys: readonly K[]): number | undefined {
    const position = this.#isBefore(keys[this.#position], key) ? this.#position + 1 : this.#position;
    if (position > 0 && !this.#isBefore(keys[position - 1], key)) return undefined;
    return this.#isBefore(keys[position], key) ? undefined : position;
  }

  /** Returns true if the key belongs to the block of the last access. */
  #isInBlock(key: K): boolean {
    const first = this.#blocks[this.#block]?.keys[0];
    const end = this.#blocks[this.#block + 1]?.keys[0];
    return (
      first !== undefined && !this.#isBefore(key, first) && (end === undefined || this.#isBefore(key, end))
    );
  }

  /** Returns the index of the block that contains the key, or into which it would be inserted. */
  #blockOf(key: K): number {
    let low = 0;
    let high = this.#blocks.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >>> 1;
      if (this.#isBefore(key, this.#blocks[middle]?.keys[0] ?? key)) high = middle - 1;
      else low = middle;
    }
    return low;
  }

  #isBefore(a: K | undefined, b: K): boolean {
    return a !== undefined && this.#compare(a, b) < 0;
  }
}

/**
 * Returns the index of the first item for which `isBefore` returns false; the length if there is none. It is a binary
 * search, so the items for which `isBefore` returns true must precede all others.
 */
export function lowerBound<T>(items: readonly T[], isBefore: (item: T) => boolean): number {
  let low = 0;
  let high = items.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    const item = items[middle];
    if (item !== undefined && isBefore(item)) low = middle + 1;
    else high = middle;
  }
  return low;
}
