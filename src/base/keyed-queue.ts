interface Entry<K, V> {
  readonly key: K;
  value: V;
  previous: Entry<K, V> | undefined;
  next: Entry<K, V> | undefined;
}

/**
 * A first-in, first-out queue of distinct keys, each with a value. Every operation except iteration takes constant time.
 *
 * A `Map` does not, if its first key is deleted repeatedly: each new iterator skips the slots of all keys that were deleted since
 * the map last changed its capacity.
 *
 *     #first ─► a ◄─► b ◄─► c ◄─ #last        #entries: key → entry
 */
export class KeyedQueue<K, V = undefined> {
  readonly #entries = new Map<K, Entry<K, V>>();
  #first: Entry<K, V> | undefined;
  #last: Entry<K, V> | undefined;

  get size(): number {
    return this.#entries.size;
  }

  /** The first key of the queue; undefined if it is empty. */
  get first(): K | undefined {
    return this.#first?.key;
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
    const entry: Entry<K, V> = { key, value, previous: this.#last, next: undefined };
    this.#entries.set(key, entry);
    if (this.#last === undefined) this.#first = entry;
    else this.#last.next = entry;
    this.#last = entry;
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
    const first = this.#first;
    if (first === undefined) return undefined;
    this.#remove(first);
    return [first.key, first.value];
  }

  clear(): void {
    this.#entries.clear();
    this.#first = undefined;
    this.#last = undefined;
  }

  /** Iterates over keys and values in the order of the queue. The loop may delete the current key. */
  *[Symbol.iterator](): Generator<readonly [key: K, value: V], void, void> {
    for (let entry = this.#first; entry !== undefined; entry = entry.next) yield [entry.key, entry.value];
  }

  /** Iterates over the values in the order of the queue. */
  *values(): Generator<V, void, void> {
    for (let entry = this.#first; entry !== undefined; entry = entry.next) yield entry.value;
  }

  #remove(entry: Entry<K, V>): void {
    const { key, previous, next } = entry;
    this.#entries.delete(key);
    if (previous === undefined) this.#first = next;
    else previous.next = next;
    if (next === undefined) this.#last = previous;
    else next.previous = previous;
  }
}
