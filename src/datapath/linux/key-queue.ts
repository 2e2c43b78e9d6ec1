import { type ListLink, RankedLists } from '../../base/keyed-queue.ts';

/** A queued key. */
interface RankedKey extends ListLink<RankedKey> {
  readonly key: string;
  rank: number;
}

/**
 * A queue of keys by rank, the lowest or the highest rank first, as the constructor determines; keys of the same rank
 * are first in, first out. No operation searches the keys.
 */
export class KeyQueue {
  readonly #entries = new Map<string, RankedKey>();
  readonly #lists: RankedLists<RankedKey>;

  constructor(first: 'lowest' | 'highest') {
    this.#lists = new RankedLists((a, b) => (first === 'lowest' ? a - b : b - a));
  }

  get size(): number {
    return this.#entries.size;
  }

  has(key: string): boolean {
    return this.#entries.has(key);
  }

  /** Sets the rank of a key. A key that is new or has another rank becomes the last of its rank. */
  set(key: string, rank: number): void {
    const known = this.#entries.get(key);
    if (known?.rank === rank) return;
    if (known !== undefined) this.#lists.remove(known.rank, known);
    const entry = known ?? { key, rank, previous: undefined, next: undefined };
    entry.rank = rank;
    if (known === undefined) this.#entries.set(key, entry);
    this.#lists.append(rank, entry);
  }

  /** Removes a key. Returns true if it was queued. */
  delete(key: string): boolean {
    const entry = this.#entries.get(key);
    if (entry === undefined) return false;
    this.#lists.remove(entry.rank, entry);
    return this.#entries.delete(key);
  }

  /** Returns the first key with its rank; undefined if the queue is empty. */
  first(): { readonly key: string; readonly rank: number } | undefined {
    return this.#lists.first;
  }

  /** Removes and returns the first key. */
  shift(): string | undefined {
    const key = this.first()?.key;
    if (key !== undefined) this.delete(key);
    return key;
  }
}
