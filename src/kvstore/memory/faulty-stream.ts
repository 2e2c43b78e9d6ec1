import { KvstoreError } from '../session/errors.ts';
import type {
  CallOptions,
  RangeRequest,
  RangeResponse,
  ResponseHeader,
  Transport,
  TransportEvent,
  WatchObserver,
  WatchRequest,
  WatchStream,
} from '../session/transport.ts';

export interface StreamLink {
  /** Runs a read with the faults of the link. */
  read(
    request: RangeRequest,
    options: CallOptions | undefined,
    run: () => Promise<RangeResponse>,
  ): Promise<RangeResponse>;
  onEnded(): void;
}

/** A watch stream that can be delayed, cut within a response, and ended. */
export class FaultyStream implements WatchStream {
  readonly prefix: string;
  readonly #stream: WatchStream;
  readonly #observer: WatchObserver;
  readonly #link: StreamLink;
  #isPaused = false;
  #isStalled = false;
  #isOpen = true;
  /** True if the stream ends in a later microtask. */
  #isEnding = false;
  /** Number of further events before the stream breaks. */
  #cutAfter = Number.POSITIVE_INFINITY;

  constructor(inner: Transport, request: WatchRequest, observer: WatchObserver, link: StreamLink) {
    this.prefix = request.prefix;
    this.#link = link;
    this.#observer = observer;
    this.#stream = inner.watch(request, {
      onCreated: (header) => this.#pass(() => observer.onCreated(header)),
      onEvents: (events, header, isPartial) => this.#pass(() => this.#onEvents(events, header, isPartial)),
      onProgress: (header, isRequested) => this.#pass(() => observer.onProgress(header, isRequested)),
      onEnd: (reason) => this.#finish(reason),
    });
  }

  range(request: RangeRequest, options?: CallOptions): Promise<RangeResponse> {
    return this.#link.read(request, options, () => this.#stream.range(request, options));
  }

  pause(): void {
    this.#isPaused = true;
    this.#stream.pause();
  }

  resume(): void {
    this.#isPaused = false;
    if (!this.#isStalled) this.#stream.resume();
  }

  requestProgress(): void {
    this.#stream.requestProgress();
  }

  cancel(): void {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    this.#stream.cancel();
    this.#link.onEnded();
  }

  /** Delays everything without an error, like a black hole or a slow link. */
  stall(): void {
    this.#isStalled = true;
    this.#stream.pause();
  }

  unstall(): void {
    this.#isStalled = false;
    if (!this.#isPaused) this.#stream.resume();
  }

  /** Breaks the stream after this number of events, possibly within a response. */
  cutAfter(events: number): void {
    this.#cutAfter = events;
  }

  /** Ends the stream with this reason in a later microtask, also while it is paused or delayed. */
  end(reason: unknown): void {
    if (this.#isEnding) return;
    this.#isEnding = true;
    queueMicrotask(() => this.#finish(reason));
  }

  #pass(deliver: () => void): void {
    if (this.#isOpen && !this.#isEnding) deliver();
  }

  #onEvents(events: readonly TransportEvent[], header: ResponseHeader, isPartial: boolean): void {
    const isCut = events.length > this.#cutAfter;
    const delivered = isCut ? events.slice(0, this.#cutAfter) : events;
    this.#cutAfter -= delivered.length;
    if (!isCut) {
      this.#observer.onEvents(delivered, header, isPartial);
      return;
    }
    // Like etcd, deliver the events of the cut revision separately, and mark them as partial.
    const cutRevision = events[delivered.length]?.modRevision;
    const complete = delivered.filter(({ modRevision }) => modRevision !== cutRevision);
    if (complete.length > 0) this.#observer.onEvents(complete, header, false);
    this.#observer.onEvents(delivered.slice(complete.length), header, true);
    this.end(new KvstoreError('unavailable', 'connection reset'));
  }

  #finish(reason: unknown): void {
    if (!this.#isOpen) return;
    this.cancel();
    this.#observer.onEnd(reason);
  }
}
