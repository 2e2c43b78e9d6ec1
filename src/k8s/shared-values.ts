/** Distinct values that are remembered: more begin anew. */
const MOST = 4096;

/**
 * Gives one value for all that are equal, so that what thousands of objects say alike is in memory once. Remembers a
 * bounded number of them. For values that nothing changes.
 */
export class SharedValues<V> {
  readonly #values = new Map<string, V>();

  /** @param text says all of a value */
  share(text: string, value: V): V {
    const known = this.#values.get(text);
    if (known !== undefined) return known;
    if (this.#values.size >= MOST) this.#values.clear();
    this.#values.set(text, value);
    return value;
  }
}
