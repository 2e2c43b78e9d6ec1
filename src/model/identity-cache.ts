import { SortedMap } from '../base/sorted-map.ts';
import { formatLabels, type Labels } from './labels.ts';
import type { NumericIdentity } from './numeric-identity.ts';

/**
 * The identities of one cluster: number ↔ labels. A cluster keeps its cache over reconnects.
 *
 * Several numbers may have the same labels, for example while a cluster replaces one number by another.
 * `lookupByLabels` then returns the first number in the order of `compare`, by default the smallest.
 */
export class IdentityCache {
  readonly #compare: (a: NumericIdentity, b: NumericIdentity) => number;
  readonly #byID = new Map<
    number,
    { readonly id: NumericIdentity; readonly key: string; readonly labels: Labels }
  >();
  /** The number for each text of labels; a list if there are several numbers, which is rare. */
  readonly #byLabels = new Map<string, NumericIdentity | SortedMap<NumericIdentity, true>>();
  #changes = 0;

  /**
   * @param compare orders two numbers with the same labels; default: the smaller first. The order of two numbers must
   *   not change while both are in the cache
   */
  constructor(compare: (a: NumericIdentity, b: NumericIdentity) => number = (a, b) => a - b) {
    this.#compare = compare;
  }

  get size(): number {
    return this.#byID.size;
  }

  /** Increases with every change. */
  get changes(): number {
    return this.#changes;
  }

  lookupByID(id: number): Labels | undefined {
    return this.#byID.get(id)?.labels;
  }

  /** Returns the identity with exactly these labels. */
  lookupByLabels(labels: Labels): NumericIdentity | undefined {
    const found = this.#byLabels.get(formatLabels(labels));
    return typeof found === 'object' ? found.first : found;
  }

  /** Yields all identities with their labels, in any order. */
  *entries(): Generator<readonly [number, Labels]> {
    for (const [id, { labels }] of this.#byID) yield [id, labels];
  }

  /** Adds an identity, or replaces its labels. */
  upsert(id: NumericIdentity, labels: Labels): void {
    const key = formatLabels(labels);
    if (this.#byID.get(id)?.key === key) return;
    this.delete(id);
    this.#changes++;
    this.#byID.set(id, { id, key, labels });
    const others = this.#byLabels.get(key);
    if (others === undefined) this.#byLabels.set(key, id);
    else this.#byLabels.set(key, this.#listWith(others, id));
  }

  /** Removes an identity. Returns true if it was in the cache. */
  delete(id: number): boolean {
    const entry = this.#byID.get(id);
    if (entry === undefined) return false;
    this.#changes++;
    this.#byID.delete(id);
    const ids = this.#byLabels.get(entry.key);
    if (typeof ids === 'object') ids.delete(entry.id);
    if (typeof ids !== 'object' || ids.size === 0) this.#byLabels.delete(entry.key);
    return true;
  }

  clear(): void {
    this.#changes++;
    this.#byID.clear();
    this.#byLabels.clear();
  }

  /** Returns a list of `id` and the other numbers with its labels. */
  #listWith(
    others: NumericIdentity | SortedMap<NumericIdentity, true>,
    id: NumericIdentity,
  ): SortedMap<NumericIdentity, true> {
    const list = typeof others === 'object' ? others : new SortedMap<NumericIdentity, true>(this.#compare);
    if (typeof others !== 'object') list.set(others, true);
    list.set(id, true);
    return list;
  }
}
