import { showValue } from '../../base/show-value.ts';
import { bufferView, hashOfBytes } from '../../columns/byte-words.ts';
import { bytesOfKey } from '../codec/bytes.ts';
import { KvstoreError } from '../session/errors.ts';
import { KeyTable } from '../session/key-table.ts';
import { TableEvent } from '../session/table-event.ts';
import type { KeyValue, TransportEvent } from '../session/transport.ts';
import { bytesOf, type KeyBytes, WireKeyValue } from '../session/wire-key-value.ts';
import { type Anchor, Anchors } from './anchors.ts';
import type { EventQueue } from './event-queue.ts';
import { LastDeletes } from './last-deletes.ts';

const EMPTY = new Uint8Array(0);
/** Maximum number of rows which a step of {@link KnownKeys.dropUnconfirmed} visits. A visit takes about 5 ns. */
const ROWS_PER_STEP = 64;

/**
 * The keys which the reader of a watch knows: their mod revisions, and checksums of their values. Every change here is
 * queued for the reader at the same time, so when the queue is empty, the reader has received exactly this state. Event
 * types are derived from this state, not from the server. Values with equal revisions and checksums count as equal: if
 * two histories have different values at one revision, one difference in 2³² is missed.
 *
 * During a listing, keys that were not listed yet are *unconfirmed*: the reader knows them, and they are deleted if the
 * listing ends without them.
 */
export class KnownKeys {
  readonly anchors: Anchors = new Anchors();
  readonly lastDeletes: LastDeletes = new LastDeletes();
  readonly #prefix: string;
  readonly #prefixBytes: Uint8Array;
  readonly #queue: EventQueue;
  readonly #keys: KeyTable;
  readonly #isShared: boolean;
  #size = 0;
  #confirmed = 0;

  /** @param keys the table of the reader, if it has one */
  constructor(prefix: string, queue: EventQueue, keys?: KeyTable) {
    this.#prefix = prefix;
    this.#prefixBytes = bytesOfKey(prefix);
    this.#queue = queue;
    this.#keys = keys ?? new KeyTable();
    this.#isShared = keys !== undefined;
    this.#keys.forgetKnown();
  }

  get size(): number {
    return this.#size;
  }

  /** Number of confirmed keys. */
  get confirmed(): number {
    return this.#confirmed;
  }

  /** Returns the mod revision of a known key; undefined if the key is unknown. */
  revisionOf(key: string): number | undefined {
    const row = this.#rowOf({ key });
    return row < 0 ? undefined : this.#keys.revisionOf(row);
  }

