import { SortedMap } from './sorted-map.ts';

/** The links of a member of a {@link LinkedList}. A member is in at most one list. */
export interface ListLink<L> {
  previous: L | undefined;
  next: L | undefined;
}

/** A doubly linked list. The members contain the links, so that a member is removed from any place in constant time. */
export class LinkedList<L extends ListLink<L>> {
  first: L | undefined;
  #last: L | undefined;

  append(link: L): void {
    link.previous = this.#last;
    link.next = undefined;
    if (this.#last === undefined) this.first = link;
    else this.#last.next = link;
    this.#last = link;
  }

  /**
   * Removes a link of this list. The link no longer refers to other members: otherwise, one removed link in the old
   * generation of the heap would keep all later members in memory, and move them there, until its next collection.
   */
  remove(link: L): void {
    const { previous, next } = link;
    if (previous === undefined) this.first = next;
    else previous.next = next;
    if (next === undefined) this.#last = previous;
    else next.previous = previous;
    link.previous = undefined;
    link.next = undefined;
  }

  clear(): void {
    this.first = undefined;
    this.#last = undefined;
  }

  /** Iterates over the members in order. The loop may remove the current member. */
  *[Symbol.iterator](): Generator<L, void, void> {
    for (let link = this.first; link !== undefined; ) {
      const { next } = link;
      yield link;
      const isMember = link === this.first || link.previous !== undefined;
      link = isMember ? link.next : next;
    }
  }
}

/**
 * Lists of members by rank. Members of the same rank are first in, first out. An operation searches the distinct ranks
 * by bisection, but no members.
 */
export class RankedLists<L extends ListLink<L>> {
  /** No list is empty. */
  readonly #lists: SortedMap<number, LinkedList<L>>;

  /** @param compare the order of the ranks */
  constructor(compare: (a: number, b: number) => number) {
    this.#lists = new SortedMap(compare);
  }

  /** The first rank that has members. */
  get firstRank(): number | undefined {
    return this.#lists.first;
  }

  /** The first member of the first rank. */
  get first(): L | undefined {
    const rank = this.#lists.first;
    return rank === undefined ? undefined : this.#lists.get(rank)?.first;
  }

  append(rank: number, member: L): void {
    let list = this.#lists.get(rank);
    if (list === undefined) {
      list = new LinkedList();
      this.#lists.set(rank, list);
    }
    list.append(member);
  }

  /** Removes a member of this rank. */
  remove(rank: number, member: L): void {
    const list = this.#lists.get(rank);
    list?.remove(member);
    if (list?.first === undefined) this.#lists.delete(rank);
  }

  clear(): void {
    this.#lists.clear();
  }

  /** Iterates over the members, those of the first rank first. The lists must not change during the iteration. */
  *[Symbol.iterator](): Generator<L, void, void> {
    const { first } = this.#lists;
    if (first !== undefined) for (const [, list] of this.#lists.from(first)) yield* list;
  }
}

interface QueuedKey<K, V> extends ListLink<QueuedKey<K, V>> {
  readonly key: K;
  value: V;
}

/**
 * A first-in, first-out queue of distinct keys, each with a value. Every operation except iteration takes constant
 * time. A `Map` alone does not suffice: after many deletes of the first key, reading the first key takes linear time,
 * because each new iterator skips the slots of the deleted keys.
 *
 *     #list ─► a ◄─► b ◄─► c        #entries: key → entry
 */
export class KeyedQueue<K, V = undefined> {
  readonly #entries = new Map<K, QueuedKey<K, V>>();
  readonly #list = new LinkedList<QueuedKey<K, V>>();

  get size(): number {
    return this.#entries.size;
  }

  /** The first key of the queue; undefined if it is empty. */
  get first(): K | undefined {
    return this.#list.first?.key;
  }

  has(key: K): boolean {
    return this.#entries.has(key);
  }

  get(key: K): V | undefined {
    return this.#entries.get(key)?.value;
  }

  /** Stores a value. A new key is appended to the queue; a queued key keeps its place. */
  set(key: K, value: V): void {
    const known = this.#entries.get(key);
    if (known !== undefined) {
      known.value = value;
      return;
    }
    const entry: QueuedKey<K, V> = { key, value, previous: undefined, next: undefined };
    this.#entries.set(key, entry);
    this.#list.append(entry);
  }

  /** Removes a key from any place of the queue. Returns true if it was queued. */
  delete(key: K): boolean {
    const entry = this.#entries.get(key);
    if (entry === undefined) return false;
    this.#remove(entry);
    return true;
  }

  /** Removes and returns the first key of the queue with its value. Returns undefined if the queue is empty. */
  shift(): readonly [key: K, value: V] | undefined {
    const { first } = this.#list;
    if (first === undefined) return undefined;
    this.#remove(first);
    return [first.key, first.value];
  }

  clear(): void {
    this.#entries.clear();
    this.#list.clear();
  }

  /** Iterates over keys and values in the order of the queue. The loop may delete the current key. */
  *[Symbol.iterator](): Generator<readonly [key: K, value: V], void, void> {
    for (const { key, value } of this.#list) yield [key, value];
  }

  /** Iterates over the values in the order of the queue. */
  *values(): Generator<V, void, void> {
    for (const { value } of this.#list) yield value;
  }

  #remove(entry: QueuedKey<K, V>): void {
    this.#entries.delete(entry.key);
    this.#list.remove(entry);
  }
}
