/** Keys, first in first out within their order, a small whole number. A key that is added again while it waits is there once. */
export class KeyQueue {
  readonly #lanes: Lane[] = [];

  /** At most so many: one that was added again may count twice. 0 only where there is none. */
  get size(): number {
    let size = 0;
    for (const lane of this.#lanes) size += lane.size;
    return size;
  }

  add(order: number, key: string): void {
    while (this.#lanes.length <= order) this.#lanes.push(new Lane());
    this.#lanes[order]?.add(key);
  }

  /** Takes the first key of the lowest (`first` −1) or the highest (1) order. */
  take(first: 1 | -1): string | undefined {
    const lanes = this.#lanes;
    for (let i = 0; i < lanes.length; i++) {
      const key = lanes[first < 0 ? i : lanes.length - 1 - i]?.take();
      if (key !== undefined) return key;
    }
    return undefined;
  }
}

/**
 * What is added goes to one set while another is taken from: nothing is deleted from a set, which costs as much as adding,
 * but for what was added again since.
 */
class Lane {
  #added = new Set<string>();
  #taken: Iterator<string> | undefined;
  #left = 0;

  get size(): number {
    return this.#added.size + this.#left;
  }

  add(key: string): void {
    this.#added.add(key);
  }

  take(): string | undefined {
    if (this.#left === 0) {
      if (this.#added.size === 0) return undefined;
      this.#left = this.#added.size;
      this.#taken = this.#added.values();
      this.#added = new Set();
    }
    const key = this.#taken?.next().value;
    if (--this.#left === 0) this.#taken = undefined;
    if (key !== undefined && this.#added.size > 0) this.#added.delete(key);
    return key;
  }
}