  /** Returns the row of a key; -1 if the table does not have it. Throws if the key does not have the prefix. */
  find(kv: Pick<Anchor, 'key'>): number {
    const key = bytesOf(kv);
    if (!hasPrefix(key, this.#prefixBytes))
      throw new KvstoreError(
        'internal',
        `the server sent ${showValue(kv.key)}, which does not begin with ${this.#prefix}`,
      );
    return this.#keys.find(key, this.#prefixBytes.length);
  }

  /** Confirms a listed key. Returns false, without an effect, if the key is new or differs from the known version. */
  confirm(row: number, kv: Anchor): boolean {
    if (row < 0 || !this.#keys.isKnown(row) || this.#keys.revisionOf(row) !== kv.modRevision) return false;
    if (this.#keys.checksumOf(row) !== checksumOf(kv)) return false;
    this.#confirmRow(row);
    if (kv.modRevision === this.anchors.newest) this.anchors.drop(kv, kv.modRevision); // listings repeat keys
    this.anchors.put(kv);
    return true;
  }

  /**
   * Sets and queues the present version of a key.
   *
   * @param found the row from {@link find}
   */
  put(found: number, kv: Anchor & Pick<KeyValue, 'lease'>): void {
    const isKnown = found >= 0 && this.#keys.isKnown(found);
    if (isKnown) {
      this.anchors.drop(kv, this.#keys.revisionOf(found));
      this.#confirmRow(found);
    } else {
      this.#size++;
      this.#confirmed++;
    }
    const row = found < 0 ? this.#keys.add(bytesOf(kv), this.#prefixBytes.length) : found;
    this.#keys.setVersion(row, kv.modRevision, checksumOf(kv));
    this.anchors.put(kv);
    const type = isKnown ? 'modify' : 'create';
    if (this.#isShared) this.#queue.push(new TableEvent(type, kv, row));
    else {
      const { key, value, modRevision, lease } = kv;
      this.#queue.push({ type, key, value, modRevision, ...(lease === undefined ? {} : { lease }) });
    }
  }

  /** Applies an event of a stream. */
  apply(event: TransportEvent): void {
    const row = this.find(event);
    if (isPut(event)) {
      this.put(row, event);
      return;
    }
    const { key, modRevision } = event;
    this.lastDeletes.add(key, modRevision);
    if (row >= 0 && this.#keys.isKnown(row)) this.#dropRow(row, key, modRevision);
  }

  /** Marks all keys as unconfirmed, because a listing begins. */
  unconfirm(): void {
    this.#keys.beginListing();
    this.#confirmed = 0;
  }

  /** Deletes the keys that the listing at `revision` has not confirmed, in steps. */
  *dropUnconfirmed(revision: number): Generator<void> {
    if (this.#size === this.#confirmed) return;
    yield* this.#dropRows(revision, (row) => !this.#keys.isConfirmed(row));
  }

  /**
   * Deletes the confirmed keys that a listing at `revision` does not contain, in steps. They were deleted while no
   * stream was open.
   */
  *dropMissing(listed: ListedRows, revision: number): Generator<void> {
    if (this.#confirmed === listed.count) return;
    yield* this.#dropRows(revision, (row) => this.#keys.isConfirmed(row) && !listed.has(row));
  }

  /** Adds a listed key to `listed` if it is confirmed. Returns its known revision; `undefined` if it is not known. */
  markListed(kv: Pick<Anchor, 'key'>, listed: ListedRows): number | undefined {
    const row = this.#rowOf(kv);
    if (row < 0) return undefined;
    if (this.#keys.isConfirmed(row)) listed.add(row);
    return this.#keys.revisionOf(row);
  }

  *#dropRows(revision: number, isStale: (row: number) => boolean): Generator<void> {
    for (let row = 0; row < this.#keys.limit; row++) {
      if (this.#keys.isKnown(row) && isStale(row)) {
        this.#dropRow(row, this.#prefix + this.#keys.nameAt(row), revision);
        yield;
      } else if (row % ROWS_PER_STEP === 0) yield;
    }
  }

  #dropRow(row: number, key: string, revision: number): void {
    this.anchors.drop({ key }, this.#keys.revisionOf(row));
    this.#size--;
    if (this.#keys.isConfirmed(row)) this.#confirmed--;
    this.#keys.forget(row);
    this.#queue.push({ type: 'delete', key, value: EMPTY, modRevision: revision });
  }

  /** Returns the row of a known key, or -1. */
  #rowOf(kv: Pick<Anchor, 'key'>): number {
    const row = this.find(kv);
    return row >= 0 && this.#keys.isKnown(row) ? row : -1;
  }

  #confirmRow(row: number): void {
    if (this.#keys.isConfirmed(row)) return;
    this.#keys.confirm(row);
    this.#confirmed++;
  }
}

function hasPrefix({ buffer, keyAt, keyEnd }: KeyBytes, prefix: Uint8Array): boolean {
  if (keyEnd - keyAt < prefix.length) return false;
  for (let i = 0; i < prefix.length; i++) if (buffer[keyAt + i] !== prefix[i]) return false;
  return true;
}

function isPut(event: TransportEvent): event is Anchor {
  return event instanceof WireKeyValue || event.value !== undefined;
}

function checksumOf(kv: Pick<Anchor, 'value'>): number {
  if (kv instanceof WireKeyValue) {
    const { buffer, valueAt, valueEnd } = kv;
    return hashOfBytes(bufferView(buffer), buffer.byteOffset + valueAt, buffer.byteOffset + valueEnd);
  }
  const { value } = kv;
  return hashOfBytes(bufferView(value), value.byteOffset, value.byteOffset + value.length);
}

/** A set of rows of known keys, one bit each. */
export class ListedRows {
  #bits = new Uint8Array(1024);
  #count = 0;

  get count(): number {
    return this.#count;
  }

  has(row: number): boolean {
    return ((this.#bits[row >>> 3] ?? 0) & (1 << (row & 7))) !== 0;
  }

  add(row: number): void {
    if (this.has(row)) return;
    if (row >>> 3 >= this.#bits.length) {
      const grown = new Uint8Array(2 * (row >>> 3));
      grown.set(this.#bits);
      this.#bits = grown;
    }
    this.#bits[row >>> 3] = (this.#bits[row >>> 3] ?? 0) | (1 << (row & 7));
    this.#count++;
  }
}
