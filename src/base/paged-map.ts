import { PAGE_BITS } from './int32-rows.ts';

/**
 * A map from small integers that keeps neighbours in a page, a `Map` of its own. One `Map` of millions holds everybody up: it
 * is copied whole when it grows or shrinks, and who asks for its first key waits until it has passed over all deleted ones.
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

  /** Whether it was there. */
  delete(index: number): boolean {
    const page = this.#pages.get(index >>> PAGE_BITS);
    if (page?.delete(index) !== true) return false;
    this.#size--;
    if (page.size === 0) this.#pages.delete(index >>> PAGE_BITS);
    return true;
  }

  /** The integers, in no order that is promised. They may be deleted and added meanwhile, as in a `Map`. */
  *keys(): Generator<number, void, void> {
    for (const page of this.#pages.values()) yield* page.keys();
  }
}
