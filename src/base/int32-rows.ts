import { SharedPages } from './shared-pages.ts';

// 2^10 rows a page, here and in `ObjectColumn`: growing allocates at most 64 KiB at a time (stride 16), and the first write
// to a page after a fork copies as much, a few µs. Twice as many pages have twice as many headers, and of a million rows
// these are not near any more: reads took 5 to 10 % longer.
export const PAGE_BITS = 10;
export const PAGE_ROWS: number = 1 << PAGE_BITS;
const ROW_MASK: number = PAGE_ROWS - 1;
const NO_PAGE: Int32Array = new Int32Array(0);

/**
 * A growing array of rows of `stride` 32-bit integers, all zero at first. It grows by whole pages, so no write is ever
 * slow. Rows are never given back.
 */
export class Int32Rows {
  readonly stride: number;
  readonly #pages: SharedPages<Int32Array>;

  constructor(stride: number, pages: SharedPages<Int32Array> = new SharedPages()) {
    this.stride = stride;
    this.#pages = pages;
  }

  /** How many rows there are. */
  get limit(): number {
    return this.#pages.count << PAGE_BITS;
  }

  /** Makes sure that `row` exists. */
  reserve(row: number): void {
    while (row >>> PAGE_BITS >= this.#pages.count) this.#pages.push(new Int32Array(PAGE_ROWS * this.stride));
  }

  /** The integer in `column` of `row`; 0 for a row that does not exist. */
  get(row: number, column: number): number {
    return this.#pages.at(row >>> PAGE_BITS)?.[(row & ROW_MASK) * this.stride + column] ?? 0;
  }

  /** Writes the low 32 bits of `value`; the row must have been reserved. */
  set(row: number, column: number, value: number): void {
    const page = this.#pages.writable(row >>> PAGE_BITS);
    if (page !== undefined) page[(row & ROW_MASK) * this.stride + column] = value;
  }

  /** The page that holds a row, to read several columns of it; empty for a row that does not exist. */
  pageOf(row: number): Readonly<Int32Array> {
    return this.#pages.at(row >>> PAGE_BITS) ?? NO_PAGE;
  }

  /** The page that holds a row, to write several columns of it. */
  writablePageOf(row: number): Int32Array {
    return this.#pages.writable(row >>> PAGE_BITS) ?? NO_PAGE;
  }

  /** Where the row begins in its page. */
  offsetOf(row: number): number {
    return (row & ROW_MASK) * this.stride;
  }

  /** The same rows; writes to either do not show in the other. Costs one word a page. */
  fork(): Int32Rows {
    return new Int32Rows(this.stride, this.#pages.fork());
  }

  /** Whether the page of a row has not been written since one was forked from the other. */
  sharesPage(other: Int32Rows, row: number): boolean {
    return this.#pages.shares(other.#pages, row >>> PAGE_BITS);
  }

  /** Bytes held, shared pages included. */
  get bytes(): number {
    return this.#pages.count * PAGE_ROWS * this.stride * Int32Array.BYTES_PER_ELEMENT;
  }
}
