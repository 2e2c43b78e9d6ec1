/** Keys, each once, first in first out within their order, a small whole number. */
export class KeyQueue {
  readonly #lanes: (Lane | undefined)[] = [];
  size = 0;

  add(order: number, key: string): void {
    this.#lanes[order] ??= new Lane();
    if (this.#lanes[order].add(key)) this.size++;
  }

  /** Takes the first key of the lowest (`first` −1) or the highest (1) order. */
  take(first: 1 | -1): string | undefined {
    if (this.size === 0) return undefined;
    const isFull = (lane: Lane | undefined): boolean => lane !== undefined && lane.size > 0;
    const lane = first < 0 ? this.#lanes.find(isFull) : this.#lanes.findLast(isFull);
    this.size--;
    return lane?.take();
  }
}

class Lane {
  readonly #keys = new Set<string>();
  /** Goes on where it was: one that begins anew would pass over everything that has been taken. */
  #next: Iterator<string> | undefined;

  get size(): number {
    return this.#keys.size;
  }

  add(key: string): boolean {
    const before = this.#keys.size;
    return this.#keys.add(key).size > before;
  }

  take(): string | undefined {
    this.#next ??= this.#keys.values();
    const { value: key } = this.#next.next();
    if (key !== undefined) this.#keys.delete(key);
    if (this.#keys.size === 0) this.#next = undefined;
    return key;
  }
}
