import { PAGE_BITS, PAGE_ROWS } from './int32-rows.ts';
import { SharedPages } from './shared-pages.ts';

const INDEX_MASK: number = PAGE_ROWS - 1;

/** A growing array of values or `undefined`. It grows by whole pages and copies at most one page at a time. */
export class ObjectColumn<T extends object | string> {
  readonly #pages: SharedPages<(T | undefined)[]>;

  constructor(pages: SharedPages<(T | undefined)[]> = new SharedPages()) {
    this.#pages = pages;
  }

  get(index: number): T | undefined {
    return this.#pages.at(index >>> PAGE_BITS)?.[index & INDEX_MASK];
  }

  set(index: number, value: T | undefined): void {
    const at = index >>> PAGE_BITS;
    if (at >= this.#pages.count) {
      if (value === undefined) return;
      while (at >= this.#pages.count) this.#pages.push(new Array<T | undefined>(PAGE_ROWS).fill(undefined));
    }
    const page = this.#pages.writable(at);
    if (page !== undefined) page[index & INDEX_MASK] = value;
  }

  /** Returns a copy with the same values; later writes to either do not affect the other. Costs one word per page. */
  fork(): ObjectColumn<T> {
    return new ObjectColumn(this.#pages.fork());
  }

  /** Number of bytes of the references, shared pages included. */
  get bytes(): number {
    return this.#pages.count * PAGE_ROWS * 8;
  }
}
