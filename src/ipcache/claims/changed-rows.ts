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
   * Passes at most `limit` keys to `receive` and returns their number. If it is below `limit`, no changed key is left.
   * A key that changed repeatedly is read once, as it is now. Keys whose claims did not change may be among them.
   */
  read(limit: number, receive: RowReceiver): number;
  /** Passes the key with the number `row` to `receive`, changed or not. */
  readRow(row: number, receive: RowReceiver): void;
  /** Marks the key with the number `row` as changed. */
  mark(row: number): void;
  stop(): void;
}

/** A set of rows: one bit for each row, and one byte for each page of rows. Adding a row costs a few ns. */
export class ChangedRows {
  #bits: Int32Array;
  /** 1 for each page that may contain a row of the set. `take` reads pages until there is none. */
  #pageMarks: Uint8Array;
  /** Number of pages whose mark is 1. */
  #markedPages: number;
  /** The page at which the next `take` begins. */
  #nextPage = 0;

  /** @param rowLimit the set first contains all rows below this number, rounded up to whole pages */
  constructor(rowLimit: number) {
    this.#markedPages = Math.ceil(rowLimit / PAGE_ROWS);
    this.#pageMarks = new Uint8Array(this.#markedPages).fill(1);
    this.#bits = new Int32Array(this.#markedPages * WORDS_PER_PAGE).fill(-1);
  }

  add(row: number): void {
    const page = row >>> PAGE_BITS;
    if (page >= this.#pageMarks.length) this.#reserve(page);
    const word = row >>> 5;
    this.#bits[word] = (this.#bits[word] ?? 0) | (1 << (row & 31));
    if (this.#pageMarks[page] === 0) {
      this.#pageMarks[page] = 1;
      this.#markedPages++;
    }
  }

  /**
   * Removes at most `limit` rows and passes each to `onRow`, which must not add rows. Returns their number.
   * If it is below `limit`, none is left.
   */
  take(limit: number, onRow: (row: number) => void): number {
    let taken = 0;
    while (this.#markedPages > 0) {
      if (this.#nextPage >= this.#pageMarks.length) this.#nextPage = 0;
      const page = this.#nextPage;
      for (let word = page * WORDS_PER_PAGE; word < (page + 1) * WORDS_PER_PAGE; word++) {
        for (let bits = this.#bits[word] ?? 0; bits !== 0; bits = this.#bits[word] ?? 0) {
          if (taken === limit) return taken;
          this.#bits[word] = bits & (bits - 1); // clears the lowest bit
          taken++;
          onRow((word << 5) | (31 - Math.clz32(bits & -bits)));
        }
      }
      this.#markedPages -= this.#pageMarks[page] ?? 0;
      this.#pageMarks[page] = 0;
      this.#nextPage++;
    }
    return taken;
  }

  #reserve(page: number): void {
    const pages = new Uint8Array(Math.max(page + 1, 2 * this.#pageMarks.length));
    pages.set(this.#pageMarks);
    this.#pageMarks = pages;
    const bits = new Int32Array(pages.length * WORDS_PER_PAGE);
    bits.set(this.#bits);
    this.#bits = bits;
  }
}
