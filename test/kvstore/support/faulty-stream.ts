import { KvstoreError } from '../../../src/kvstore/session/errors.ts';
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
} from '../../../src/kvstore/session/transport.ts';

/** The link that a {@link FaultyStream} goes over. */
export interface StreamLink {
  /** Makes a read as the link makes its calls. */
  read(
    request: RangeRequest,
    options: CallOptions | undefined,
    run: () => Promise<RangeResponse>,
  ): Promise<RangeResponse>;
  onGone(): void;
}

/** A watch stream that a test can hold back unnoticed, cut in the middle of a response, and end. */
export class FaultyStream implements WatchStream {
  readonly prefix: string;
  readonly #stream: WatchStream;
  readonly #observer: WatchObserver;
  readonly #link: StreamLink;
  #paused = false;
  #stalled = false;
  #open = true;
  #ending = false;
  #cutAfter = Number.POSITIVE_INFINITY;

  /** @param link what stands between the stream and its server */
  constructor(inner: Transport, request: WatchRequest, observer: WatchObserver, link: StreamLink) {
    this.prefix = request.prefix;
    this.#link = link;
    this.#observer = observer;
    this.#stream = inner.watch(request, {
      onCreated: (header) => this.#pass(() => observer.onCreated(header)),
      onEvents: (events, header, partial) => this.#pass(() => this.#onEvents(events, header, partial)),
      onProgress: (header, requested) => this.#pass(() => observer.onProgress(header, requested)),
      onEnd: (reason) => this.#finish(reason),
    });
  }

  range(request: RangeRequest, options?: CallOptions): Promise<RangeResponse> {
    return this.#link.read(request, options, () => this.#stream.range(request, options));
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
    if (!cut) {
      this.#observer.onEvents(delivered, header, partial);
      return;
    }
    // A server marks what is less than a whole revision.
    const next = events[delivered.length]?.modRevision;
    const whole = delivered.filter(({ modRevision }) => modRevision !== next);
    if (whole.length > 0) this.#observer.onEvents(whole, header, false);
    this.#observer.onEvents(delivered.slice(whole.length), header, true);
    this.end(new KvstoreError('unavailable', 'connection reset'));
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
    this.#link.onGone();
  }
}
