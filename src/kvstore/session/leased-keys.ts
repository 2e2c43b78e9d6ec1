import { ByteRows } from '../../columns/byte-rows.ts';
import { setWideAt, wideAt } from '../../columns/int32-rows.ts';
import { bytesOfKey, keyOfBytes } from '../codec/bytes.ts';

// Columns of a row. `WRITTEN_AT` has two words: one more than the revision of the last write, so that a new row has 0.
const FOLDER = 0;
const LEASE = 1;
const ORDER = 2;
const WRITTEN_AT = 3;
const COLUMNS = 5;

/** Length of the folder number, which precedes the name in the stored bytes of a key. */
const FOLDER_BYTES = 4;
const ASCII_END = 0x80;

/** The common part of keys up to their last slash. */
interface Folder {
  readonly name: string;
  /** At least 1. When the folder is empty, its number is free for another folder. */
  readonly number: number;
  keys: number;
}

/**
 * The keys of a client under its leases, one row of integers each, so that a key needs no object on the heap. The
 * stored bytes of a key are the number of its folder and its name in the folder.
 *
 *     row    folder │ lease │ order of the binding │ revision of the last write
 */
export class LeasedKeys {
  #rows = newRows();
  readonly #folders = new Map<string, Folder>();
  readonly #byNumber: (Folder | undefined)[] = [undefined];
  readonly #freeNumbers: number[] = [];
  /** Name of the folder of the last key, and the folder if it has keys. Successive keys usually have the same one. */
  #selectedName = '';
  #selected: Folder | undefined;
  /** The stored bytes of the last key. */
  #buffer = new Uint8Array(256);

  get isEmpty(): boolean {
    return this.#folders.size === 0;
  }

  /** One more than the highest row that was used since the table was last empty. */
  get limit(): number {
    return this.#rows.limit;
  }

  /** Returns the row of a key, or -1. */
  find(key: string): number {
    const folder = this.#select(key);
    if (folder === undefined) return -1;
    const end = this.#encode(folder, key);
    return this.#rows.find(this.#buffer, 0, end);
  }

  /** Returns the row of a key. If the key has no row, adds one, with no lease. */
  ensure(key: string): number {
    const folder = this.#select(key) ?? this.#addFolder();
    const end = this.#encode(folder, key);
    const row = this.#rows.ensure(this.#buffer, 0, end);
    if (this.#rows.rows.get(row, FOLDER) === 0) {
      this.#rows.rows.set(row, FOLDER, folder.number);
      folder.keys++;
    }
    return row;
  }

  delete(row: number): void {
    const folder = this.#folderOf(row);
    if (folder === undefined) return;
    this.#rows.delete(row);
    if (--folder.keys > 0) return;
    this.#folders.delete(folder.name);
    this.#byNumber[folder.number] = undefined;
    this.#freeNumbers.push(folder.number);
    if (this.#selected === folder) this.#selected = undefined;
    if (this.isEmpty) this.clear(); // a table does not shrink
  }

  clear(): void {
    this.#rows = newRows();
    this.#folders.clear();
    this.#byNumber.length = 1;
    this.#freeNumbers.length = 0;
    this.#selected = undefined;
  }

  /** Returns the key of a row; undefined if the row is free. */
  keyAt(row: number): string | undefined {
    const bytes = this.#rows.textAt(row);
    return bytes && `${this.#folderOf(row)?.name ?? ''}${keyOfBytes(bytes.subarray(FOLDER_BYTES))}`;
  }

  /** Returns a function of a row: its key if the key starts with `prefix`, otherwise undefined. */
  below(prefix: string): (row: number) => string | undefined {
    // Decided once for successive rows of one folder.
    let last: Folder | undefined;
    let isInPrefix = false;
    let mayHaveKeys = false;
    return (row) => {
      const folder = this.#folderOf(row);
      if (folder !== last) {
        isInPrefix = folder?.name.startsWith(prefix) === true;
        mayHaveKeys = folder !== undefined && prefix.startsWith(folder.name);
        last = folder;
      }
      if (!isInPrefix && !mayHaveKeys) return undefined;
      const key = this.keyAt(row);
      return isInPrefix || key?.startsWith(prefix) === true ? key : undefined;
    };
  }

  /** Returns the number of the lease of a key; 0 if the key has none. */
  leaseOf(row: number): number {
    return this.#rows.rows.get(row, LEASE);
  }

  /** Returns the low 32 bits of the order of a binding; 0 if the row is free. */
  orderOf(row: number): number {
    return this.#rows.rows.get(row, ORDER);
  }

  /** Binds a key to a lease. `order` is the serial number of the binding among all bindings. */
  bind(row: number, lease: number, order: number): void {
    const page = this.#rows.rows.writablePageOf(row);
    const at = this.#rows.rows.offsetOf(row);
    page[at + LEASE] = lease;
    page[at + ORDER] = order;
  }

  /** Returns the revision of the last write of a key; -1 for a new row. */
  writtenAt(row: number): number {
    const { rows } = this.#rows;
    return wideAt(rows.pageOf(row), rows.offsetOf(row) + WRITTEN_AT) - 1;
  }

  setWrittenAt(row: number, revision: number): void {
    const { rows } = this.#rows;
    setWideAt(rows.writablePageOf(row), rows.offsetOf(row) + WRITTEN_AT, revision + 1);
  }

  #folderOf(row: number): Folder | undefined {
    return this.#byNumber[this.#rows.rows.get(row, FOLDER)];
  }

  /** Selects the folder of a key. Returns the folder if it has keys. */
  #select(key: string): Folder | undefined {
    const end = key.lastIndexOf('/') + 1;
    if (end !== this.#selectedName.length || !key.startsWith(this.#selectedName)) {
      this.#selectedName = key.slice(0, end);
      this.#selected = this.#folders.get(this.#selectedName);
    }
    return this.#selected;
  }

  /** Adds the selected folder, which has no keys. */
  #addFolder(): Folder {
    const number = this.#freeNumbers.pop() ?? this.#byNumber.length;
    const folder: Folder = { name: this.#selectedName, number, keys: 0 };
    this.#folders.set(folder.name, folder);
    this.#byNumber[number] = folder;
    this.#selected = folder;
    return folder;
  }

  /** Writes the stored bytes of a key into the buffer. Returns their number. */
  #encode({ name, number }: Folder, key: string): number {
    const from = name.length;
    const end = FOLDER_BYTES + key.length - from;
    if (end > this.#buffer.length) this.#buffer = new Uint8Array(2 * end);
    const buffer = this.#buffer;
    for (let i = 0; i < FOLDER_BYTES; i++) buffer[i] = number >>> (8 * i);
    for (let i = FOLDER_BYTES; i < end; i++) {
      const code = key.charCodeAt(from + i - FOLDER_BYTES);
      if (code >= ASCII_END) return this.#encodeText(key.slice(from));
      buffer[i] = code;
    }
    return end;
  }

  /** Writes a name which is not ASCII after the folder number. Returns the number of all stored bytes of the key. */
  #encodeText(name: string): number {
    const bytes = bytesOfKey(name);
    const end = FOLDER_BYTES + bytes.length;
    if (end > this.#buffer.length) {
      const longer = new Uint8Array(2 * end);
      longer.set(this.#buffer.subarray(0, FOLDER_BYTES));
      this.#buffer = longer;
    }
    this.#buffer.set(bytes, FOLDER_BYTES);
    return end;
  }
}

function newRows(): ByteRows {
  return new ByteRows(COLUMNS, Math.random() * 2 ** 32);
}
