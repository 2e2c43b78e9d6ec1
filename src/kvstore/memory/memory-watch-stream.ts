import { asKvstoreError } from '../errors.ts';
import type { WatchObserver, WatchRequest } from '../transport.ts';
import type { MemoryStore } from './memory-store.ts';

// As etcd 3.4 in a catch-up: a thousand revisions at a time.
const REVISIONS_PER_RESPONSE = 1000;

/**
 * A watch of the memory server. It reads on from its own place in the store's log, so it buffers nothing: a
 * paused stream costs no memory, and one that is overtaken by a compaction ends with `compacted`.
 */
export class MemoryWatchStream {
  readonly #store: MemoryStore;
  readonly #request: WatchRequest;
  readonly #observer: WatchObserver;
  readonly #onGone: () => void;
  #next: number;
  #created = false;
  #paused = false;
  #progressWanted = 0;
  #scheduled = false;
  #open = true;
  #endReason: unknown;

  constructor(store: MemoryStore, request: WatchRequest, observer: WatchObserver, onGone: () => void) {
    this.#store = store;
    this.#request = request;
    this.#observer = observer;
    this.#onGone = onGone;
    this.#next = request.startRevision;
    this.wake();
  }

  /** Whether it goes on: false as soon as it is to end. */
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

  /** Ends it with a reason, which the observer receives in a microtask, even while the stream is paused. */
  end(reason: unknown): void {
    if (!this.#open || this.#endReason !== undefined) return;
    this.#endReason = reason;
    this.wake();
  }

  /** There may be something to deliver. */
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
    this.#onGone();
  }

  #finish(reason: unknown): void {
    this.#close();
    this.#observer.onEnd(reason);
  }

  /** Delivers one thing and comes back for the next, so that observers interleave as they would over a network. */
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

  /** The header is the store's own even when more is to come: it does not say how far the stream is. */
  #deliverEvents(): void {
    const header = this.#store.header;
    if (this.#next <= header.revision) {
      const revisions = this.#store.eventsFrom(this.#next).slice(0, REVISIONS_PER_RESPONSE);
      this.#next += revisions.length;
      const events = revisions.flat().filter(({ key }) => key.startsWith(this.#request.prefix));
      if (events.length > 0) this.#observer.onEvents(events, header, false);
      this.wake();
    } else if (this.#progressWanted > 0) {
      this.#progressWanted--;
      this.#observer.onProgress(header, true);
      this.wake();
    }
  }
}
