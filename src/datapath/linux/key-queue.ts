/** The keys of one order, and an iterator whose next key is the first of them. */
interface Lane {
  readonly keys: Set<string>;
  /** Kept, because a new iterator would step over the slots of all keys deleted before. */
  readonly first: Iterator<string, undefined>;
}

/** A queue of distinct keys by order, a small integer; keys of the same order are first in, first out. */
export class KeyQueue {
  readonly #lanes: Lane[] = [];

  get size(): number {
    let size = 0;
    for (const { keys } of this.#lanes) size += keys.size;
    return size;
  }

  add(order: number, key: string): void {
    while (this.#lanes.length <= order) {
      const keys = new Set<string>();
      this.#lanes.push({ keys, first: keys.values() });
    }
    this.#lanes[order]?.keys.add(key);
  }

  /** Removes and returns the first key of the lowest or the highest order. */
  shift(from: 'lowest' | 'highest'): string | undefined {
    const lane = from === 'lowest' ? this.#lanes.find(isFilled) : this.#lanes.findLast(isFilled);
    const key = lane?.first.next().value;
    if (key !== undefined) lane?.keys.delete(key);
    return key;
  }
}

function isFilled({ keys }: Lane): boolean {
  return keys.size > 0;
}
