import type { Backend, OfferedBackends } from './backend.ts';

/**
 * The backends of one version of an offer, to be matched with those of another: nearly all are listed in the same
 * order, so both are walked side by side, without a lookup. From the first one that is not where it was, what is left
 * is looked up.
 */
export class InStep {
  readonly #walk: IterableIterator<Backend>;
  #next: Backend | undefined;
  /** Those not taken, by address, once a lookup was needed. */
  #left: Map<string, Backend> | undefined;

  constructor(offered: OfferedBackends) {
    this.#walk = offered.values();
    this.#advance();
  }

  /** The backend of that address; each is given once. */
  take(address: string): Backend | undefined {
    const next = this.#next;
    if (next?.address === address) {
      this.#advance();
      return next;
    }
    if (next !== undefined) this.#index(next);
    const found = this.#left?.get(address);
    if (found !== undefined) this.#left?.delete(address);
    return found;
  }

  /** Those that were not taken. Ends the walk. */
  *left(): Generator<Backend, void, void> {
    if (this.#next !== undefined) yield this.#next;
    yield* this.#left?.values() ?? this.#walk;
  }

  #advance(): void {
    const { done, value } = this.#walk.next();
    this.#next = done === true ? undefined : value;
  }

  #index(first: Backend): void {
    const left = new Map([[first.address, first]]);
    for (const backend of this.#walk) left.set(backend.address, backend);
    this.#next = undefined;
    this.#left = left;
  }
}
