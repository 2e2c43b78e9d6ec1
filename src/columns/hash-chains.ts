import { Int32Rows } from './int32-rows.ts';
import { SharedPages } from './shared-pages.ts';

/** Buckets of a small table. */
const FIRST_BUCKETS = 16;

/**
 * Finds rows by a hash of their keys, which the owner stores and compares. The rows of a bucket are linked. The table
 * grows by one bucket with each row (linear hashing), so that no operation moves more than a bucket, and takes 12 bytes
 * a row.
 *
 *     hash ─► bucket ─► row ─► row ─► …        columns of a row: hash │ next row + 1
 *
 *     #heads   0 1 2 3 │ 4 5        #round = 4: bucket 4 was split from 0, 5 from 1; 2 is next
 */
export class HashChains {
  readonly #rows: Int32Rows;
  /** The columns of a row's hash, and of the next row in its bucket + 1. */
  readonly #hashColumn: number;
  readonly #nextColumn: number;
  /** The first row of each bucket + 1. */
  readonly #heads = new Int32Rows(1, new SharedPages(), FIRST_BUCKETS);
  #buckets = 1;
  /** Number of buckets when the present round of splits began: a power of two. */
  #round = 1;
  #size = 0;

  /** Uses two columns of `rows`, from `column` on. */
  constructor(rows: Int32Rows, column: number) {
    this.#rows = rows;
    this.#hashColumn = column;
    this.#nextColumn = column + 1;
    this.#heads.reserve(0);
  }

  /** Number of rows. */
  get size(): number {
    return this.#size;
  }

  /** Memory of the buckets in bytes. */
  get bytes(): number {
    return this.#heads.bytes;
  }

  /** Returns the first row with a hash; -1 if there is none. */
  first(hash: number): number {
    return this.#find(this.#heads.get(this.#bucketOf(hash), 0), hash);
  }

  /** Returns the row with a hash that follows `row`; -1 if there is none. */
  after(row: number, hash: number): number {
    return this.#find(this.#rows.get(row, this.#nextColumn), hash);
  }

  /** Adds a reserved row that is in no bucket. */
  add(row: number, hash: number): void {
    this.#rows.set(row, this.#hashColumn, hash);
    this.#link(row, this.#bucketOf(hash));
    if (++this.#size > this.#buckets) this.#split();
  }

  /** Removes a row. The owner may write both of its columns afterwards. */
  delete(row: number): void {
    const bucket = this.#bucketOf(this.#rows.get(row, this.#hashColumn));
    const next = this.#rows.get(row, this.#nextColumn);
    this.#size--;
    let before = this.#heads.get(bucket, 0) - 1;
    if (before === row) {
      this.#heads.set(bucket, 0, next);
      return;
    }
    for (let at = this.#rows.get(before, this.#nextColumn) - 1; at !== row; ) {
      before = at;
      at = this.#rows.get(before, this.#nextColumn) - 1;
    }
    this.#rows.set(before, this.#nextColumn, next);
  }

  /** Returns the first row with a hash in a chain from `link` on; -1 if there is none. A link is a row + 1; 0: none. */
  #find(link: number, hash: number): number {
    let row = link - 1;
    while (row >= 0 && this.#rows.get(row, this.#hashColumn) !== hash)
      row = this.#rows.get(row, this.#nextColumn) - 1;
    return row;
  }

  #bucketOf(hash: number): number {
    const at = hash & (2 * this.#round - 1);
    return at < this.#buckets ? at : at - this.#round;
  }

  #link(row: number, bucket: number): void {
    this.#rows.set(row, this.#nextColumn, this.#heads.get(bucket, 0));
    this.#heads.set(bucket, 0, row + 1);
  }

  /** Distributes the rows of the next bucket between it and a new one. */
  #split(): void {
    const bucket = this.#buckets - this.#round;
    let stay = 0;
    let move = 0;
    for (let link = this.#heads.get(bucket, 0); link !== 0; ) {
      const row = link - 1;
      const next = this.#rows.get(row, this.#nextColumn);
      const isMoved = (this.#rows.get(row, this.#hashColumn) & this.#round) !== 0;
      const after = isMoved ? move : stay;
      if (next !== after) this.#rows.set(row, this.#nextColumn, after);
      if (isMoved) move = link;
      else stay = link;
      link = next;
    }
    this.#heads.reserve(this.#buckets);
    this.#heads.set(bucket, 0, stay);
    this.#heads.set(this.#buckets++, 0, move);
    if (this.#buckets === 2 * this.#round) this.#round *= 2;
  }
}
