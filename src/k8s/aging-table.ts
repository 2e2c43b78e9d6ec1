import { type ObjectName, ObjectTable } from './object-table.ts';

/**
 * Values by namespace and name, and which of them have not been set again since it has {@link AgingTable.age aged}: marks
 * that cost nothing for each value. Costs as an {@link ObjectTable}, and once more while there are old ones.
 */
export class AgingTable<V> {
  #fresh = new ObjectTable<V>();
  #old = new ObjectTable<V>();

  get size(): number {
    return this.#fresh.size + this.#old.size;
  }

  get(name: ObjectName): V | undefined {
    return this.#fresh.get(name) ?? (this.#old.size === 0 ? undefined : this.#old.get(name));
  }

  /** It is not old from now on. */
  set(name: ObjectName, value: V): void {
    if (this.#old.size > 0) this.#old.delete(name);
    this.#fresh.set(name, value);
  }

  delete(name: ObjectName): void {
    this.#fresh.delete(name);
    if (this.#old.size > 0) this.#old.delete(name);
  }

  /** All that is there is old from now on. */
  age(): void {
    if (this.#old.size === 0) this.#old = this.#fresh;
    else for (const [name, value] of this.#fresh.entries()) this.#old.set(name, value);
    this.#fresh = new ObjectTable();
  }

  /** What is old; as `ObjectTable.entries`, until it ages again. */
  old(): Generator<readonly [ObjectName, V], void, void> {
    return this.#old.entries();
  }
}
