import { Int32Map } from './int32-map.ts';
import { Int32Rows, PAGE_BITS, PAGE_ROWS } from './int32-rows.ts';
import { mix } from './mix.ts';
import { SharedPages } from './shared-pages.ts';

/** Most tables are small: a cluster has a configuration and some nodes. */
const FIRST_ROWS = 16;

/** Returns a hash of `text.slice(from)`. */
function hashOf(text: string, from: number, seed: number): number {
  let hash = seed;
  for (let at = from; at < text.length; at++) hash = mix(hash, text.charCodeAt(at));
  return hash;
}

/**
 * Finds a row of integers by a text, in half of the memory of a `Map` with an object for each text. Rows of deleted texts are
 * reused, last in, first out.
 *
 *     text ─► hash ─► Int32Map ─► row ─► row with the same hash ─► …        rows: the columns of the owner │ link
 */
export class TextRows {
  /** The columns of the owner, 0 in a new row. The last column is the link to the next row with the same hash, or next free row. */
  readonly rows: Int32Rows;
  readonly #link: number;
  readonly #seed: number;
  /** The texts of the rows, in pages that grow as rows are used. */
  readonly #texts: (string | undefined)[][] = [];
  /** Hash of a text → its first row plus one. */
  readonly #first = new Int32Map();
  #size = 0;
  #limit = 0;
  /** The row that was freed last, plus one; 0 if there is none. */
  #free = 0;

  /** A secret `seed` prevents attackers from choosing texts with one hash, whose lookups take linear time. */
  constructor(columns: number, seed = 0) {
    this.#link = columns;
    this.#seed = seed | 0;
    this.rows = new Int32Rows(columns + 1, new SharedPages(), FIRST_ROWS);
  }

  /** Number of texts. */
  get size(): number {
    return this.#size;
  }

  /** One more than the highest row ever used. */
  get limit(): number {
    return this.#limit;
  }

  /** Returns the text of a row; `undefined` if the row is free. */
  textAt(row: number): string | undefined {
    return this.#texts[row >>> PAGE_BITS]?.[row & (PAGE_ROWS - 1)];
  }

  /** Returns the row of `text.slice(from)`, or -1. Creates no string. */
  find(text: string, from = 0): number {
    const length = text.length - from;
    for (let next = this.#first.get(hashOf(text, from, this.#seed)); next !== 0; ) {
      const row = next - 1;
      const known = this.textAt(row);
      if (known !== undefined && known.length === length && text.endsWith(known)) return row;
      next = this.rows.get(row, this.#link);
    }
    return -1;
  }

  /** Adds a text that is not in the table. Returns its row. */
  add(text: string): number {
    const row = this.#takeRow();
    this.#setText(row, text);
    this.rows.set(row, this.#link, this.#first.exchange(hashOf(text, 0, this.#seed), row + 1));
    this.#size++;
    return row;
  }

  /** Removes the text of a row and frees the row. */
  delete(row: number): void {
    const text = this.textAt(row);
    if (text === undefined) return;
    this.#unlink(hashOf(text, 0, this.#seed), row);
    this.#setText(row, undefined);
    for (let column = 0; column < this.#link; column++) this.rows.set(row, column, 0);
    this.rows.set(row, this.#link, this.#free);
    this.#free = row + 1;
    this.#size--;
  }

  #setText(row: number, text: string | undefined): void {
    const at = row >>> PAGE_BITS;
    const page = this.#texts[at] ?? [];
    page[row & (PAGE_ROWS - 1)] = text;
    this.#texts[at] = page;
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
