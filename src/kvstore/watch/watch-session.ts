import { assert } from '../../base/assert.ts';
import type { Clock, Timer } from '../../base/clock.ts';
import { onAbort } from '../../base/follow-signal.ts';
import { type KeyRange, keyRange } from '../codec/key-range.ts';
import { abortedError, asKvstoreError, KvstoreError, type KvstoreErrorCode } from '../session/errors.ts';
import type {
  RangeRequest,
  RangeResponse,
  ResponseHeader,
  Transport,
  TransportEvent,
  WatchRequest,
  WatchStream,
} from '../session/transport.ts';
import { RevisionBuffer } from './revision-buffer.ts';
import type { WatchLimits } from './watch-limits.ts';

/** Parameters of the stream to open. */
export interface SessionOptions {
  readonly transport: Pick<Transport, 'watch'>;
  readonly request: WatchRequest;
  readonly clock: Clock;
  readonly signal: AbortSignal;
  readonly limits: Pick<WatchLimits, 'batchEvents' | 'revisionBytes'>;
}

/** Parameters and callbacks for following a stream. */
export interface FollowStreamOptions {
  /** Duration after which the stream is closed without an error. */
  readonly lifetimeMs: number;
  /**
   * Receives whole revisions, unless one is larger than a batch.
   *
   * @param isPartial true if more events of the last revision may follow
   */
  onEvents(events: readonly TransportEvent[], isPartial: boolean): void;
  /** Called when there were no events up to the revision of the header. */
  onProgress(header: ResponseHeader): void;
  /** Called every minute while the stream is healthy. */
  onAlive(): void;
  /** Returns true if the reader is behind. The stream then pauses until `whenNotFull` resolves. */
  isFull(): boolean;
  whenNotFull(): Promise<void>;
}

// An idle stream is probed after `IDLE_MS`. If there is no answer within `ANSWER_MS`, it fails.
const IDLE_MS = 60_000;
const ANSWER_MS = 30_000;

/**
 * One watch stream, from its opening to its end. The stream is paused while the known keys are compared with its
 * server, and then followed: its events are passed on in whole revisions, and the stream is checked to be alive. After
 * `close` nothing is delivered.
 */
export class WatchSession {
  /** Resolves when the server has accepted the watch. Nothing is delivered before `follow`. */
  readonly opened: Promise<ResponseHeader>;
  readonly #options: SessionOptions;
  readonly #stream: WatchStream;
  readonly #revision: RevisionBuffer;
  /** Fires when the stream ends, and aborts the reads in flight. */
  readonly #ended = new AbortController();
  #onOpened: (header: ResponseHeader) => void = () => {};
  #leaveSignal = (): void => {};
  #reason: unknown;
  /** The caller of `follow`; undefined before the call, and after its promise has settled. */
  #follower: FollowStreamOptions | undefined;
  #wasFollowed = false;
  /** Settles the promise of `follow`; resolves it if the error is undefined. */
  #settle: (error: unknown) => void = () => {};
  #lifetime: Timer | undefined;
  #nextCheck: Timer | undefined;
  /** True if the server has sent anything since the last check. */
  #hasAnswer = true;
  /** True while the followed stream is paused because the reader is behind. */
  #isPaused = false;

