import { Int32Map } from './int32-map.ts';
import { Int32Rows, PAGE_BITS } from './int32-rows.ts';
import { mix } from './mix.ts';
import { SharedPages } from './shared-pages.ts';

/** Most tables are small: a cluster has a configuration and some nodes. */
const FIRST_ROWS = 16;
const FIRST_BYTES = 64;
/** Growth factor of the array of a page. Small, so that a page has little unused memory. */
const GROWTH = 1.25;
/** A length up to this value is stored in one byte, a longer one in four more. */
const SHORT = 0xfe;

/** Returns a hash of `bytes[from, to)`. */
function hashOf(bytes: Uint8Array, from: number, to: number, seed: number): number {
  let hash = seed;
  let at = from;
  // Two bytes a round. With four, a difference of the highest bit could be cancelled whatever the seed is.
  for (; at + 2 <= to; at += 2) hash = mix(hash, (bytes[at] ?? 0) | ((bytes[at + 1] ?? 0) << 8));
  return at < to ? mix(hash, bytes[at] ?? 0) : hash;
}

/**
 * The texts of a page of rows, one after the other, each after its length. Deleted texts leave gaps until the page is
 * full.
 */
class TextPage {
  bytes: Uint8Array;
  /** Number of bytes up to the end of the last text. */
  used = 0;
  /** Number of bytes of the texts, without gaps. */
  live = 0;

  constructor(capacity: number) {
    this.bytes = new Uint8Array(capacity);
  }

  /** Returns the position of the text whose length is at `offset`. */
  startOf(offset: number): number {
    return (this.bytes[offset] ?? 0) > SHORT ? offset + 5 : offset + 1;
  }

  lengthAt(offset: number): number {
    const { bytes } = this;
    const length = bytes[offset] ?? 0;
    if (length <= SHORT) return length;
    return new DataView(bytes.buffer).getUint32(offset + 1, true);
  }

  /** Adds a text at the end of the page, which must have room for it. Returns its offset. */
  append(text: Uint8Array, from: number, to: number): number {
    const { bytes, used } = this;
    const length = to - from;
    let at = used;
    if (length <= SHORT) bytes[at++] = length;
    else {
      bytes[at] = SHORT + 1;
      new DataView(bytes.buffer).setUint32(at + 1, length, true);
      at += 5;
    }
    for (let i = from; i < to; i++) bytes[at++] = text[i] ?? 0;
    this.used = at;
    this.live += at - used;
    return used;
  }
}

/** Number of bytes of a text in its page. */
function storedLength(length: number): number {
  return length <= SHORT ? length + 1 : length + 5;
}

/**
 * Maps byte strings, called texts, to rows of integers. The texts of 1,024 rows are stored in one array, so that a row
 * needs no object on the heap. Rows of deleted texts are reused, last in, first out.
 *
 *     text ─► hash ─► Int32Map ─► row ─► row with the same hash ─► …
 *
 *     row     the columns of the owner │ text │ link
 */
export class ByteRows {
  /**
   * The columns of the owner, which are 0 in a new row, and two more. The first of these is the offset of the text in
   * its page, plus one; 0 if the row is free. The last column is the next row with the same hash, or the next free row.
   */
  readonly rows: Int32Rows;
  /** The columns of the offset and of the next row. */
  readonly #text: number;
  readonly #link: number;
  readonly #seed: number;
  readonly #pages: TextPage[] = [];
  /** The first row of each hash of a text, plus one. */
  readonly #first = new Int32Map();
  #size = 0;
  #limit = 0;
  /** The row that was freed last, plus one; 0 if there is none. */
  #free = 0;

  /** A secret `seed` prevents attackers from choosing texts with one hash, whose lookups take linear time. */
  constructor(columns: number, seed = 0) {
    this.#text = columns;
    this.#link = columns + 1;
    this.#seed = seed | 0;
    this.rows = new Int32Rows(columns + 2, new SharedPages(), FIRST_ROWS);
  }

  /** Number of texts. */
  get size(): number {
    return this.#size;
  }

  /** One more than the highest row ever used. */
  get limit(): number {
    return this.#limit;
  }

  /** Memory in bytes. */
  get bytes(): number {
    return this.#pages.reduce((sum, page) => sum + page.bytes.length, this.rows.bytes + this.#first.bytes);
  }

