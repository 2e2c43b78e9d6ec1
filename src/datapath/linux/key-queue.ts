/**
 * A priority queue of keys. The priority (`order`) is a small integer; keys of the same order are first in, first out.
 * A queued key added again stays queued once.
 */
export class KeyQueue {
  readonly #lanes: Lane[] = [];

  /**
   * Upper limit of the number of keys, because a key added again may count twice. 0 only if the queue is
   * empty.
   */
  get size(): number {
    let size = 0;
    for (const lane of this.#lanes) size += lane.size;
    return size;
  }

  add(order: number, key: string): void {
    while (this.#lanes.length <= order) this.#lanes.push(new Lane());
    this.#lanes[order]?.add(key);
  }

  /** Removes and returns the first key of the lowest or the highest order. */
  shift(first: 'lowest' | 'highest'): string | undefined {
    const lanes = this.#lanes;
    for (let i = 0; i < lanes.length; i++) {
      const key = lanes[first === 'lowest' ? i : lanes.length - 1 - i]?.shift();
      if (key !== undefined) return key;
    }
    return undefined;
  }
}

/**
 * The keys of one order. New keys are added to one set, and keys are removed by iterating over another one. They are
 * not deleted from that set, which would cost as much as adding. Only keys added again since are deleted.
 */
class Lane {
  #added = new Set<string>();
  #iterator: Iterator<string> | undefined;
  #remaining = 0;

  get size(): number {
    return this.#added.size + this.#remaining;
  }

  add(key: string): void {
    this.#added.add(key);
  }

  shift(): string | undefined {
    if (this.#remaining === 0) {
      if (this.#added.size === 0) return undefined;
      this.#remaining = this.#added.size;
      this.#iterator = this.#added.values();
      this.#added = new Set();
    }
    const key = this.#iterator?.next().value;
    if (--this.#remaining === 0) this.#iterator = undefined;
    if (key !== undefined && this.#added.size > 0) this.#added.delete(key);
    return key;
  }
}
