import { PAGE_BITS, PAGE_ROWS } from './int32-rows.ts';
import { SharedPages } from './shared-pages.ts';

const INDEX_MASK: number = PAGE_ROWS - 1;

/** A growing array of values or `undefined` that grows by whole pages and never copies more than one of them. */
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

  /** The same values; writes to either do not show in the other. Costs one word a page. */
  fork(): ObjectColumn<T> {
    return new ObjectColumn(this.#pages.fork());
  }

  /** Bytes held for the references, shared pages included. */
  get bytes(): number {
    return this.#pages.count * PAGE_ROWS * 8;
  }
}
