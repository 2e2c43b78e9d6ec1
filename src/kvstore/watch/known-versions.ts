import { crc32 } from 'node:zlib';
import { Int32Rows } from '../../columns/int32-rows.ts';

/** The columns of a row. The first column of a free row is the link to the next free row. */
const LOW = 0;
const HIGH = 1;
const CHECKSUM = 2;
const STRIDE = 3;
const TWO_32 = 2 ** 32;

/**
 * The mod revision and a checksum of the value of each known key, in rows of 12 bytes. Equal revisions and checksums count as equal
 * values: if two histories differ in a value at one revision, one difference in 2³² is missed.
 */
export class KnownVersions {
  readonly #rows = new Int32Rows(STRIDE);
  #rowCount = 0;
  /** The first free row plus one; 0 if there is none. */
  #free = 0;

  /** Returns the row of a new version. */
  add(modRevision: number, value: Uint8Array): number {
    const row = this.#allocateRow();
    this.set(row, modRevision, value);
    return row;
  }

  set(row: number, modRevision: number, value: Uint8Array): void {
    this.#rows.set(row, LOW, modRevision % TWO_32);
    this.#rows.set(row, HIGH, Math.floor(modRevision / TWO_32));
    this.#rows.set(row, CHECKSUM, crc32(value));
  }

  /** Frees a row. */
  delete(row: number): void {
    this.#rows.set(row, LOW, this.#free);
    this.#free = row + 1;
  }

  revisionOf(row: number): number {
    return (this.#rows.get(row, HIGH) >>> 0) * TWO_32 + (this.#rows.get(row, LOW) >>> 0);
  }

  /** Returns true if the row has this revision and a value with this checksum. */
  isSame(row: number, modRevision: number, value: Uint8Array): boolean {
    return this.revisionOf(row) === modRevision && this.#rows.get(row, CHECKSUM) === (crc32(value) | 0);
  }

  #allocateRow(): number {
    const free = this.#free;
    if (free === 0) {
      this.#rows.reserve(this.#rowCount);
      return this.#rowCount++;
    }
    this.#free = this.#rows.get(free - 1, LOW);
    return free - 1;
  }
}
