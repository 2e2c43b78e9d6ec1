import { KvstoreError } from '../../../src/kvstore/errors.ts';
import type {
  ResponseHeader,
  Transport,
  TransportEvent,
  WatchObserver,
  WatchRequest,
  WatchStream,
} from '../../../src/kvstore/transport.ts';

/** A watch stream that a test can hold back unnoticed, cut in the middle of a response, and end. */
export class FaultyStream implements WatchStream {
  readonly prefix: string;
  readonly #stream: WatchStream;
  readonly #observer: WatchObserver;
  readonly #onGone: () => void;
  #paused = false;
  #stalled = false;
  #open = true;
  #ending = false;
  #cutAfter = Number.POSITIVE_INFINITY;

  constructor(inner: Transport, request: WatchRequest, observer: WatchObserver, onGone: () => void) {
    this.prefix = request.prefix;
    this.#observer = observer;
    this.#onGone = onGone;
    this.#stream = inner.watch(request, {
      onCreated: (header) => this.#pass(() => observer.onCreated(header)),
      onEvents: (events, header, partial) => this.#pass(() => this.#onEvents(events, header, partial)),
      onProgress: (header, requested) => this.#pass(() => observer.onProgress(header, requested)),
      onEnd: (reason) => this.#finish(reason),
    });
  }

  pause(): void {
    this.#paused = true;
    this.#stream.pause();
  }

  resume(): void {
    this.#paused = false;
    if (!this.#stalled) this.#stream.resume();
  }

  requestProgress(): void {
    this.#stream.requestProgress();
  }

  cancel(): void {
    this.#close();
  }

  /** Holds back everything, unnoticed by the client: a black hole, or a slow link. */
  stall(): void {
    this.#stalled = true;
    this.#stream.pause();
  }

  unstall(): void {
    this.#stalled = false;
    if (!this.#paused) this.#stream.resume();
  }

  /** Breaks the stream once so many more events have been delivered, in the middle of a response if need be. */
  cutAfter(events: number): void {
    this.#cutAfter = events;
  }

  /** Ends it with a reason, in a later microtask, even while it is held. */
  end(reason: unknown): void {
    if (this.#ending) return;
    this.#ending = true;
    queueMicrotask(() => this.#finish(reason));
  }

  #pass(deliver: () => void): void {
    if (this.#open && !this.#ending) deliver();
  }

  #onEvents(events: readonly TransportEvent[], header: ResponseHeader, partial: boolean): void {
    const cut = events.length > this.#cutAfter;
    const delivered = cut ? events.slice(0, this.#cutAfter) : events;
    this.#cutAfter -= delivered.length;
    if (delivered.length > 0) this.#observer.onEvents(delivered, header, partial);
    if (cut) this.end(new KvstoreError('unavailable', 'connection reset'));
  }

  #finish(reason: unknown): void {
    if (!this.#open) return;
    this.#close();
    this.#observer.onEnd(reason);
  }

  #close(): void {
    if (!this.#open) return;
    this.#open = false;
    this.#stream.cancel();
    this.#onGone();
  }
}
