import { SharedPages } from './shared-pages.ts';

// 2^10 rows per page, here and in `ObjectColumn`. Growth allocates at most 64 KiB at a time (stride 16), and the first
// write to a page after a fork copies the same amount, which takes a few µs. With twice as many pages, reads of a
// million rows took 5 to 10 % longer, because the page headers no longer fit into the cache.
export const PAGE_BITS = 10;
export const PAGE_ROWS: number = 1 << PAGE_BITS;
const ROW_MASK: number = PAGE_ROWS - 1;
const NO_PAGE: Int32Array = new Int32Array(0);

/**
 * A growing array of rows of `stride` 32-bit integers, initially 0. It grows by whole pages, so that no write is slow.
 * Rows are never released.
 */
export class Int32Rows {
  readonly stride: number;
  readonly #pages: SharedPages<Int32Array>;
  /** Initial rows of the first page, which doubles until it has `PAGE_ROWS`. */
  readonly #firstRows: number;

  /** @param firstRows initial rows of the first page, a power of two; low for many small tables */
  constructor(
    stride: number,
    pages: SharedPages<Int32Array> = new SharedPages(),
    firstRows: number = PAGE_ROWS,
  ) {
    this.stride = stride;
    this.#pages = pages;
    this.#firstRows = firstRows;
  }

  /** All rows are below this number. */
  get limit(): number {
    return this.#pages.count << PAGE_BITS;
  }

  /** Grows the array until `row` exists. */
  reserve(row: number): void {
    while (row >>> PAGE_BITS >= this.#pages.count) {
      const rows = this.#pages.count === 0 ? this.#firstRows : PAGE_ROWS;
      this.#pages.push(new Int32Array(rows * this.stride));
    }
    let first = this.#pages.at(0) ?? NO_PAGE;
    const words = Math.min(row + 1, PAGE_ROWS) * this.stride;
    while (first.length < words) {
      const longer = new Int32Array(2 * first.length);
      longer.set(first);
      this.#pages.replace(0, longer);
      first = longer;
    }
  }

  /** Returns the integer in `column` of `row`, or 0 if the row does not exist. */
  get(row: number, column: number): number {
    return this.#pages.at(row >>> PAGE_BITS)?.[(row & ROW_MASK) * this.stride + column] ?? 0;
  }

  /** Writes the low 32 bits of `value`. The row must be reserved. */
  set(row: number, column: number, value: number): void {
    const page = this.#pages.writable(row >>> PAGE_BITS);
    if (page !== undefined) page[(row & ROW_MASK) * this.stride + column] = value;
  }

  /** Returns the page of a row, to read several of its columns. Returns an empty page if the row does not exist. */
  pageOf(row: number): Readonly<Int32Array> {
    return this.#pages.at(row >>> PAGE_BITS) ?? NO_PAGE;
  }

  /** Returns the page of a row, to write several of its columns. */
  writablePageOf(row: number): Int32Array {
    return this.#pages.writable(row >>> PAGE_BITS) ?? NO_PAGE;
  }

  /** Returns the offset of the row in its page. */
  offsetOf(row: number): number {
    return (row & ROW_MASK) * this.stride;
  }

  /** Returns a copy with the same rows; later writes to either do not affect the other. Costs one word per page. */
  fork(): Int32Rows {
    return new Int32Rows(this.stride, this.#pages.fork(), this.#firstRows);
  }

  /** Returns true if the page of a row was not written since one of the arrays was forked from the other. */
  sharesPage(other: Int32Rows, row: number): boolean {
    return this.#pages.shares(other.#pages, row >>> PAGE_BITS);
  }

  /** Memory in bytes, shared pages included. */
  get bytes(): number {
    const others = Math.max(0, this.#pages.count - 1) * PAGE_ROWS * this.stride;
    return (this.#pages.at(0)?.byteLength ?? 0) + others * Int32Array.BYTES_PER_ELEMENT;
  }
}

const TWO_32 = 2 ** 32;

/** Returns the non-negative safe integer in the words at `at` (low) and `at + 1` (high) of a page. */
export function wideAt(page: Int32Array, at: number): number {
  return ((page[at + 1] ?? 0) >>> 0) * TWO_32 + ((page[at] ?? 0) >>> 0);
}

/** Stores a non-negative safe integer, which {@link wideAt} returns. */
export function setWideAt(page: Int32Array, at: number, value: number): void {
  const high = Math.floor(value / TWO_32);
  page[at] = value - high * TWO_32; // not `%`, which calls a function for doubles
  page[at + 1] = high;
}
