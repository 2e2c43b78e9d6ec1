import type { WatchEvent } from '../session/backend.ts';
import { TableEvent } from '../session/table-event.ts';
import { entrySize } from '../session/wire-key-value.ts';
import type { WatchLimits } from './watch-limits.ts';

// Memory of an item in addition to key and value: the object and its array slot.
const ENTRY_BYTES = 80;

const LIST_DONE: WatchEvent = { type: 'list-done', key: '', value: new Uint8Array(0), modRevision: 0 };

function weight(event: WatchEvent): number {
  return ENTRY_BYTES + entrySize(event instanceof TableEvent ? event.kv : event);
}

export type QueueLimits = Pick<WatchLimits, 'batchEvents' | 'highWaterBytes' | 'lowWaterBytes'>;

/**
 * The queue between a watch and its only reader. The watch must pause if the queue is full, so that memory is bounded
 * (I11). If more than `highWaterBytes` are queued, {@link shorten} first drops all but the last write of each key.
 */
export class EventQueue {
  readonly #limits: QueueLimits;
  #items: WatchEvent[] = [];
  /** Index of the first event that the reader has not taken. */
  #head = 0;
  #bytes = 0;
  /**
   * Bytes above which the queue coalesces: at least 1.5 times the bytes that remained last time, so that the cost per
   * event is constant.
   */
  #coalesceAbove: number;
  #isEnded = false;
  #wakeReader: (() => void) | undefined;
  #wakeSource: (() => void) | undefined;

  constructor(limits: QueueLimits) {
    this.#limits = limits;
    this.#coalesceAbove = limits.highWaterBytes;
  }

  get bytes(): number {
    return this.#bytes;
  }

  get isEmpty(): boolean {
    return this.#head === this.#items.length;
  }

  /** True if the source must pause. */
  get isFull(): boolean {
    return this.#bytes > this.#limits.highWaterBytes;
  }

  /** Adds an event. Its type must be `create` if the key does not exist after the events that were queued before. */
  push(event: WatchEvent): void {
    this.#items.push(event);
    this.#bytes += weight(event);
  }

  pushListDone(): void {
    this.push(LIST_DONE);
  }

  /**
   * Coalesces a long queue. Call it after pushing events of a watch stream, but not after a listing, which contains
   * each key only once.
   */
  shorten(): void {
    if (this.#bytes <= this.#coalesceAbove) return;
    // One revision writes each key only once.
    const isOneRevision = this.#items[this.#head]?.modRevision === this.#items.at(-1)?.modRevision;
    if (!isOneRevision) this.#coalesce();
  }

  /** Wakes a waiting reader after the source has pushed events. */
  flush(): void {
    this.#wakeReader?.();
  }

  /** Returns the next batch; an empty one if the queue has ended. */
  async next(): Promise<readonly WatchEvent[]> {
    while (this.isEmpty && !this.#isEnded) {
      await new Promise<void>((resolve) => {
        this.#wakeReader = resolve;
      });
    }
    const batch = this.take();
    if (this.#bytes < this.#limits.lowWaterBytes) this.#wakeSource?.();
    return batch;
  }

  /** Resolves when the source may continue. */
  async whenNotFull(): Promise<void> {
    if (!this.isFull || this.#isEnded) return;
    await new Promise<void>((resolve) => {
      this.#wakeSource = resolve;
    });
  }

  /** Discards queued events and releases both sides. */
  end(): void {
    this.#isEnded = true;
    this.#items = [];
    this.#head = 0;
    this.#bytes = 0;
    this.flush();
    this.#wakeSource?.();
  }

  /**
   * Removes and returns the next batch, or an empty batch if no events are queued. A batch ends after `list-done`. The
   * writes of one revision are in one batch, unless there are more than `batchEvents`.
   */
  take(): readonly WatchEvent[] {
    const end = this.#batchEnd();
    const isAll = this.#head === 0 && end === this.#items.length;
    const batch = isAll ? this.#items : this.#items.slice(this.#head, end);
    if (isAll) this.#bytes = 0;
    else for (const event of batch) this.#bytes -= weight(event);
    this.#head = end;
    this.#trim();
    return batch;
  }

  /** Returns the index after the next batch. */
  #batchEnd(): number {
    const limit = Math.min(this.#items.length, this.#head + this.#limits.batchEvents);
    for (let i = this.#head; i < limit; i++) if (this.#items[i] === LIST_DONE) return i + 1;
    if (limit === this.#items.length) return limit;
    let end = limit;
    while (end > this.#head && this.#items[end - 1]?.modRevision === this.#items[end]?.modRevision) end--;
    return end === this.#head ? limit : end;
  }

  /** Frees taken events. */
  #trim(): void {
    if (this.isEmpty) {
      this.#items = [];
      this.#head = 0;
      this.#coalesceAbove = this.#limits.highWaterBytes;
    } else if (this.#head > this.#limits.batchEvents && this.#head > this.#items.length / 2) {
      // More items are freed than copied, so the cost per item is constant.
      this.#items = this.#items.slice(this.#head);
      this.#head = 0;
    }
  }

  /**
   * Drops all events of a key except the last, and keeps the order. No event is moved across `list-done`, because
   * listed keys must be delivered before it. If a key was created and deleted before the reader received it, no event
   * remains.
   */
  #coalesce(): void {
    const remaining: WatchEvent[] = [];
    let latest = new Map<string, WatchEvent>();
    for (const event of this.#items.slice(this.#head)) {
      const { key } = event;
      if (event === LIST_DONE) {
        for (const earlier of latest.values()) remaining.push(earlier);
        remaining.push(LIST_DONE);
        latest = new Map();
        continue;
      }
      const isNew = (latest.get(key) ?? event).type === 'create';
      latest.delete(key); // moves the key to the end
      if (event.type !== 'delete') latest.set(key, withType(event, isNew ? 'create' : 'modify'));
      else if (!isNew) latest.set(key, event);
    }
    for (const event of latest.values()) remaining.push(event);
    this.#items = remaining;
    this.#head = 0;
    this.#bytes = remaining.reduce((sum, event) => sum + weight(event), 0);
    this.#coalesceAbove = Math.max(this.#limits.highWaterBytes, this.#bytes * 1.5);
  }
}

function withType(event: WatchEvent, type: 'create' | 'modify'): WatchEvent {
  if (type === event.type) return event;
  return event instanceof TableEvent ? new TableEvent(type, event.kv, event.row) : { ...event, type };
}
