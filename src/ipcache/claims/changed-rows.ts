import { PAGE_BITS, PAGE_ROWS } from '../../columns/int32-rows.ts';
import type { PrefixRegister } from '../../net/prefix.ts';
import type { CompleteClaim } from '../row-reader.ts';

const WORDS_PER_PAGE: number = PAGE_ROWS / 32;

/**
 * Receives the claims of the key with number `row`. The key has this number while it has claims; later another key may
 * get it. If `effective` is undefined, no key has the number, and `key` has no meaning. `key` is a reused register.
 */
export type RowReceiver = (
  row: number,
  key: Readonly<PrefixRegister>,
  effective: CompleteClaim | undefined,
  overruled: readonly CompleteClaim[],
) => void;

/** Reads the claims that changed. See `IPCache.trackClaims`. */
export interface ClaimTracker {
  /**
   * Passes at most `limit` keys to `receive` and returns their number: below `limit` if no changed key is left. A key
   * that changed repeatedly is read once, as it is now. Keys whose claims did not change may be among them.
   */
  read(limit: number, receive: RowReceiver): number;
  /** Passes the key with this number to `receive`, changed or not. */
  readRow(row: number, receive: RowReceiver): void;
  /** Marks the key with this number as changed. */
  mark(row: number): void;
  stop(): void;
}

/** A set of rows: one bit for each row, and one byte for each page of rows. Adding a row costs a few ns. */
export class ChangedRows {
  #bits: Int32Array;
  /** 1 for each page that may contain a row of the set. `take` reads pages until there is none. */
  #pages: Uint8Array;
  /** Number of ones in `#pages`. */
  #pageCount: number;
  /** The page that is read next. */
  #page = 0;

  /** @param limit the set first contains all rows below this number, rounded up to whole pages */
  constructor(limit: number) {
    this.#pageCount = Math.ceil(limit / PAGE_ROWS);
    this.#pages = new Uint8Array(this.#pageCount).fill(1);
    this.#bits = new Int32Array(this.#pageCount * WORDS_PER_PAGE).fill(-1);
  }

  add(row: number): void {
    const page = row >>> PAGE_BITS;
    if (page >= this.#pages.length) this.#reserve(page);
    const word = row >>> 5;
    this.#bits[word] = (this.#bits[word] ?? 0) | (1 << (row & 31));
    if (this.#pages[page] === 0) {
      this.#pages[page] = 1;
      this.#pageCount++;
    }
  }

  /**
   * Removes at most `limit` rows and passes each to `onRow`, which must not add rows. Returns their number: below
   * `limit` if none is left.
   */
  take(limit: number, onRow: (row: number) => void): number {
    let taken = 0;
    while (this.#pageCount > 0) {
      if (this.#page >= this.#pages.length) this.#page = 0;
      const page = this.#page;
      for (let word = page * WORDS_PER_PAGE; word < (page + 1) * WORDS_PER_PAGE; word++) {
        for (let bits = this.#bits[word] ?? 0; bits !== 0; bits = this.#bits[word] ?? 0) {
          if (taken === limit) return taken;
          this.#bits[word] = bits & (bits - 1); // clears the lowest bit
          taken++;
          onRow((word << 5) | (31 - Math.clz32(bits & -bits)));
        }
      }
      this.#pageCount -= this.#pages[page] ?? 0;
      this.#pages[page] = 0;
      this.#page++;
    }
    return taken;
  }

  #reserve(page: number): void {
    const pages = new Uint8Array(Math.max(page + 1, 2 * this.#pages.length));
    pages.set(this.#pages);
    this.#pages = pages;
    const bits = new Int32Array(pages.length * WORDS_PER_PAGE);
    bits.set(this.#bits);
    this.#bits = bits;
  }
}
