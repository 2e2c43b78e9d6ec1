const NO_VALUES: ReadonlySet<never> = new Set();

/** Sets of values by key. A key without values takes no memory. */
export class SetMap<V> {
  readonly #sets = new Map<string, Set<V>>();

  /** The keys with values. Keys may be added and deleted during the iteration, as in a `Map`. */
  keys(): Iterable<string> {
    return this.#sets.keys();
  }

  get(key: string): ReadonlySet<V> {
    return this.#sets.get(key) ?? NO_VALUES;
  }

  add(key: string, value: V): void {
    const values = this.#sets.get(key);
    if (values === undefined) this.#sets.set(key, new Set([value]));
    else values.add(value);
  }

  delete(key: string, value: V): void {
    const values = this.#sets.get(key);
    values?.delete(value);
    if (values?.size === 0) this.#sets.delete(key);
  }

  /** Deletes all values of a key, and returns them. */
  take(key: string): ReadonlySet<V> {
    const values = this.get(key);
    this.#sets.delete(key);
    return values;
  }

  clear(): void {
    this.#sets.clear();
  }
}
