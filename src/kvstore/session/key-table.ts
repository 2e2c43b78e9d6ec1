import { createHash } from 'node:crypto';
import { ByteRows } from '../../columns/byte-rows.ts';
import { setWideAt, wideAt } from '../../columns/int32-rows.ts';
import { bytesOfKey, keyIn } from '../codec/bytes.ts';
import type { KeyBytes } from './wire-key-value.ts';

// Columns of a row. The mod revision has two words.
const REVISION = 0;
const CHECKSUM = 2;
/** The number of the last listing that confirmed the key. */
const LISTING = 3;
/** The mark of the reader in the upper 31 bits, and the bit {@link WRITTEN}. */
const MARK = 4;
const COLUMNS = 5;

const WRITTEN = 1;

/** Maximum length of a name in a prefix of Cilium. The names of EndpointSlices have at most 350 characters. */
export const MAX_NAME_LENGTH = 4096;

/** Returns the name, or its digest if it is longer than {@link MAX_NAME_LENGTH}. */
export function shortName(name: string): string {
  if (name.length <= MAX_NAME_LENGTH) return name;
  return `sha256:${createHash('sha256').update(bytesOfKey(name)).digest('hex')}`;
}

/**
 * The keys of a prefix, stored without the prefix. Three users share the table, so that each key is stored and found
 * once:
 *
 * - A watch stores the version of each key that it *knows*.
 * - The reader of the watch sets a mark other than 0 on each key for which it stores an object.
 * - A writer marks the keys that are *written*: it stores a state for the key.
 *
 * A row is freed when none of them needs it.
 *
 *     row    mod revision │ checksum │ listing │ mark, written
 */
export class KeyTable {
  readonly #names = new ByteRows(COLUMNS, Math.random() * 2 ** 32);
  readonly #maxNameBytes: number;
  /** Number of the current listing. */
  #listing = 1;
  /** Number of the first listing of this watch. The watch knows the keys that this or a later listing has confirmed. */
  #firstListing = 1;

  /** @param isShort true to store the {@link shortName} of each name, for a reader that rejects longer names */
  constructor(isShort = false) {
    this.#maxNameBytes = isShort ? MAX_NAME_LENGTH : Number.POSITIVE_INFINITY;
  }

  /** One more than the highest row ever used. */
  get limit(): number {
    return this.#names.limit;
  }

  /** Forgets which keys the watch knows. Called before a watch begins and after it has ended. */
  forgetKnown(): void {
    this.#firstListing = ++this.#listing;
  }

  beginListing(): void {
    this.#listing++;
  }

  /** Returns the row of the name after the first `prefixLength` bytes of a key; -1 if the table does not have it. */
  find(key: KeyBytes, prefixLength: number): number {
    const { buffer, keyAt, keyEnd } = this.#stored(key, prefixLength);
    return this.#names.find(buffer, keyAt + prefixLength, keyEnd);
  }

  /** Returns true if this is the row of the key. Faster than {@link KeyTable.find}. */
  isRowOf(row: number, key: KeyBytes, prefixLength: number): boolean {
    const { buffer, keyAt, keyEnd } = this.#stored(key, prefixLength);
    return this.#names.isAt(row, buffer, keyAt + prefixLength, keyEnd);
  }

  /**
   * Adds a row for the name after the first `prefixLength` bytes of a key. The new row is neither known, marked nor
   * written.
   */
  add(key: KeyBytes, prefixLength: number): number {
    const { buffer, keyAt, keyEnd } = this.#stored(key, prefixLength);
    return this.#names.add(buffer, keyAt + prefixLength, keyEnd);
  }

  /** Like {@link KeyTable.find}, but adds a row if the table does not have the name. */
  ensure(key: KeyBytes, prefixLength: number): number {
    const { buffer, keyAt, keyEnd } = this.#stored(key, prefixLength);
    return this.#names.ensure(buffer, keyAt + prefixLength, keyEnd);
  }

  /** Returns the name of a row; `undefined` if the row is free. */
  nameAt(row: number): string | undefined {
    return this.readName(row, keyIn);
  }

  /** Calls `read` with the bytes of the name of a row, `bytes[from, to)`; returns `undefined` if the row is free. */
  readName<R>(row: number, read: (bytes: Uint8Array, from: number, to: number) => R): R | undefined {
    return this.#names.read(row, read);
  }

  /** Returns the number of bytes of the name of a row. */
  nameLength(row: number): number {
    return this.#names.lengthAt(row);
  }

  /** Returns true if the watch knows the key. */
  isKnown(row: number): boolean {
    return this.#names.rows.get(row, LISTING) >= this.#firstListing;
  }

  /**
   * Returns true if the current listing has confirmed the key, or the watch has received it since the listing began.
   */
  isConfirmed(row: number): boolean {
    return this.#names.rows.get(row, LISTING) === this.#listing;
  }

  revisionOf(row: number): number {
    const { rows } = this.#names;
    return wideAt(rows.pageOf(row), rows.offsetOf(row) + REVISION);
  }

  checksumOf(row: number): number {
    return this.#names.rows.get(row, CHECKSUM);
  }

  /** Marks a key as known in this version, and as confirmed. */
  setVersion(row: number, modRevision: number, checksum: number): void {
    const page = this.#names.rows.writablePageOf(row);
    const at = this.#names.rows.offsetOf(row);
    setWideAt(page, at + REVISION, modRevision);
    page[at + CHECKSUM] = checksum;
    page[at + LISTING] = this.#listing;
  }

  /** Marks a known key as confirmed. */
  confirm(row: number): void {
    this.#names.rows.set(row, LISTING, this.#listing);
  }

  /** Marks a key as unknown to the watch. */
  forget(row: number): void {
    this.#names.rows.set(row, LISTING, 0);
    this.release(row);
  }

  /** Returns the mark of the reader; 0 if it stores no object for the key. */
  markOf(row: number): number {
    return this.#names.rows.get(row, MARK) >>> 1;
  }

  /** Sets the mark of the reader and returns the previous one. 0: the reader no longer stores an object for the key. */
  setMark(row: number, mark: number): number {
    const page = this.#names.rows.writablePageOf(row);
    const at = this.#names.rows.offsetOf(row) + MARK;
    const previous = page[at] ?? 0;
    page[at] = (mark << 1) | (previous & WRITTEN);
    if (mark === 0) this.release(row);
    return previous >>> 1;
  }

  /** Marks whether the writer has a state of the key. */
  setWritten(row: number, isWritten: boolean): void {
    const { rows } = this.#names;
    const marks = rows.get(row, MARK);
    rows.set(row, MARK, isWritten ? marks | WRITTEN : marks & ~WRITTEN);
    if (!isWritten) this.release(row);
  }

  /** Frees a row that is neither known, marked nor written. */
  release(row: number): void {
    if (this.#names.rows.get(row, MARK) === 0 && !this.isKnown(row)) this.#names.delete(row);
  }

  /** Returns the key with the name that the table stores. */
  #stored(key: KeyBytes, prefixLength: number): KeyBytes {
    const { buffer, keyAt, keyEnd } = key;
    if (keyEnd - keyAt - prefixLength <= this.#maxNameBytes) return key;
    const name = bytesOfKey(shortName(keyIn(buffer, keyAt + prefixLength, keyEnd)));
    const stored = Buffer.concat([buffer.subarray(keyAt, keyAt + prefixLength), name]);
    return { buffer: stored, keyAt: 0, keyEnd: stored.length };
  }
}
