import type { WatchEvent } from '../session/backend.ts';
import type { WatchLimits } from './watch-limits.ts';

/** A queued item: a write, a delete (`value` undefined), or the end of the first list. */
interface Pending {
  readonly key: string;
  readonly value: Uint8Array | undefined;
  readonly modRevision: number;
  /** True if the reader knows the key when it takes this item. */
  readonly known: boolean;
}

// Memory of an item in addition to key and value: the object and its array slot.
const ENTRY_BYTES = 80;

const EMPTY = new Uint8Array(0);
const LIST_DONE: Pending = { key: '', value: EMPTY, modRevision: 0, known: false };

function weight(pending: Pending): number {
  return ENTRY_BYTES + pending.key.length + (pending.value?.length ?? 0);
}

function asEvent(pending: Pending): WatchEvent {
  if (pending === LIST_DONE) return { type: 'list-done', key: '', value: EMPTY, modRevision: 0 };
  const { key, value, modRevision, known } = pending;
  if (value === undefined) return { type: 'delete', key, value: EMPTY, modRevision };
  return { type: known ? 'modify' : 'create', key, value, modRevision };
}

/** The limits of an {@link EventQueue}. */
export type QueueLimits = Pick<WatchLimits, 'batchEvents' | 'highWaterBytes' | 'lowWaterBytes'>;

/**
 * Events between a watch and its reader. Costs nothing while the reader keeps up. If more than `highWaterBytes` are queued,
 * {@link relieve} keeps only the last write of each key. If that is not enough, the source must pause (I11).
 */
export class EventQueue {
  readonly #limits: QueueLimits;
  #items: Pending[] = [];
  #head = 0;
  #bytes = 0;
  /** Size at which the queue coalesces next. It grows by half each time, so the cost per event is constant. */
  #coalesceAt: number;

  constructor(limits: QueueLimits) {
    this.#limits = limits;
    this.#coalesceAt = limits.highWaterBytes;
  }

  get bytes(): number {
    return this.#bytes;
  }

  get isEmpty(): boolean {
    return this.#head === this.#items.length;
  }

  /** @param known true if the watch knew the key before this event */
  push(key: string, value: Uint8Array | undefined, modRevision: number, known: boolean): void {
    this.#append({ key, value, modRevision, known });
  }

  /** Coalesces a long queue. Call it after events of a stream. A listing has each key once, so it would gain nothing. */
  relieve(): void {
    if (this.#bytes > this.#coalesceAt) this.#coalesce();
  }

  pushListDone(): void {
    this.#append(LIST_DONE);
  }

  /** Discards all queued events. */
  clear(): void {
    this.#items = [];
    this.#head = 0;
    this.#bytes = 0;
  }

  /**
   * Returns the next batch, or an empty one if none is queued. A batch ends after `list-done`. The writes of one revision are in
   * one batch unless there are more than `batchEvents`.
   */
  drain(): WatchEvent[] {
    const end = this.#batchEnd();
    const batch: WatchEvent[] = [];
    for (let i = this.#head; i < end; i++) {
      const pending = this.#items[i];
      if (pending === undefined) continue;
      this.#bytes -= weight(pending);
      batch.push(asEvent(pending));
    }
    this.#head = end;
    this.#trim();
    return batch;
  }

  #append(pending: Pending): void {
    this.#items.push(pending);
    this.#bytes += weight(pending);
  }

  #batchEnd(): number {
    const limit = Math.min(this.#items.length, this.#head + this.#limits.batchEvents);
    for (let i = this.#head; i < limit; i++) if (this.#items[i] === LIST_DONE) return i + 1;
    if (limit === this.#items.length) return limit;
    let end = limit;
    while (end > this.#head && this.#items[end - 1]?.modRevision === this.#items[end]?.modRevision) end--;
    return end === this.#head ? limit : end;
  }

  #trim(): void {
    if (this.isEmpty) {
      this.#items = [];
      this.#head = 0;
      this.#coalesceAt = this.#limits.highWaterBytes;
    } else if (this.#head > this.#limits.batchEvents && this.#head > this.#items.length / 2) {
      // At least half of the array is free, so each item moves at most once.
      this.#items = this.#items.slice(this.#head);
      this.#head = 0;
    }
  }

  /**
   * Keeps the last event of each key, in order. Nothing moves across `list-done`, because listed keys must be delivered before it.
   * If a key was created and deleted before the reader saw it, no event remains.
   */
  #coalesce(): void {
    const kept: Pending[] = [];
    let latest = new Map<string, Pending>();
    for (const pending of this.#items.slice(this.#head)) {
      if (pending === LIST_DONE) {
        for (const earlier of latest.values()) kept.push(earlier);
        kept.push(LIST_DONE);
        latest = new Map();
        continue;
      }
      const earlier = latest.get(pending.key);
      latest.delete(pending.key); // moves the key to the end
      const known = earlier === undefined ? pending.known : earlier.known;
      if (!known && pending.value === undefined) continue;
      latest.set(pending.key, known === pending.known ? pending : { ...pending, known });
    }
    for (const pending of latest.values()) kept.push(pending);
    this.#items = kept;
    this.#head = 0;
    this.#bytes = kept.reduce((sum, pending) => sum + weight(pending), 0);
    this.#coalesceAt = Math.max(this.#limits.highWaterBytes, this.#bytes * 1.5);
  }
}
