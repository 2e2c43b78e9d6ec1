import { HashChains } from './hash-chains.ts';
import { Int32Rows, PAGE_BITS } from './int32-rows.ts';
import { mix } from './mix.ts';
import { SharedPages } from './shared-pages.ts';

/** Initial sizes. Most tables are small: a cluster has one configuration and some nodes. */
const FIRST_ROWS = 16;
const FIRST_BYTES = 64;
/** Growth factor of the array of a page. Small, so that a page has little unused memory. */
const GROWTH = 1.25;
/** A length up to this value is stored in one byte, a longer one in four more. */
const SHORT = 0xfe;

/**
 * Returns a hash of `bytes[from, to)`. Texts that differ only in the last byte have neighbouring hashes, so that texts
 * which are added in their order use the same cache lines.
 */
function hashOf(bytes: Uint8Array, from: number, to: number, seed: number): number {
  let hash = seed;
  let at = from;
  const last = to - 1;
  // Two bytes a round. With four, a difference of the highest bit could be cancelled whatever the seed is.
  for (; at + 2 <= last; at += 2) hash = mix(hash, (bytes[at] ?? 0) | ((bytes[at + 1] ?? 0) << 8));
  if (at < last) hash = mix(hash, bytes[at] ?? 0);
  return last < from ? hash : hash ^ (bytes[last] ?? 0);
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

  constructor(bytes: Uint8Array) {
    this.bytes = bytes;
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
 *     text ─► hash ─► HashChains ─► row        row: the columns of the owner │ text
 */
export class ByteRows {
  /**
   * The columns of the owner, which are 0 in a new row. One more column, `#text`, has the offset of the text in its
   * page plus one; 0 if the row is free.
   */
  readonly rows: Int32Rows;
  /** The column of the offset. */
  readonly #text: number;
  /**
   * The columns of `#chains`, in rows of their own, so that a search reads fewer cache lines. The first column of a
   * free row is the next free row, plus one.
   */
  readonly #links: Int32Rows = new Int32Rows(2, new SharedPages(), FIRST_ROWS);
  readonly #chains: HashChains = new HashChains(this.#links, 0);
  readonly #seed: number;
  readonly #pages: TextPage[] = [];
  #limit = 0;
  /** The row freed last, plus one; 0 if there is none. */
  #free = 0;
  /**
   * The row after the one that was found or added last. It is tried first: texts are usually searched in the order in
   * which they were added, and are then found without a hash and without random reads of memory.
   */
  #next = 0;

  /** A secret `seed` prevents attackers from choosing texts with one hash, whose lookups take linear time. */
  constructor(columns: number, seed = 0) {
    this.#text = columns;
    this.#seed = seed | 0;
    this.rows = new Int32Rows(columns + 1, new SharedPages(), FIRST_ROWS);
  }

  /** Number of texts. */
  get size(): number {
    return this.#chains.size;
  }

  /** One more than the highest row ever used. */
  get limit(): number {
    return this.#limit;
  }

  /** Memory in bytes. */
  get bytes(): number {
    const tables = this.rows.bytes + this.#links.bytes + this.#chains.bytes;
    return this.#pages.reduce((sum, page) => sum + page.bytes.length, tables);
  }

  /** Returns true if the row has a text. */
  has(row: number): boolean {
    return this.rows.get(row, this.#text) !== 0;
  }

  /** Returns the number of bytes of the text of a row; 0 if the row is free. */
  lengthAt(row: number): number {
    const offset = this.rows.get(row, this.#text) - 1;
    return offset < 0 ? 0 : (this.#pages[row >>> PAGE_BITS]?.lengthAt(offset) ?? 0);
  }

  /** Returns the text of a row, which must not be changed; `undefined` if the row is free. */
  textAt(row: number): Uint8Array | undefined {
    return this.read(row, (bytes, from, to) => bytes.subarray(from, to));
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

  /** Calls `read` with the bytes of the text of a row, `bytes[from, to)`; returns `undefined` if the row is free. */
  read<R>(row: number, read: (bytes: Uint8Array, from: number, to: number) => R): R | undefined {
    const offset = this.rows.get(row, this.#text) - 1;
    const page = this.#pages[row >>> PAGE_BITS];
    if (offset < 0 || page === undefined) return undefined;
    const start = page.startOf(offset);
    return read(page.bytes, start, start + page.lengthAt(offset));
  }

  /** Returns the row of the text `bytes[from, to)`, or -1. */
  find(bytes: Uint8Array, from: number, to: number): number {
    if (this.isAt(this.#next, bytes, from, to)) return this.#next++;
    return this.#find(bytes, from, to, hashOf(bytes, from, to, this.#seed));
  }

  /** Adds the text `bytes[from, to)`, which is not in the table. Returns its row. */
  add(bytes: Uint8Array, from: number, to: number): number {
    return this.#add(bytes, from, to, hashOf(bytes, from, to, this.#seed));
  }

  /** Returns the row of the text `bytes[from, to)`. Adds the text if the table does not have it. */
  ensure(bytes: Uint8Array, from: number, to: number): number {
    if (this.isAt(this.#next, bytes, from, to)) return this.#next++;
    const hash = hashOf(bytes, from, to, this.#seed);
    const row = this.#find(bytes, from, to, hash);
    return row < 0 ? this.#add(bytes, from, to, hash) : row;
  }

  #find(bytes: Uint8Array, from: number, to: number, hash: number): number {
    let row = this.#chains.first(hash);
    while (row >= 0 && !this.isAt(row, bytes, from, to)) row = this.#chains.after(row, hash);
    if (row >= 0) this.#next = row + 1;
    return row;
  }

  #add(bytes: Uint8Array, from: number, to: number, hash: number): number {
    const row = this.#takeRow();
    const page = this.#pageWithRoom(row >>> PAGE_BITS, storedLength(to - from));
    this.rows.set(row, this.#text, page.append(bytes, from, to) + 1);
    this.#chains.add(row, hash);
    this.#next = row + 1;
    return row;
  }

  /** Removes the text of a row and frees the row. */
  delete(row: number): void {
    const offset = this.rows.get(row, this.#text) - 1;
    const page = this.#pages[row >>> PAGE_BITS];
    if (offset < 0 || page === undefined) return;
    this.#chains.delete(row);
    page.live -= storedLength(page.lengthAt(offset));
    for (let column = 0; column <= this.#text; column++) this.rows.set(row, column, 0);
    this.#links.set(row, 0, this.#free);
    this.#free = row + 1;
  }

  /** Returns a page of texts with room for `size` bytes at its end. */
  #pageWithRoom(pageIndex: number, size: number): TextPage {
    const page = this.#pages[pageIndex];
    if (page === undefined) {
      const typical = this.#pages.at(-1)?.used ?? FIRST_BYTES; // the previous page is full
      const first = new TextPage(new Uint8Array(Math.max(typical, size)));
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
    const oldPage = new TextPage(old);
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

  #takeRow(): number {
    if (this.#free === 0) {
      this.rows.reserve(this.#limit);
      this.#links.reserve(this.#limit);
      return this.#limit++;
    }
    const row = this.#free - 1;
    this.#free = this.#links.get(row, 0);
    return row;
  }
}
