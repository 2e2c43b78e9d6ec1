import type { KeyValue, TransportEvent } from '../session/transport.ts';
import { Anchors } from './anchors.ts';
import type { EventQueue } from './event-queue.ts';
import { KnownVersions } from './known-versions.ts';
import { LastDeletes } from './last-deletes.ts';

/**
 * The keys that the reader of a watch knows: their mod revisions, and checksums of their values. Every change is queued for the
 * reader at the same time, so this equals what the reader has received once the queue is empty. Event types are derived here, not
 * by the server.
 *
 * During a listing, keys that were not listed yet are *unconfirmed*: the reader knows them, and they are deleted if the listing
 * ends without them.
 */
export class KnownKeys {
  readonly anchors: Anchors = new Anchors();
  readonly lastDeletes: LastDeletes = new LastDeletes();
  readonly #queue: EventQueue;
  readonly #versions = new KnownVersions();
  /** Key → row of its version. */
  #confirmed = new Map<string, number>();
  #unconfirmed = new Map<string, number>();

  constructor(queue: EventQueue) {
    this.#queue = queue;
  }

  get size(): number {
    return this.#confirmed.size + this.#unconfirmed.size;
  }

  /** Number of confirmed keys. */
  get confirmed(): number {
    return this.#confirmed.size;
  }

  /** Returns the mod revision of a key; `undefined` if the key is not known. */
  revisionOf(key: string): number | undefined {
    const row = this.#rowOf(key);
    return row === undefined ? undefined : this.#versions.revisionOf(row);
  }

  /** Returns true if the reader knows the key with this revision and value. */
  has({ key, value, modRevision }: KeyValue): boolean {
    const row = this.#rowOf(key);
    return row !== undefined && this.#versions.isSame(row, modRevision, value);
  }

  /** Returns the live keys, not a copy. They may be dropped during the iteration. */
  confirmedKeys(): Iterable<string> {
    return this.#confirmed.keys();
  }

  /** Like {@link confirmedKeys}. */
  unconfirmedKeys(): Iterable<string> {
    return this.#unconfirmed.keys();
  }

  /** Confirms a listed key. Queues it if it is new or differs from the known version. */
  list({ key, value, modRevision }: KeyValue): void {
    const row = this.#rowOf(key);
    if (row === undefined || !this.#versions.isSame(row, modRevision, value)) {
      this.#put(key, row, value, modRevision);
      return;
    }
    this.#confirm(key, row);
    this.anchors.put(key, value, modRevision);
  }

  /** Applies an event of a stream. */
  apply({ key, value, modRevision }: TransportEvent): void {
    if (value === undefined) {
      this.lastDeletes.add(key, modRevision);
      this.drop(key, modRevision);
      return;
    }
    this.#put(key, this.#rowOf(key), value, modRevision);
  }

  /** Deletes a key after a delete event, or because a listing at `revision` does not have it. */
  drop(key: string, revision: number): void {
    const row = this.#rowOf(key);
    if (row === undefined) return;
    if (!this.#confirmed.delete(key)) this.#unconfirmed.delete(key);
    this.#versions.delete(row);
    this.anchors.drop(key);
    this.#queue.push(key, undefined, revision, true);
  }

  /** Begins a listing: marks all keys as unconfirmed. Yields for each key that an unfinished listing had confirmed. */
  *unconfirm(): Generator<void> {
    if (this.#unconfirmed.size === 0) {
      [this.#confirmed, this.#unconfirmed] = [this.#unconfirmed, this.#confirmed];
      return;
    }
    for (const [key, row] of this.#confirmed) {
      this.#confirmed.delete(key);
      this.#unconfirmed.set(key, row);
      yield;
    }
  }

  #rowOf(key: string): number | undefined {
    return this.#confirmed.get(key) ?? this.#unconfirmed.get(key);
  }

  /** @param row the known version, if the key is known */
  #put(key: string, row: number | undefined, value: Uint8Array, modRevision: number): void {
    this.#queue.push(key, value, modRevision, row !== undefined);
    if (row === undefined) this.#confirmed.set(key, this.#versions.add(modRevision, value));
    else {
      this.#versions.set(row, modRevision, value);
      this.#confirm(key, row);
    }
    this.anchors.put(key, value, modRevision);
  }

  #confirm(key: string, row: number): void {
    if (this.#unconfirmed.size > 0 && this.#unconfirmed.delete(key)) this.#confirmed.set(key, row);
  }
}
