/** Name of an object of one kind. Cluster-scoped objects have no namespace. */
export interface ObjectName {
  readonly namespace?: string | undefined;
  readonly name: string;
}

/**
 * A map of values by namespace and name, in two levels: a combined key would cost one more string for each object. An
 * access is two lookups in a `Map`.
 */
export class ObjectTable<V> {
  readonly #namespaces = new Map<string, Map<string, V>>();
  #size = 0;

  get size(): number {
    return this.#size;
  }

  get({ namespace = '', name }: ObjectName): V | undefined {
    return this.#namespaces.get(namespace)?.get(name);
  }

  set({ namespace = '', name }: ObjectName, value: V): void {
    let values = this.#namespaces.get(namespace);
    if (values === undefined) {
      values = new Map();
      this.#namespaces.set(namespace, values);
    }
    this.#size -= values.size;
    values.set(name, value);
    this.#size += values.size;
  }

  delete({ namespace = '', name }: ObjectName): void {
    const values = this.#namespaces.get(namespace);
    if (values?.delete(name) !== true) return;
    this.#size--;
    if (values.size === 0) this.#namespaces.delete(namespace);
  }

  /** Iterates in any order. As in a `Map`, values may be set and deleted during the iteration. */
  *entries(): Generator<readonly [ObjectName, V], void, void> {
    for (const [namespace, values] of this.#namespaces)
      for (const [name, value] of values) yield [{ namespace, name }, value];
  }
}