  constructor(options: SessionOptions) {
    this.#options = options;
    const { transport, request, signal, limits } = options;
    this.#revision = new RevisionBuffer(limits);
    this.opened = new Promise((resolve, reject) => {
      this.#onOpened = resolve;
      onAbort(this.#ended.signal, () => reject(this.#reason));
    });
    this.opened.catch(() => {}); // each caller that awaits it receives the error
    this.#stream = transport.watch(request, {
      onCreated: (header) => {
        this.#stream.pause();
        this.#onOpened(header);
      },
      onEvents: (events, _header, isPartial) =>
        this.#deliver((to) => this.#passEvents(to, events, isPartial)),
      onProgress: (header, isRequested) => this.#deliver((to) => this.#passProgress(to, header, isRequested)),
      onEnd: (reason) => this.close(reason ?? new KvstoreError('unavailable', 'the stream ended')),
    });
    this.#leaveSignal = onAbort(signal, () => this.close());
  }

  /** Bytes of events that are buffered until their revision is complete. */
  get bufferedBytes(): number {
    return this.#revision.bytes;
  }

  /** Reads from the server of the stream. Fails if the stream fails. */
  async range(request: RangeRequest, deadlineMs?: number): Promise<RangeResponse> {
    const { signal } = this.#ended;
    try {
      return await this.#stream.range(request, { signal, deadlineMs });
    } catch (error) {
      throw signal.aborted ? this.#reason : error;
    }
  }

  /**
   * Closes the session if the range may no longer be read. Ignores other failures, because the stream reports them.
   * Never rejects.
   */
  checkRights(range: KeyRange): Promise<void> {
    return this.#closeIf('forbidden', range);
  }

  /**
   * Closes the session if the history at `revision` is compacted. Before 3.4.31 and 3.5.13, etcd may then have dropped
   * events of a paused stream without an error (#17529). Ignores other failures. Never rejects.
   */
  checkHistory(prefix: string, revision: number): Promise<void> {
    return this.#closeIf('compacted', { ...keyRange(prefix), revision });
  }

  async #closeIf(code: KvstoreErrorCode, request: RangeRequest): Promise<void> {
    const read = this.range({ ...request, limit: 1, keysOnly: true });
    const refused = await read.then(() => undefined, asKvstoreError);
    if (refused?.code === code) this.close(refused);
  }

  /**
   * Follows the stream, once. Resolves after `lifetimeMs`; rejects if the stream fails, stops answering or is closed.
   */
  follow(options: FollowStreamOptions): Promise<void> {
    const { clock } = this.#options;
    this.#wasFollowed = true;
    if (this.#ended.signal.aborted) return Promise.reject(this.#reason);
    this.#follower = options;
    const followed = new Promise<void>((resolve, reject) => {
      this.#settle = (error) => (error === undefined ? resolve() : reject(error));
    });
    this.#lifetime = clock.after(options.lifetimeMs, () => this.#endFollow(undefined));
    this.#nextCheck = clock.after(IDLE_MS, () => this.#watchdog(options));
    this.#stream.resume();
    return followed;
  }

  close(reason: unknown = abortedError()): void {
    const { signal } = this.#ended;
    if (signal.aborted) return;
    this.#reason = reason;
    this.#leaveSignal();
    this.#stream.cancel();
    this.#ended.abort(reason);
    this.#endFollow(reason);
  }

  #endFollow(error: unknown): void {
    this.#follower = undefined;
    this.#lifetime?.cancel();
    this.#nextCheck?.cancel();
    this.#settle(error);
  }

  /** Passes what the stream delivers to the follower. If the follower throws, closes the session. */
  #deliver(pass: (to: FollowStreamOptions) => void): void {
    try {
      assert(this.#wasFollowed, 'a paused stream delivers nothing');
      this.#hasAnswer = true;
      if (this.#follower !== undefined) pass(this.#follower);
    } catch (error) {
      this.close(error);
    }
  }

  #passEvents(to: FollowStreamOptions, events: readonly TransportEvent[], isPartial: boolean): void {
    const ready = this.#revision.add(events, isPartial);
    if (ready.events.length === 0) return;
    to.onEvents(ready.events, ready.isPartial);
    if (to.isFull()) this.#pause(to.whenNotFull());
  }

  #passProgress(to: FollowStreamOptions, header: ResponseHeader, isRequested: boolean): void {
    // Ignore requested progress: etcd below 3.4.25 answers the request before it has sent all events (#15220). Also
    // ignore progress within a revision, because more events of this revision will follow.
    if (!isRequested && !this.#revision.isOpen) to.onProgress(header);
  }

  /** Runs once a minute. If the stream was silent since the last run, requests progress to check that it is alive. */
  #watchdog(to: FollowStreamOptions): void {
    const { clock } = this.#options;
    if (this.#hasAnswer || this.#isPaused) {
      this.#hasAnswer = false;
      to.onAlive();
      this.#nextCheck = clock.after(IDLE_MS, () => this.#watchdog(to));
      return;
    }
    this.#stream.requestProgress();
    this.#nextCheck = clock.after(ANSWER_MS, () => {
      if (this.#hasAnswer) this.#watchdog(to);
      else this.#endFollow(new KvstoreError('unavailable', 'no response from the watch stream'));
    });
  }

  #pause(until: Promise<void>): void {
    this.#isPaused = true;
    this.#stream.pause();
    until.then(
      () => {
        this.#isPaused = false;
        if (this.#follower !== undefined) this.#stream.resume();
      },
      (error: unknown) => this.#endFollow(error),
    );
  }
}
