import { PAGE_BITS } from './int32-rows.ts';

/**
 * A map whose keys are small integers. Neighbouring keys are stored in one page, and each page is a `Map`. A single
 * `Map` with millions of keys blocks the event loop, because it is copied as a whole when it grows or shrinks, and
 * because a read of the first key skips all deleted keys.
 */
export class PagedMap<V> {
  readonly #pages = new Map<number, Map<number, V>>();
  #size = 0;

  get size(): number {
    return this.#size;
  }

  get(index: number): V | undefined {
    return this.#pages.get(index >>> PAGE_BITS)?.get(index);
  }

  set(index: number, value: V): void {
    const page = this.#pages.get(index >>> PAGE_BITS);
    if (page === undefined) {
      this.#pages.set(index >>> PAGE_BITS, new Map([[index, value]]));
      this.#size++;
      return;
    }
    this.#size -= page.size;
    page.set(index, value);
    this.#size += page.size;
  }

  /** Removes a key. Returns true if the key existed. */
  delete(index: number): boolean {
    const page = this.#pages.get(index >>> PAGE_BITS);
    if (page?.delete(index) !== true) return false;
    this.#size--;
    if (page.size === 0) this.#pages.delete(index >>> PAGE_BITS);
    return true;
  }

  /** Iterates over the keys in any order. Keys may be added and deleted during the iteration, as in a `Map`. */
  *keys(): Generator<number, void, void> {
    for (const page of this.#pages.values()) yield* page.keys();
  }
}
