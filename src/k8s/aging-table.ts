import { type ObjectName, ObjectTable } from './object-table.ts';

/**
 * Values by namespace and name. {@link AgingTable.age} marks all values as old; `set` removes the mark. The marks take
 * no memory per value. While old values exist, an access costs twice as much as in an {@link ObjectTable}, otherwise
 * the same.
 */
export class AgingTable<V> {
  #fresh = new ObjectTable<V>();
  #old = new ObjectTable<V>();

  get size(): number {
    return this.#fresh.size + this.#old.size;
  }

  /** Returns the number of values that are not old. */
  get fresh(): number {
    return this.#fresh.size;
  }

  get(name: ObjectName): V | undefined {
    return this.#fresh.get(name) ?? (this.#old.size === 0 ? undefined : this.#old.get(name));
  }

  /** Sets a value and removes its mark. */
  set(name: ObjectName, value: V): void {
    if (this.#old.size > 0) this.#old.delete(name);
    this.#fresh.set(name, value);
  }

  delete(name: ObjectName): void {
    this.#fresh.delete(name);
    if (this.#old.size > 0) this.#old.delete(name);
  }

  /** Marks all values as old. */
  age(): void {
    if (this.#old.size === 0) this.#old = this.#fresh;
    else for (const [name, value] of this.#fresh.entries()) this.#old.set(name, value);
    this.#fresh = new ObjectTable();
  }

  /**
   * Iterates over the old values, with the guarantees of `ObjectTable.entries`. Must not be continued after the next
   * call of `age`, which may add values to the iteration.
   */
  oldEntries(): Generator<readonly [ObjectName, V], void, void> {
    return this.#old.entries();
  }
}
