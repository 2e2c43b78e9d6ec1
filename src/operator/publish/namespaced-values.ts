/** Number of values moved in one step; a step takes about 1 ms. */
const VALUES_PER_STEP = 256;

interface ValueSets<T> {
  readonly exported: Set<T>;
  readonly withheld: Set<T>;
}

export interface NamespacedValuesOptions<T> {
  /** Returns the namespace of a value; undefined if the value is always exported. */
  readonly namespaceOf: (value: T) => string | undefined;
  /** Number of values moved in one step. Default 256. */
  readonly valuesPerStep?: number | undefined;
  /**
   * Returns true if the values of a namespace are exported. After it has changed, {@link NamespacedValues.review} is
   * called.
   */
  readonly isExported: (namespace: string) => boolean;
  /** Receives the changes of exported values. At least one of the two arguments is defined. */
  readonly change: (current: T | undefined, previous: T | undefined) => void;
}

/**
 * Passes on only the values of exported namespaces. Stores all values by namespace, so that the cost of a change of a
 * namespace depends only on the number of its values.
 */
export class NamespacedValues<T extends object> {
  readonly #options: NamespacedValuesOptions<T>;
  readonly #namespaces = new Map<string, ValueSets<T>>();

  constructor(options: NamespacedValuesOptions<T>) {
    this.#options = options;
  }

  /** Replaces a value. `previous` must be the value of the previous call for the same object. */
  change(current: T | undefined, previous: T | undefined): void {
    const wasExported = previous !== undefined && this.#remove(previous);
    const isExported = current !== undefined && this.#add(current);
    if (wasExported || isExported)
      this.#options.change(isExported ? current : undefined, wasExported ? previous : undefined);
  }

  count(namespace: string): number {
    const values = this.#namespaces.get(namespace);
    return values === undefined ? 0 : values.exported.size + values.withheld.size;
  }

  /** Passes on or withdraws the values of a namespace, in steps. Steps of several calls may alternate. */
  *review(namespace: string): Generator<undefined, void, void> {
    const values = this.#namespaces.get(namespace);
    if (values === undefined) return;
    const { exported, withheld } = values;
    // One iterator of each set for all steps, because a new one passes over the places of deleted values.
    const [toExport, toWithhold] = [withheld.values(), exported.values()];
    const { valuesPerStep = VALUES_PER_STEP } = this.#options;
    for (;;) {
      const isExported = this.#options.isExported(namespace);
      const [from, to, moves] = isExported
        ? [withheld, exported, toExport]
        : [exported, withheld, toWithhold];
      for (let moved = 0; moved < valuesPerStep; moved++) {
        const next = moves.next();
        if (next.done === true) return;
        from.delete(next.value);
        to.add(next.value);
        this.#options.change(isExported ? next.value : undefined, isExported ? undefined : next.value);
      }
      if (from.size === 0) return;
      yield;
    }
  }

  /** Removes a value. Returns true if it was exported. */
  #remove(value: T): boolean {
    const namespace = this.#options.namespaceOf(value);
    if (namespace === undefined) return true;
    const values = this.#namespaces.get(namespace);
    const wasExported = values?.exported.delete(value) === true;
    values?.withheld.delete(value);
    if (values?.exported.size === 0 && values.withheld.size === 0) this.#namespaces.delete(namespace);
    return wasExported;
  }

  /** Adds a value. Returns true if it is exported. */
  #add(value: T): boolean {
    const namespace = this.#options.namespaceOf(value);
    if (namespace === undefined) return true;
    const isExported = this.#options.isExported(namespace);
    const values = this.#namespaces.get(namespace) ?? { exported: new Set(), withheld: new Set() };
    (isExported ? values.exported : values.withheld).add(value);
    this.#namespaces.set(namespace, values);
    return isExported;
  }
}