  /** Returns true if the row has a text. */
  has(row: number): boolean {
    return this.rows.get(row, this.#text) !== 0;
  }

  /** Returns a copy of the text of a row; `undefined` if the row is free. */
  textAt(row: number): Uint8Array | undefined {
    const offset = this.rows.get(row, this.#text) - 1;
    const page = this.#pages[row >>> PAGE_BITS];
    if (offset < 0 || page === undefined) return undefined;
    const start = page.startOf(offset);
    return page.bytes.slice(start, start + page.lengthAt(offset));
  }

  /** Returns true if the text of a row is `bytes[from, to)`. */
  isAt(row: number, bytes: Uint8Array, from: number, to: number): boolean {
    const offset = this.rows.get(row, this.#text) - 1;
    const page = this.#pages[row >>> PAGE_BITS];
    if (offset < 0 || page === undefined || page.lengthAt(offset) !== to - from) return false;
    const known = page.bytes;
    let other = page.startOf(offset);
    for (let at = from; at < to; at++) if (bytes[at] !== known[other++]) return false;
    return true;
  }

  /** Returns the row of the text `bytes[from, to)`, or -1. */
  find(bytes: Uint8Array, from: number, to: number): number {
    for (let next = this.#first.get(hashOf(bytes, from, to, this.#seed)); next !== 0; ) {
      const row = next - 1;
      if (this.isAt(row, bytes, from, to)) return row;
      next = this.rows.get(row, this.#link);
    }
    return -1;
  }

  /** Adds the text `bytes[from, to)`, which is not in the table. Returns its row. */
  add(bytes: Uint8Array, from: number, to: number): number {
    const row = this.#takeRow();
    const page = this.#pageWithRoom(row >>> PAGE_BITS, storedLength(to - from));
    this.rows.set(row, this.#text, page.append(bytes, from, to) + 1);
    this.rows.set(row, this.#link, this.#first.exchange(hashOf(bytes, from, to, this.#seed), row + 1));
    this.#size++;
    return row;
  }

  /** Removes the text of a row and frees the row. */
  delete(row: number): void {
    const offset = this.rows.get(row, this.#text) - 1;
    const page = this.#pages[row >>> PAGE_BITS];
    if (offset < 0 || page === undefined) return;
    const start = page.startOf(offset);
    const length = page.lengthAt(offset);
    this.#unlink(hashOf(page.bytes, start, start + length, this.#seed), row);
    page.live -= storedLength(length);
    for (let column = 0; column < this.#link; column++) this.rows.set(row, column, 0);
    this.rows.set(row, this.#link, this.#free);
    this.#free = row + 1;
    this.#size--;
  }

  /** Returns a page of texts with room for `size` bytes at its end. */
  #pageWithRoom(pageIndex: number, size: number): TextPage {
    const page = this.#pages[pageIndex];
    if (page === undefined) {
      const typical = this.#pages.at(-1)?.used ?? FIRST_BYTES; // the previous page is full
      const first = new TextPage(Math.max(typical, size));
      this.#pages[pageIndex] = first;
      return first;
    }
    if (page.used + size > page.bytes.length) this.#makeRoom(page, pageIndex, page.live + size);
    return page;
  }

  /** Replaces the array of a page by one with room for `bytes`, without gaps. */
  #makeRoom(page: TextPage, pageIndex: number, bytes: number): void {
    const old = page.bytes;
    page.bytes = new Uint8Array(Math.ceil(GROWTH * bytes));
    if (page.live === page.used) {
      page.bytes.set(old.subarray(0, page.used));
      return;
    }
    const oldPage = new TextPage(0);
    oldPage.bytes = old;
    page.used = 0;
    page.live = 0;
    const end = Math.min(this.#limit, (pageIndex + 1) << PAGE_BITS);
    for (let row = pageIndex << PAGE_BITS; row < end; row++) {
      const offset = this.rows.get(row, this.#text) - 1;
      if (offset < 0) continue;
      const start = oldPage.startOf(offset);
      this.rows.set(row, this.#text, page.append(old, start, start + oldPage.lengthAt(offset)) + 1);
    }
  }

  #unlink(hash: number, row: number): void {
    const after = this.rows.get(row, this.#link);
    const first = this.#first.get(hash);
    if (first === row + 1) {
      this.#first.exchange(hash, after);
      return;
    }
    let before = first - 1;
    while (this.rows.get(before, this.#link) !== row + 1) before = this.rows.get(before, this.#link) - 1;
    this.rows.set(before, this.#link, after);
  }

  #takeRow(): number {
    if (this.#free === 0) {
      this.rows.reserve(this.#limit);
      return this.#limit++;
    }
    const row = this.#free - 1;
    this.#free = this.rows.get(row, this.#link);
    return row;
  }
}
