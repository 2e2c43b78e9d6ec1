/**
 * Keys with a rank. `first()` returns a key with the lowest or the highest rank, as the constructor determines. A call
 * searches all keys, and queues those of equal rank for the next calls. So a table that is never full pays only for a
 * `Map`.
 */
export class RankedKeys {
  readonly #first: 'lowest' | 'highest';
  readonly #ranks = new Map<string, number>();
  /** Keys that had the first rank at the last search. Some may have been deleted since. */
  #queue: string[] = [];
  #queueRank = 0;

  constructor(first: 'lowest' | 'highest') {
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

  /** Returns the key with the first rank; undefined if there is none. */
  first(): { readonly key: string; readonly rank: number } | undefined {
    if (this.#peek() === undefined) this.#findFirst();
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

  #findFirst(): void {
    for (const [key, rank] of this.#ranks) {
      if (this.#queue.length === 0 || this.#comesBefore(rank, this.#queueRank)) {
        this.#queue = [key];
        this.#queueRank = rank;
      } else if (rank === this.#queueRank) this.#queue.push(key);
    }
  }

  #comesBefore(a: number, b: number): boolean {
    return this.#first === 'lowest' ? a < b : a > b;
  }
}
