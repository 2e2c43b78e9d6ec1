import { setImmediate as eventLoopTurn } from 'node:timers/promises';
import { assert } from '../../base/assert.ts';
import { backoffDelay } from '../../base/backoff.ts';
import type { Clock, Random } from '../../base/clock.ts';
import { DelayCounts } from '../../base/delay-counts.ts';
import { type Failure, failureOf } from '../../base/failure.ts';
import { CallbackGuard } from '../../base/guard.ts';
import { sleep } from '../../base/sleep.ts';
import type { Watch, WatchEvent, WatchState, WatchStatus } from '../backend.ts';
import { asKvstoreError, KvstoreError, namingRight, OUT_OF_REACH } from '../errors.ts';
import { sharedSignal } from '../shared-signal.ts';
import type { ResponseHeader, Transport, TransportEvent } from '../transport.ts';
import { Cursor } from './cursor.ts';
import { PageSize } from './page-size.ts';
import { ReaderQueue } from './reader-queue.ts';
import type { Reconnects } from './reconnects.ts';
import { inSlices, proveHistory, type SyncOptions, sync } from './sync.ts';
import { WATCH_LIMITS, type WatchLimits } from './watch-limits.ts';
import { WatchSession } from './watch-session.ts';

/** Options of a {@link ListAndWatch}. */
export interface ListAndWatchOptions {
  readonly transport: Pick<Transport, 'watch'>;
  readonly prefix: string;
  readonly clock: Clock;
  readonly random: Random;
  readonly signal?: AbortSignal | undefined;
  /** Ends the watch as well. Neither knows of a watch that is not read. */
  readonly closed?: AbortSignal | undefined;
  /** See `WatchOptions`. */
  readonly endOnDivergence?: boolean | undefined;
  /** See `WatchOptions`. */
  readonly onState?: ((state: WatchState) => void) | undefined;
  /** Shared with the other watches of the client. Default: it tries by itself. */
  readonly reconnects?: Reconnects | undefined;
  /**
   * Called when the store turns out to be another one, or another past of the same; with the time up to which the watch had
   * followed the one before.
   */
  readonly onDiverged?: ((followedUntil: number) => void) | undefined;
  /** Called when the watch begins to be read, and once more when it has ended; never if it is not read. */
  readonly onBegin?: (() => void) | undefined;
  readonly onEnd?: (() => void) | undefined;
  /** Default: {@link WATCH_LIMITS}. */
  readonly limits?: Partial<WatchLimits> | undefined;
}

const BACKOFF = { baseMs: 50, capMs: 5000 };
// A right that is missing comes back when a person gives it: there is no hurry.
const FORBIDDEN_BACKOFF = { baseMs: 5000, capMs: 60_000 };
// A server does not end the streams of a user whose rights were revoked: whether they are still there is asked after so
// long, and when another call of the client was refused, but not again within a minute.
const RIGHTS_MS = 10 * 60_000;
const RIGHTS_AGAIN_MS = 60_000;
// Watch events lost by the server's own bugs (etcd #17555, #18089, #19179) are found after so long.
const RECONCILE_MS = 30 * 60_000;
// Reading all values again after a stream has broken takes no more than this part of the time.
const REREAD_SHARE = 1 / 50;

/**
 * The list-and-watch driver: everything that has to be right under faults, over any transport. See `Watch` for what it
 * promises. It works in sessions, one stream each, and after any failure begins another:
 *
 *     open a stream ─► bring what is known up to date, on the server of that stream ─► follow the stream
 *       from the cursor      prove that the server has the history followed (`proveHistory`)
 *       from now on          read what is not known, compare the rest (`sync`)
 *
 * A server that is restored from a backup ends its streams: while one is open, what is read from its server and what the
 * stream delivers are of one history. So nothing has to be asked once more, and what was listed before a failure is kept.
 *
 * - It remembers the mod revision of every key; event types come from there, not from the server.
 * - It resumes after the last *event* it has seen, never after a header's revision, which can be ahead.
 * - What is learnt counts as known when it is queued, so the queue belongs to the state.
 * - It holds back the transport when the reader is slow.
 */
export class ListAndWatch implements Watch {
  readonly #options: ListAndWatchOptions;
  readonly #limits: WatchLimits;
  readonly #queue: ReaderQueue;
  readonly #cursor: Cursor;
  readonly #size: PageSize;
  readonly #ended = new AbortController();
  readonly #guard = new CallbackGuard();
  /** The stream cannot go on from the cursor although that stands for an event: its history has been compacted. */
  #mustSync = false;
  /** When all keys are to be compared next, and whether with their values: a stream has broken since they were read. */
  #compareAt: number;
  #isDoubtful = false;
  /** How long it has taken to bring everything up to date, at most. */
  #syncMs = 0;
  /** Until when the store was followed of which the keys are known. */
  #followedUntil: number;
  #seen = 0;
  #state: WatchState = 'listing';
  /** The session whose stream is followed. */
  #following: WatchSession | undefined;
  /** When the rights were last shown, and asked for. */
  #rightsShownAt = 0;
  #rightsAskedAt = Number.NEGATIVE_INFINITY;
  #started = false;
  #listed = false;
  #listings = 0;
  #resumptions = 0;
  #failures = 0;
  #failuresInRow = 0;
  #lastFailure: Failure | undefined;
  readonly #delays = new DelayCounts();
  /** When the oldest event came from the stream that has not been taken. */
  #arrivedAt: number | undefined;

