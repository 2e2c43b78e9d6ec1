import { assert } from '../../base/assert.ts';
import type { Clock, Timer } from '../../base/clock.ts';
import { abortedError, asKvstoreError, KvstoreError } from '../errors.ts';
import { prefixRange } from '../key-range.ts';
import type {
  RangeRequest,
  RangeResponse,
  ResponseHeader,
  Transport,
  TransportEvent,
  WatchRequest,
  WatchStream,
} from '../transport.ts';

/** A stream to open. */
export interface SessionOptions {
  readonly transport: Pick<Transport, 'watch'>;
  readonly request: WatchRequest;
  readonly clock: Clock;
  readonly signal: AbortSignal;
}

/** How a stream is followed, and who receives what it delivers. */
export interface FollowOptions {
  /** After so long the stream is left, in good health. */
  readonly lifetimeMs: number;
  /** Whole revisions, always. */
  onEvents(events: readonly TransportEvent[]): void;
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
const ANSWER_MS = 30_000;

/**
 * One watch stream, from its opening to its end: first paused, while what is known is compared with what its server
 * holds, then followed. When it is closed nothing is delivered any more.
 */
export class WatchSession {
  /** The server has accepted the watch. Nothing is delivered before `follow`. */
  readonly opened: Promise<ResponseHeader>;
  readonly #options: SessionOptions;
  readonly #stream: WatchStream;
  /** Ends the reads under way with the stream. */
  readonly #over = new AbortController();
  #onOpened: (header: ResponseHeader) => void = () => {};
  #follower: StreamFollower | undefined;
  #reason: unknown;

  constructor(options: SessionOptions) {
    this.#options = options;
    const { transport, request, signal } = options;
    this.opened = new Promise((resolve, reject) => {
      this.#onOpened = resolve;
      this.#over.signal.addEventListener('abort', () => reject(this.#reason));
    });
    this.opened.catch(() => {}); // whoever waits for it receives it
    this.#stream = transport.watch(request, {
      onCreated: (header) => {
        this.#stream.pause();
        this.#onOpened(header);
      },
      onEvents: (events, _header, partial) => this.#deliver((to) => to.onEvents(events, partial)),
      onProgress: (header, requested) => this.#deliver((to) => to.onProgress(header, requested)),
      onEnd: (reason) => this.close(reason ?? new KvstoreError('unavailable', 'the stream has ended')),
    });
    signal.addEventListener('abort', this.#onAbort);
    if (signal.aborted) this.#onAbort();
  }

  /** A read from the server of the stream; it fails with the stream. */
  async range(request: RangeRequest, deadlineMs?: number): Promise<RangeResponse> {
    const { signal } = this.#over;
    try {
      return await this.#stream.range(request, { signal, deadlineMs });
    } catch (error) {
      throw signal.aborted ? this.#reason : error;
    }
  }

  /** Ends the session if the prefix may not be read any more. Other failures are the stream's to show. Never rejects. */
  async checkRights(prefix: string): Promise<void> {
    const refusal = (): Promise<KvstoreError | undefined> => {
      const request = { ...prefixRange(prefix), limit: 1, keysOnly: true };
      return this.range(request).then(() => undefined, asKvstoreError);
    };
    let refused = await refusal();
    // The token of a client that only watches expires unused; now another one is fetched.
    if (refused?.code === 'invalid-token') refused = await refusal();
    if (refused?.code === 'forbidden') this.close(refused);
  }

  /** Follows the stream until it has lasted `lifetimeMs` (resolves), fails, falls silent, or is closed (rejects). */
  follow(options: FollowOptions): Promise<void> {
    const follower = new StreamFollower(this.#stream, this.#options.clock, options);
    this.#follower = follower;
    const { signal } = this.#over;
    if (signal.aborted) follower.finish(this.#reason);
    else this.#stream.resume();
    return follower.done;
  }

  /** Idempotent. */
  close(reason: unknown = abortedError()): void {
    const { signal } = this.#over;
    if (signal.aborted) return;
    this.#reason = reason;
    this.#options.signal.removeEventListener('abort', this.#onAbort);
    this.#stream.cancel();
    this.#over.abort();
    this.#follower?.finish(reason);
  }

  readonly #onAbort = (): void => this.close();

  #deliver(deliver: (to: StreamFollower) => void): void {
    try {
      assert(this.#follower, 'a paused stream delivers nothing');
      deliver(this.#follower);
    } catch (error) {
      this.close(error);
    }
  }
}

class StreamFollower {
  readonly done: Promise<void>;
  readonly #stream: WatchStream;
  readonly #clock: Clock;
  readonly #options: FollowOptions;
  readonly #lifetime: Timer;
  /** Events of a revision of which more is to come. */
  #partial: TransportEvent[] = [];
  #idle: Timer;
  #heard = true;
  #paused = false;
  #finished = false;
  #settle: (error: unknown) => void = () => {};

  constructor(stream: WatchStream, clock: Clock, options: FollowOptions) {
    this.#stream = stream;
    this.#clock = clock;
    this.#options = options;
    this.done = new Promise((resolve, reject) => {
      this.#settle = (error) => (error === undefined ? resolve() : reject(error));
    });
    this.#lifetime = clock.after(options.lifetimeMs, () => this.finish(undefined));
    this.#idle = clock.after(IDLE_MS, () => this.#watchdog());
  }

  finish(error: unknown): void {
    if (this.#finished) return;
    this.#finished = true;
    this.#lifetime.cancel();
    this.#idle.cancel();
    this.#settle(error);
  }

  onEvents(events: readonly TransportEvent[], partial: boolean): void {
    this.#heard = true;
    if (partial || this.#partial.length > 0) this.#partial.push(...events);
    if (partial || this.#finished) return;
    this.#options.onEvents(this.#partial.length > 0 ? this.#partial : events);
    this.#partial = [];
    if (this.#options.isFull()) this.#pause(this.#options.room());
  }

  onProgress(header: ResponseHeader, requested: boolean): void {
    this.#heard = true;
    // etcd below 3.4.25 answers a request before it has sent all events (#15220): that moves nothing.
    if (!requested && !this.#finished) this.#options.onProgress(header);
  }

  /** Once a minute: a stream that has said nothing since the last time is asked whether it lives. */
  #watchdog(): void {
    if (this.#heard || this.#paused) {
      this.#heard = false;
      this.#options.onAlive();
      this.#idle = this.#clock.after(IDLE_MS, () => this.#watchdog());
      return;
    }
    this.#stream.requestProgress();
    this.#idle = this.#clock.after(ANSWER_MS, () => {
      if (this.#heard) this.#watchdog();
      else this.finish(new KvstoreError('unavailable', 'the watch stream has fallen silent'));
    });
  }

  #pause(until: Promise<void>): void {
    this.#paused = true;
    this.#stream.pause();
    until.then(
      () => {
        this.#paused = false;
        if (!this.#finished) this.#stream.resume();
      },
      (error: unknown) => this.finish(error),
    );
  }
}
