import { LinkedList, type ListLink } from '../../base/keyed-queue.ts';
import { SortedMap } from '../../base/sorted-map.ts';

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
  /** The keys of each rank. No list is empty. */
  readonly #lists: SortedMap<number, LinkedList<RankedKey>>;

  constructor(first: 'lowest' | 'highest') {
    this.#lists = new SortedMap((a, b) => (first === 'lowest' ? a - b : b - a));
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
    if (known !== undefined) this.#unlink(known);
    const entry = known ?? { key, rank, previous: undefined, next: undefined };
    entry.rank = rank;
    if (known === undefined) this.#entries.set(key, entry);
    let list = this.#lists.get(rank);
    if (list === undefined) {
      list = new LinkedList();
      this.#lists.set(rank, list);
    }
    list.append(entry);
  }

  /** Removes a key. Returns true if it was queued. */
  delete(key: string): boolean {
    const entry = this.#entries.get(key);
    if (entry === undefined) return false;
    this.#unlink(entry);
    return this.#entries.delete(key);
  }

  /** Returns the first key with its rank; undefined if the queue is empty. */
  first(): { readonly key: string; readonly rank: number } | undefined {
    const { first: rank } = this.#lists;
    return rank === undefined ? undefined : this.#lists.get(rank)?.first;
  }

  /** Removes and returns the first key. */
  shift(): string | undefined {
    const key = this.first()?.key;
    if (key !== undefined) this.delete(key);
    return key;
  }

  #unlink(entry: RankedKey): void {
    const list = this.#lists.get(entry.rank);
    list?.remove(entry);
    if (list?.first === undefined) this.#lists.delete(entry.rank);
  }
}