  constructor(options: ListAndWatchOptions) {
    assert(options.prefix.endsWith('/'), `a watched prefix must end in "/": ${options.prefix}`);
    this.#options = options;
    this.#limits = { ...WATCH_LIMITS, ...options.limits };
    this.#queue = new ReaderQueue(this.#limits);
    this.#cursor = new Cursor(options.prefix, this.#queue.events);
    this.#size = new PageSize(this.#limits);
    this.#followedUntil = options.clock.now();
    this.#compareAt = this.#later(RECONCILE_MS);
  }

  status(): WatchStatus {
    return {
      prefix: this.#options.prefix,
      state: this.#state,
      keys: this.#cursor.known.size,
      nextRevision: this.#seen,
      listed: this.#listed,
      listings: this.#listings,
      resumptions: this.#resumptions,
      failures: this.#failures,
      lastFailure: this.#lastFailure,
      queuedBytes: this.#queue.events.bytes,
      delays: this.#delays.status(),
    };
  }

  /** Looks whether what is followed may still be read: other calls of the client have been refused. */
  checkRights(): void {
    const { prefix, clock } = this.#options;
    const now = clock.now();
    if (this.#following === undefined || now - this.#rightsAskedAt < RIGHTS_AGAIN_MS) return;
    this.#rightsAskedAt = now;
    this.#rightsShownAt = now;
    void this.#following.checkRights(prefix);
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<readonly WatchEvent[]> {
    assert(!this.#started, 'a watch can be read only once');
    this.#started = true;
    const { signal, closed, onBegin, onEnd, clock } = this.#options;
    this.#guard.call(onBegin);
    const abort = (): void => this.#end('ended');
    for (const source of [signal, closed]) {
      sharedSignal(source)?.addEventListener('abort', abort);
      if (source?.aborted === true) abort();
    }
    const running = this.#run();
    try {
      for (;;) {
        const batch = await this.#queue.take();
        if (batch.length === 0) return;
        const arrivedAt = this.#arrivedAt;
        if (this.#queue.events.isEmpty) this.#arrivedAt = undefined;
        yield batch;
        if (arrivedAt !== undefined) this.#delays.add(clock.now() - arrivedAt, batch.length);
        if (!this.#queue.events.isEmpty) await eventLoopTurn(); // let others run between two batches
      }
    } finally {
      for (const source of [signal, closed]) source?.removeEventListener('abort', abort);
      this.#end('ended');
      await running;
      this.#guard.call(onEnd);
    }
  }

  /** Idempotent. */
  #end(state: 'ended' | 'diverged'): void {
    this.#enter(state);
    this.#ended.abort();
    this.#options.reconnects?.leave(this);
    this.#queue.end();
  }

  /** Ended is ended, whatever is still under way. */
  #enter(state: WatchState): void {
    if (this.#ended.signal.aborted) return;
    this.#state = state;
    this.#guard.call(this.#options.onState, state);
  }

  // ── One session after the other ────────────────────────────────────────────────────────────────────────

  async #run(): Promise<void> {
    while (!this.#ended.signal.aborted) {
      try {
        await this.#session();
      } catch (thrown) {
        if (!this.#ended.signal.aborted) await this.#recover(asKvstoreError(thrown)).catch(() => {}); // ended meanwhile
      }
    }
  }

  async #session(): Promise<void> {
    const { transport, prefix, clock } = this.#options;
    const isDue = clock.now() >= this.#compareAt;
    const resume = this.#cursor.canResume && !this.#mustSync && !isDue;
    const request = { prefix, startRevision: resume ? this.#cursor.next : 0 };
    const session = new WatchSession({ transport, request, clock, signal: this.#ended.signal });
    try {
      if (!(await (resume ? this.#resume(session) : this.#sync(session, isDue)))) return;
      this.#resumptions++;
      this.#succeeded();
      this.#enter('watching');
      this.#following = session;
      this.#rightsShownAt = clock.now();
      await session.follow({
        lifetimeMs: this.#compareAt - clock.now(),
        onEvents: (events) => this.#received(events),
        onProgress: (header) => this.#progressed(header),
        onAlive: () => {
          this.#succeeded();
          if (clock.now() - this.#rightsShownAt >= RIGHTS_MS) this.checkRights();
        },
        isFull: () => this.#queue.isFull,
        room: () => this.#queue.room(),
      });
      this.#compareAt = clock.now(); // its time is over
    } finally {
      if (this.#following !== undefined) this.#followedUntil = clock.now();
      this.#following = undefined;
      session.close();
    }
  }

  async #recover(error: KvstoreError): Promise<void> {
    if (error.code === 'future-revision') await this.#diverged();
    await this.#failed(error);
  }

  async #diverged(): Promise<void> {
    const { onDiverged, endOnDivergence, clock } = this.#options;
    this.#guard.call(onDiverged, this.#followedUntil);
    if (endOnDivergence === true) return this.#end('diverged');
    this.#followedUntil = clock.now();
    this.#seen = 0;
    await inSlices(this.#cursor.diverge(), { limits: this.#limits, turn: () => this.#turn() });
  }

  async #failed(error: KvstoreError): Promise<void> {
    const { clock, random, reconnects, prefix } = this.#options;
    if (this.#cursor.known.size > 0) this.#doubt();
    this.#failures++;
    this.#failuresInRow++;
    this.#lastFailure = failureOf(namingRight(error, 'read', prefix), clock);
    const forbidden = error.code === 'forbidden';
    this.#enter(forbidden ? 'forbidden' : 'waiting');
    const backoff = forbidden ? FORBIDDEN_BACKOFF : BACKOFF;
    const delay = backoff.baseMs / 2 + backoffDelay(this.#failuresInRow, backoff, random);
    const { signal } = this.#ended;
    const isReached = !OUT_OF_REACH.has(error.code);
    if (isReached) reconnects?.reached();
    await sleep(clock, delay, signal);
    if (!isReached) await reconnects?.wait(this, this.#failuresInRow, signal);
  }

  #succeeded(): void {
    this.#failuresInRow = 0;
  }

  /** The values that are known may be of another history. */
  #doubt(): void {
    this.#isDoubtful = true;
    this.#compareAt = Math.min(this.#compareAt, this.#rereadAt());
  }

  #rereadAt(): number {
    return this.#later(Math.min(RECONCILE_MS, Math.max(this.#limits.rereadMs, this.#syncMs / REREAD_SHARE)));
  }

  /** In about so long: spread, so that many watches do not keep step. */
  #later(ms: number): number {
    const { clock, random } = this.#options;
    return clock.now() + ms * (0.5 + random());
  }

  // ── Bringing up to date ────────────────────────────────────────────────────────────────────────────────

  #reads(session: WatchSession): SyncOptions {
    const { prefix, clock } = this.#options;
    return {
      ...{ cursor: this.#cursor, prefix, clock, size: this.#size, limits: this.#limits },
      read: (request) => session.range(request),
      turn: () => this.#turn(),
      onListing: () => {
        this.#listings++;
        if (this.#state === 'watching') this.#enter('listing');
      },
    };
  }

  async #opened(session: WatchSession): Promise<ResponseHeader> {
    const header = await session.opened;
    this.#options.reconnects?.reached();
    return header;
  }

  /** Whether the stream goes on from the cursor. That its history has been compacted is no failure, but usual. */
  async #resume(session: WatchSession): Promise<boolean> {
    try {
      await this.#opened(session);
      await proveHistory(this.#reads(session));
      return true;
    } catch (error) {
      this.#mustSync = asKvstoreError(error).code === 'compacted';
      if (this.#mustSync) return false;
      throw error;
    }
  }

  async #sync(session: WatchSession, isDue: boolean): Promise<boolean> {
    const { clock } = this.#options;
    const opened = await this.#opened(session);
    if (this.#state !== 'watching') this.#enter('listing');
    this.#mustSync = true; // and not by the stream alone, should this fail
    if (isDue) this.#compareAt = this.#rereadAt(); // should this fail: what is followed in between is worth more
    const comparison = isDue ? (this.#isDoubtful ? 'values' : 'revisions') : 'count';
    const begun = clock.now();
    let revision: number;
    try {
      revision = await sync(this.#reads(session), comparison);
    } finally {
      this.#syncMs = Math.max(this.#syncMs, clock.now() - begun);
    }
    if (revision < opened.revision) throw new KvstoreError('unavailable', 'another server has answered');
    this.#mustSync = false;
    if (isDue) {
      this.#isDoubtful = false;
      this.#compareAt = this.#later(RECONCILE_MS);
    }
    this.#seen = this.#cursor.next;
    if (!this.#listed) {
      this.#listed = true;
      this.#queue.events.pushListDone();
    }
    this.#flush();
    return true;
  }

  /** What was learnt is to be delivered now. */
  #flush(): void {
    this.#cursor.known.anchors.seal();
    this.#queue.flush();
  }

  /** Lets the reader take what there is, and others run. Throws when the watch has ended. */
  async #turn(): Promise<void> {
    this.#flush();
    await eventLoopTurn();
    await this.#queue.room();
    this.#ended.signal.throwIfAborted();
  }

  // ── Following ──────────────────────────────────────────────────────────────────────────────────────────

  #received(events: readonly TransportEvent[]): void {
    this.#succeeded();
    this.#arrivedAt ??= this.#options.clock.now();
    this.#cursor.receive(events);
    this.#seen = Math.max(this.#seen, this.#cursor.next);
    this.#queue.events.relieve();
    this.#flush();
  }

  /** Moves what has been seen, and not from where the stream is resumed: see `Cursor.canResume`. */
  #progressed({ revision }: ResponseHeader): void {
    this.#seen = Math.max(this.#seen, revision + 1);
  }
}
