import { formatLabels, type Labels } from './labels.ts';
import type { NumericIdentity } from './numeric-identity.ts';

/**
 * The identities of one cluster: number ↔ labels. One for each cluster for as long as that cluster is known:
 * a reconnect goes on with it, so that nothing reads an abandoned copy and none is leaked.
 *
 * Two numbers may stand for the same labels while a cluster replaces one by the other; the smaller one is given, or what
 * the cluster has another order for, the first.
 */
export class RemoteIdentityCache {
  readonly #compare: (a: NumericIdentity, b: NumericIdentity) => number;
  readonly #byID = new Map<number, { readonly key: string; readonly labels: Labels }>();
  /** In order. */
  readonly #byLabels = new Map<string, NumericIdentity[]>();
  #changes = 0;

  /** @param compare which of two numbers with the same labels comes first; default: the smaller */
  constructor(compare: (a: NumericIdentity, b: NumericIdentity) => number = (a, b) => a - b) {
    this.#compare = compare;
  }

  get size(): number {
    return this.#byID.size;
  }

  /** Goes up with every change. */
  get changes(): number {
    return this.#changes;
  }

  /** The labels behind an identity. */
  lookupByID(id: number): Labels | undefined {
    return this.#byID.get(id)?.labels;
  }

  /** The identity of exactly these labels. */
  lookupByLabels(labels: Labels): NumericIdentity | undefined {
    return this.#byLabels.get(formatLabels(labels))?.[0];
  }

  /** Every identity with its labels, in no particular order. */
  *entries(): Generator<readonly [number, Labels]> {
    for (const [id, { labels }] of this.#byID) yield [id, labels];
  }

  upsert(id: NumericIdentity, labels: Labels): void {
    const key = formatLabels(labels);
    if (this.#byID.get(id)?.key === key) return;
    this.delete(id);
    this.#changes++;
    this.#byID.set(id, { key, labels });
    const ids = this.#byLabels.get(key);
    if (ids === undefined) this.#byLabels.set(key, [id]);
    else ids.splice(this.#placeAmong(ids, id), 0, id);
  }

  /** True when the identity was known. */
  delete(id: number): boolean {
    const entry = this.#byID.get(id);
    if (entry === undefined) return false;
    this.#changes++;
    this.#byID.delete(id);
    const ids: number[] = this.#byLabels.get(entry.key) ?? [];
    ids.splice(ids.indexOf(id), 1);
    if (ids.length === 0) this.#byLabels.delete(entry.key);
    return true;
  }

  clear(): void {
    this.#changes++;
    this.#byID.clear();
    this.#byLabels.clear();
  }

  /** In few steps: a cluster may give all of its numbers to the same labels. */
  #placeAmong(ids: readonly NumericIdentity[], id: NumericIdentity): number {
    let low = 0;
    let high = ids.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (this.#compare(ids[middle] ?? id, id) < 0) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}
