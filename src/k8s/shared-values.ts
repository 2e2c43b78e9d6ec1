/** Maximum number of stored values. When it is reached, all values are removed. */
const MAX_VALUES = 4096;

/**
 * Stores one object for all equal values, because thousands of objects may have the same value. The number of stored
 * values is limited. Values must be immutable.
 */
export class SharedValues<V> {
  readonly #values = new Map<string, V>();

  get(text: string): V | undefined {
    return this.#values.get(text);
  }

  /** @param text equal if and only if the values are equal */
  share(text: string, value: V): V {
    const known = this.#values.get(text);
    if (known !== undefined) return known;
    if (this.#values.size >= MAX_VALUES) this.#values.clear();
    this.#values.set(text, value);
    return value;
  }
}
