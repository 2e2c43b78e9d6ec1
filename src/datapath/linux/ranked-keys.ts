/**
 * Keys with a rank, of which the lowest (`first` −1) or the highest (1) is wanted now and then: it is looked for when it is,
 * among all of them, and so are its equals. So that a table that never fills up pays for a `Map` and no more.
 */
export class RankedKeys {
  readonly #first: 1 | -1;
  readonly #ranks = new Map<string, number>();
  /** Keys that had the first rank when they were looked for; some may have left. */
  #queue: string[] = [];
  #queueRank = 0;

  constructor(first: 1 | -1) {
    this.#first = first;
  }

  get size(): number {
    return this.#ranks.size;
  }

  has(key: string): boolean {
    return this.#ranks.has(key);
  }

  keys(): IterableIterator<string> {
    return this.#ranks.keys();
  }

  set(key: string, rank: number): void {
    this.#ranks.set(key, rank);
    if (this.#queue.length > 0 && this.#comesBefore(rank, this.#queueRank)) this.#queue = [];
  }

  delete(key: string): boolean {
    return this.#ranks.delete(key);
  }

  /** The key that comes first, with its rank; undefined when there is none. */
  first(): { readonly key: string; readonly rank: number } | undefined {
    if (this.#peek() === undefined) this.#look();
    const key = this.#peek();
    return key === undefined ? undefined : { key, rank: this.#queueRank };
  }

  #peek(): string | undefined {
    for (;;) {
      const key = this.#queue.at(-1);
      if (key === undefined || this.#ranks.get(key) === this.#queueRank) return key;
      this.#queue.pop();
    }
  }

  #look(): void {
    for (const [key, rank] of this.#ranks) {
      if (this.#queue.length === 0 || this.#comesBefore(rank, this.#queueRank)) {
        this.#queue = [key];
        this.#queueRank = rank;
      } else if (rank === this.#queueRank) this.#queue.push(key);
    }
  }

  #comesBefore(a: number, b: number): boolean {
    return (a - b) * this.#first > 0;
  }
}
