import { asKvstoreError, KvstoreError } from '../errors.ts';
import type { TransportEvent, WatchObserver, WatchRequest, WatchStream } from '../transport.ts';
import type { MemoryStore } from './memory-store.ts';

/** Why a stream is not delivering: any one is enough. */
type Hold = 'paused' | 'stalled';

// As etcd 3.4 in a catch-up: a thousand revisions at a time.
const REVISIONS_PER_RESPONSE = 1000;

/**
 * A watch of the memory server. It reads on from its own place in the store's log, so it buffers nothing: a
 * paused stream costs no memory, and one that is overtaken by a compaction ends with `compacted`.
 */
export class MemoryWatchStream implements WatchStream {
  readonly prefix: string;
  readonly #store: MemoryStore;
  readonly #observer: WatchObserver;
  readonly #onGone: () => void;
  readonly #holds = new Set<Hold>();
  #next: number;
  #created = false;
  #progressWanted = 0;
  #scheduled = false;
  #open = true;
  #cutAfter = Number.POSITIVE_INFINITY;
  #endReason: unknown;

  constructor(store: MemoryStore, request: WatchRequest, observer: WatchObserver, onGone: () => void) {
    this.prefix = request.prefix;
    this.#store = store;
    this.#observer = observer;
    this.#onGone = onGone;
    this.#next = request.startRevision;
    this.wake();
  }

  pause(): void {
    this.#holds.add('paused');
  }

  resume(): void {
    this.#holds.delete('paused');
    this.wake();
  }

  requestProgress(): void {
    this.#progressWanted++;
    this.wake();
  }

  cancel(): void {
    this.#close();
  }

  /** Holds back everything, unnoticed by the client: a black hole, or a slow link. */
  stall(): void {
    this.#holds.add('stalled');
  }

  unstall(): void {
    this.#holds.delete('stalled');
    this.wake();
  }

  /** Breaks the stream once so many more events have been delivered, in the middle of a response if need be. */
  cutAfter(events: number): void {
    this.#cutAfter = events;
  }

  /** Ends it with a reason, told in a microtask even while it is held. */
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

  /** Tells one thing and comes back for the next, so that observers interleave as they would over a network. */
  #deliver(): void {
    if (!this.#open) return;
    if (this.#endReason !== undefined) this.#finish(this.#endReason);
    else if (this.#holds.size === 0) this.#deliverNext();
  }

  #deliverNext(): void {
    try {
      if (this.#created) this.#deliverEvents();
      else this.#tellCreated();
    } catch (error) {
      this.#finish(asKvstoreError(error));
    }
  }

  #tellCreated(): void {
    this.#created = true;
    this.#observer.onCreated(this.#store.header);
    this.wake();
  }

  #deliverEvents(): void {
    const header = this.#store.header;
    if (this.#next <= header.revision) {
      const revisions = this.#store.eventsFrom(this.#next).slice(0, REVISIONS_PER_RESPONSE);
      this.#next += revisions.length;
      this.#tell(revisions.flat().filter((event) => event.key.startsWith(this.prefix)));
      this.wake();
    } else if (this.#progressWanted > 0) {
      this.#progressWanted--;
      this.#observer.onProgress(header, true);
      this.wake();
    }
  }

  /** The header is the store's own even when more is to come: readers must not take it for how far they are. */
  #tell(events: readonly TransportEvent[]): void {
    const cut = events.length > this.#cutAfter;
    const told = cut ? events.slice(0, this.#cutAfter) : events;
    this.#cutAfter -= told.length;
    if (told.length > 0) this.#observer.onEvents(told, this.#store.header, false);
    if (cut) this.end(new KvstoreError('unavailable', 'connection reset'));
  }
}
