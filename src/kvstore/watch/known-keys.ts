import type { KeyValue, TransportEvent } from '../transport.ts';
import type { EventQueue } from './event-queue.ts';

/** A key and the revision at which it was deleted. */
export interface LastDelete {
  readonly key: string;
  readonly modRevision: number;
}

/** A write, whole: enough to recognise it in a store's history. */
export interface LastPut extends LastDelete {
  readonly value: Uint8Array;
}

/**
 * What a watch knows: the mod revision of every key. Every change of it is queued for the reader in the same
 * moment, so that what is known is what the reader has been told once the queue is empty; event types come
 * from here and not from the server.
 */
export class KnownKeys {
  readonly #queue: EventQueue;
  readonly #revisions = new Map<string, number>();
  #lastPut: LastPut | undefined;
  #sealed: LastPut | undefined;
  #lastDelete: LastDelete | undefined;

  constructor(queue: EventQueue) {
    this.#queue = queue;
  }

  get size(): number {
    return this.#revisions.size;
  }

  /** The latest write that was seen; its key may be gone by now. */
  get lastPut(): LastPut | undefined {
    return this.#lastPut;
  }

  /** The latest delete that was seen; its key may be back by now. */
  get lastDelete(): LastDelete | undefined {
    return this.#lastDelete;
  }

  /** The mod revision of a key; `undefined` when it is not known. */
  revisionOf(key: string): number | undefined {
    return this.#revisions.get(key);
  }

  /** The keys as they are, not a copy: they may be dropped while one goes through them. */
  keys(): Iterable<string> {
    return this.#revisions.keys();
  }

  /** A key that a listing shows. Told if it is new or changed, or `always`. */
  list({ key, value, modRevision }: KeyValue, always: boolean): void {
    if (always || this.#revisions.get(key) !== modRevision) this.#put(key, value, modRevision);
  }

  /** An event of a stream. One that is no newer than what is known is an echo and changes nothing. */
  apply({ key, value, modRevision }: TransportEvent): void {
    if (modRevision <= (this.#revisions.get(key) ?? 0)) return;
    if (value === undefined) this.drop(key, modRevision);
    else this.#put(key, value, modRevision);
  }

  /** A key that is gone, as a listing at `revision` or an event shows. */
  drop(key: string, revision: number): void {
    if (!this.#revisions.delete(key)) return;
    this.#queue.push(key, undefined, revision, true);
    this.#lastDelete = { key, modRevision: revision };
  }

  /** To be called after each batch: what is kept of it must not pin the message that it came in. */
  sealLastPut(): void {
    if (this.#lastPut === undefined || this.#lastPut === this.#sealed) return;
    this.#lastPut = { ...this.#lastPut, value: Uint8Array.from(this.#lastPut.value) };
    this.#sealed = this.#lastPut;
  }

  /** Another history: what was written last in the old one says nothing of the new. */
  forgetLastWrites(): void {
    this.#lastPut = undefined;
    this.#lastDelete = undefined;
  }

  #put(key: string, value: Uint8Array, modRevision: number): void {
    this.#queue.push(key, value, modRevision, this.#revisions.has(key));
    this.#revisions.set(key, modRevision);
    if (modRevision >= (this.#lastPut?.modRevision ?? 0)) this.#lastPut = { key, modRevision, value };
  }
}
