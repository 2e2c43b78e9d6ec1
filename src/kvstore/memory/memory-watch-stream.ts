import { asKvstoreError } from '../session/errors.ts';
import type { ResponseHeader, TransportEvent, WatchObserver, WatchRequest } from '../session/transport.ts';
import type { MemoryStore } from './memory-store.ts';

// As in a catch-up of etcd 3.4: a thousand revisions at a time.
const REVISIONS_PER_RESPONSE = 1000;

/**
 * A watch of the memory server. It reads the log of the store from its own position, so a paused stream holds at most one response.
 * If a compaction overtakes it, it ends with `compacted`.
 */
export class MemoryWatchStream {
  readonly #store: MemoryStore;
  readonly #request: WatchRequest;
  readonly #observer: WatchObserver;
  readonly #sliceEvents: number;
  readonly #onEnded: () => void;
  #next: number;
  /** The events of the current response, and the number of those delivered. */
  #events: readonly TransportEvent[] = [];
  #delivered = 0;
  #created = false;
  #paused = false;
  #progressWanted = 0;
  #scheduled = false;
  #open = true;
  #endReason: unknown;

  /** @param sliceEvents maximum number of events of one delivery */
  constructor(
    store: MemoryStore,
    request: WatchRequest,
    observer: WatchObserver,
    sliceEvents: number,
    onEnded: () => void,
  ) {
    this.#store = store;
    this.#request = request;
    this.#observer = observer;
    this.#sliceEvents = sliceEvents;
    this.#onEnded = onEnded;
    this.#next = request.startRevision;
    this.wake();
  }

  /** Returns true until the stream ended or is about to end. */
  get isOpen(): boolean {
    return this.#open && this.#endReason === undefined;
  }

  pause(): void {
    this.#paused = true;
  }

  resume(): void {
    this.#paused = false;
    this.wake();
  }

  requestProgress(): void {
    this.#progressWanted++;
    this.wake();
  }

  cancel(): void {
    this.#close();
  }

  /** Ends the stream. The observer receives the reason in a microtask, even if the stream is paused. */
  end(reason: unknown): void {
    if (!this.#open || this.#endReason !== undefined) return;
    this.#endReason = reason;
    this.wake();
  }

  /** Schedules a delivery, because there may be events. */
  wake(): void {
    if (this.#scheduled || !this.#open) return;
    this.#scheduled = true;
    queueMicrotask(() => {
      this.#scheduled = false;
      this.#deliver();
    });
  }

  #close(): void {
    if (!this.#open) return;
    this.#open = false;
    this.#onEnded();
  }

  #finish(reason: unknown): void {
    this.#close();
    this.#observer.onEnd(reason);
  }

  /** Delivers one item per microtask, so that observers interleave as over a network. */
  #deliver(): void {
    if (!this.#open) return;
    if (this.#endReason !== undefined) this.#finish(this.#endReason);
    else if (!this.#paused) this.#deliverNext();
  }

  #deliverNext(): void {
    try {
      if (this.#created) this.#deliverEvents();
      else this.#deliverCreated();
    } catch (error) {
      this.#finish(asKvstoreError(error));
    }
  }

  #deliverCreated(): void {
    const { header } = this.#store;
    this.#created = true;
    this.#next ||= header.revision + 1;
    this.#observer.onCreated(header);
    this.wake();
  }

  /**
   * Delivers events. The header is that of the store, even if more events follow, so it does not show the position of the stream.
   */
  #deliverEvents(): void {
    const header = this.#store.header;
    if (this.#delivered < this.#events.length) {
      this.#deliverSlice(header);
      this.wake();
    } else if (this.#next <= header.revision) {
      const revisions = this.#store.eventsFrom(this.#next, REVISIONS_PER_RESPONSE, this.#request.prefix);
      this.#next += revisions.length;
      this.#events = revisions.flat();
      this.#delivered = 0;
      this.#deliverSlice(header);
      this.wake();
    } else if (this.#progressWanted > 0) {
      this.#progressWanted--;
      this.#observer.onProgress(header, true);
      this.wake();
    }
  }

  #deliverSlice(header: ResponseHeader): void {
    const slice = this.#events.slice(this.#delivered, this.#delivered + this.#sliceEvents);
    this.#delivered += slice.length;
    const next = this.#events[this.#delivered];
    if (next === undefined) [this.#events, this.#delivered] = [[], 0];
    if (slice.length === 0) return;
    this.#observer.onEvents(slice, header, next?.modRevision === slice.at(-1)?.modRevision);
  }
}
