import type { Clock, Timer } from '../../base/clock.ts';
import { abortedError, KvstoreError } from '../errors.ts';
import type { ResponseHeader, Transport, TransportEvent, WatchRequest, WatchStream } from '../transport.ts';

/** A stream to follow, and who is told. */
export interface FollowOptions {
  readonly transport: Transport;
  readonly request: WatchRequest;
  readonly clock: Clock;
  readonly signal: AbortSignal;
  /** After so long the stream is left, in good health. */
  readonly lifetimeMs: number;
  /** May throw: the stream is then left with that error. */
  onCreated(header: ResponseHeader): void;
  /** Asked once the stream is open: no event of it is told before this resolves, none at all if it rejects. */
  confirm(): Promise<void>;
  /** Whole revisions, always. */
  onEvents(events: readonly TransportEvent[], header: ResponseHeader): void;
  /** Nothing happened up to the header's revision. */
  onProgress(header: ResponseHeader): void;
  /** The stream has been up for a while. */
  onAlive(): void;
  /** Whether the reader lags; if so the stream pauses until `room` resolves. */
  isFull(): boolean;
  room(): Promise<void>;
}

// A stream that says nothing for so long is asked for a sign of life, and has the second time to give it.
const IDLE_MS = 60_000;
const ANSWER_MS = 10_000;

/**
 * Follows a watch stream until it has lasted `lifetimeMs` (resolves), fails, falls silent, or the signal fires
 * (rejects). When it settles the stream is closed, and nothing is told any more.
 */
export function followStream(options: FollowOptions): Promise<void> {
  return new StreamFollower(options).done;
}

class StreamFollower {
  readonly done: Promise<void>;
  readonly #options: FollowOptions;
  readonly #stream: WatchStream;
  readonly #lifetime: Timer;
  /** Events of a revision of which more is to come. */
  #partial: TransportEvent[] = [];
  #idle: Timer;
  #heard = false;
  #paused = false;
  #settled = false;
  #settle: (error: unknown) => void = () => {};

  constructor(options: FollowOptions) {
    this.#options = options;
    const { transport, request, clock, signal, lifetimeMs } = options;
    this.done = new Promise((resolve, reject) => {
      this.#settle = (error) => (error === undefined ? resolve() : reject(error));
    });
    this.#lifetime = clock.after(lifetimeMs, () => this.#finish(undefined));
    this.#idle = clock.after(IDLE_MS, () => this.#watchdog());
    this.#stream = transport.watch(request, {
      onCreated: (header) =>
        this.#told(() => {
          options.onCreated(header);
          this.#pause(options.confirm());
        }),
      onEvents: (events, header, partial) => this.#told(() => this.#events(events, header, partial)),
      onProgress: (header, requested) =>
        this.#told(() => {
          // etcd below 3.4.25 answers a request before it has sent all events (#15220): that moves nothing.
          if (!requested) options.onProgress(header);
        }),
      onEnd: (reason) => this.#finish(reason ?? new KvstoreError('unavailable', 'the stream has ended')),
    });
    signal.addEventListener('abort', this.#onAbort);
    if (signal.aborted) this.#onAbort();
  }

  readonly #onAbort = (): void => this.#finish(abortedError());

  #finish(error: unknown): void {
    if (this.#settled) return;
    this.#settled = true;
    this.#lifetime.cancel();
    this.#idle.cancel();
    this.#options.signal.removeEventListener('abort', this.#onAbort);
    this.#stream.cancel();
    this.#settle(error);
  }

  #told(tell: () => void): void {
    if (this.#settled) return;
    this.#heard = true;
    try {
      tell();
    } catch (error) {
      this.#finish(error);
    }
  }

  /** Once a minute: a stream that has said nothing since the last time is asked whether it lives. */
  #watchdog(): void {
    const { clock } = this.#options;
    if (this.#heard || this.#paused) {
      this.#heard = false;
      this.#options.onAlive();
      this.#idle = clock.after(IDLE_MS, () => this.#watchdog());
      return;
    }
    this.#stream.requestProgress();
    this.#idle = clock.after(ANSWER_MS, () => {
      if (this.#heard) this.#watchdog();
      else this.#finish(new KvstoreError('unavailable', 'the watch stream has fallen silent'));
    });
  }

  #events(events: readonly TransportEvent[], header: ResponseHeader, partial: boolean): void {
    if (partial || this.#partial.length > 0) this.#partial.push(...events);
    if (partial) return;
    this.#options.onEvents(this.#partial.length > 0 ? this.#partial : events, header);
    this.#partial = [];
    if (this.#options.isFull()) this.#pause(this.#options.room());
  }

  #pause(until: Promise<void>): void {
    this.#paused = true;
    this.#stream.pause();
    until.then(
      () => {
        this.#paused = false;
        if (!this.#settled) this.#stream.resume();
      },
      (error: unknown) => this.#finish(error),
    );
  }
}
