import type { KeyValue, TransportEvent } from '../transport.ts';
import { Anchors } from './anchors.ts';
import type { EventQueue } from './event-queue.ts';
import { LastDeletes } from './last-deletes.ts';

/**
 * What the reader of a watch knows: the mod revision of every key. Every change of it is queued for the reader in the
 * same moment, so that what is known is what the reader has received once the queue is empty; event types come from
 * here and not from the server.
 *
 * While a listing is under way the keys that it has not shown yet are *unconfirmed*: the reader knows them, and they
 * are gone if the listing ends without them.
 */
export class KnownKeys {
  readonly anchors: Anchors = new Anchors();
  readonly lastDeletes: LastDeletes = new LastDeletes();
  readonly #queue: EventQueue;
  #confirmed = new Map<string, number>();
  #unconfirmed = new Map<string, number>();

  constructor(queue: EventQueue) {
    this.#queue = queue;
  }

  get size(): number {
    return this.#confirmed.size + this.#unconfirmed.size;
  }

  /** How many of them are confirmed. */
  get confirmed(): number {
    return this.#confirmed.size;
  }

  /** The mod revision of a key; `undefined` when it is not known. */
  revisionOf(key: string): number | undefined {
    return this.#confirmed.get(key) ?? this.#unconfirmed.get(key);
  }

  /** The keys as they are, not a copy: they may be dropped while one goes through them. */
  confirmedKeys(): Iterable<string> {
    return this.#confirmed.keys();
  }

  /** As {@link confirmedKeys}. */
  unconfirmedKeys(): Iterable<string> {
    return this.#unconfirmed.keys();
  }

  /**
   * A key that a listing shows: it is confirmed, and queued if it is new or changed. The same revision stands for the
   * same value only up to `trusted`, the revision to which the store's history is known to be the one followed.
   */
  list({ key, value, modRevision }: KeyValue, trusted: number): void {
    const known = this.revisionOf(key);
    if (this.#unconfirmed.size > 0) this.#unconfirmed.delete(key);
    if (known === modRevision && modRevision <= trusted) this.#confirm(key, value, modRevision);
    else this.#put(key, value, modRevision, known !== undefined);
  }

  /** An event of a stream. */
  apply({ key, value, modRevision }: TransportEvent): void {
    if (value !== undefined) {
      this.#put(key, value, modRevision, this.#confirmed.has(key));
      return;
    }
    this.lastDeletes.add(key, modRevision);
    this.drop(key, modRevision);
  }

  /** A key that is gone, as an event or a listing at `revision` shows. */
  drop(key: string, revision: number): void {
    if (!this.#confirmed.delete(key) && !this.#unconfirmed.delete(key)) return;
    this.anchors.drop(key);
    this.#queue.push(key, undefined, revision, true);
  }

  /** A listing begins: from now on nothing is confirmed. Costs a step for each key that was confirmed by another one. */
  *unconfirm(): Generator<void> {
    if (this.#unconfirmed.size === 0) {
      [this.#confirmed, this.#unconfirmed] = [this.#unconfirmed, this.#confirmed];
      return;
    }
    for (const [key, revision] of this.#confirmed) {
      this.#confirmed.delete(key);
      this.#unconfirmed.set(key, revision);
      yield;
    }
  }

  #put(key: string, value: Uint8Array, modRevision: number, known: boolean): void {
    this.#queue.push(key, value, modRevision, known);
    this.#confirm(key, value, modRevision);
  }

  #confirm(key: string, value: Uint8Array, modRevision: number): void {
    this.#confirmed.set(key, modRevision);
    this.anchors.put(key, value, modRevision);
  }
}
