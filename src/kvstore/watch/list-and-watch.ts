import { setImmediate as eventLoopTurn } from 'node:timers/promises';
import { requireAllowed, requireArgument } from '../../base/arguments.ts';
import { backoffDelay, isRecentOutage, RECENT_OUTAGE_CAP_MS } from '../../base/backoff.ts';
import { type Failure, failureOf } from '../../base/failure.ts';
import { onAbort } from '../../base/follow-signal.ts';
import { CallbackGuard } from '../../base/guard.ts';
import { LatencyHistogram } from '../../base/latency-histogram.ts';
import { sleep } from '../../base/sleep.ts';
import type { Runtime } from '../../base/system-clock.ts';
import type { TurnGate } from '../../base/turn-gate.ts';
import { watchedRange } from '../codec/key-range.ts';
import type { Watch, WatchEvent, WatchOptions, WatchState, WatchStatus } from '../session/backend.ts';
import {
  abortedError,
  asKvstoreError,
  KvstoreError,
  UNREACHABLE,
  withMissingRight,
} from '../session/errors.ts';
import type { ResponseHeader, Transport, TransportEvent } from '../session/transport.ts';
import { Cursor } from './cursor.ts';
import { EventQueue } from './event-queue.ts';
import { PageSize } from './page-size.ts';
import type { Outage, Reconnects } from './reconnects.ts';
import { proveHistory, type SyncOptions, sync } from './sync.ts';
import { WATCH_LIMITS, type WatchLimits } from './watch-limits.ts';
import { WatchSession } from './watch-session.ts';

export interface ListAndWatchOptions extends WatchOptions, Runtime {
  readonly transport: Pick<Transport, 'watch'>;
  readonly prefix: string;
  /** Ends the watch, like `signal`. Neither signal has a listener before the watch is read. */
  readonly closed?: AbortSignal | undefined;
  /** Shared by the watches of a client. Default: the watch retries independently. */
  readonly reconnects?: Reconnects | undefined;
  /**
   * The gate of the process, which admits the slices of listings. Default: each slice is processed in a separate turn.
   */
  readonly gate?: TurnGate | undefined;
  /**
   * Called if the store was replaced or restored from a backup.
   *
   * @param lostHistorySeenAt monotonic time until which the watch followed the lost history
   */
  readonly onDiverged?: ((lostHistorySeenAt: number) => void) | undefined;
  /**
   * `onBegin` is called when the reader starts to read, `onEnd` when the watch has ended. If the watch is never read,
   * neither is called.
   */
  readonly onBegin?: (() => void) | undefined;
  readonly onEnd?: (() => void) | undefined;
  /** Default: {@link WATCH_LIMITS}. */
  readonly limits?: Partial<WatchLimits> | undefined;
}

const BACKOFF = { minMs: 25, baseMs: 50, capMs: 5000 };
const RECENT_BACKOFF = { ...BACKOFF, capMs: RECENT_OUTAGE_CAP_MS };
// A stream that ends before this time and without an event does not end an outage: a proxy may end every stream early.
const STABLE_MS = RECENT_OUTAGE_CAP_MS;
// Backoff while a right is missing. Slow, because only an administrator can grant the right.
const FORBIDDEN_BACKOFF = { minMs: 2500, baseMs: 5000, capMs: 60_000 };
// Interval at which a watch checks its rights, because a server does not end the streams of a user whose rights were
// revoked. When another call of the client was refused, the watch checks earlier, but at most once a minute.
const RIGHTS_MS = 10 * 60_000;
const MIN_RIGHTS_MS = 60_000;
// After a pause of this duration, a watch checks that its last revision was not compacted meanwhile. etcd sends events
// to slow watches every 100 ms.
const LONG_PAUSE_MS = 100;
// Interval of comparisons of all keys. They find events which bugs of the server lose (etcd #17529, #18089, #19179).
const COMPARE_MS = 30 * 60_000;
// Maximum share of time for reading all values again after a stream broke.
const REREAD_SHARE = 1 / 50;
// Reason of the signals of all ended watches. One error for all, because each new error has a stack.
const ENDED = abortedError();

/**
 * Lists and watches a prefix over any transport, and handles all faults; `Watch` lists the guarantees. It runs one
 * session after the other. A session has one stream:
 *
 *     open a stream ─► bring the known keys up to date, from the server of the stream ─► follow the stream
 *       either at the cursor ─► prove that the server has the same history (`proveHistory`)
 *       or from now on       ─► read unknown keys, compare the others (`sync`)
 *
 * A server that is restored from a backup ends its streams. While a stream is open, its events and the reads from its
 * server are therefore from one history. No read has to be repeated, and keys that were listed before a failure are
 * kept.
 *
 * - A watch stores the mod revision of every key and derives event types from it, not from the server.
 * - A watch resumes after the last received *event*, never after the revision of a header, which can be later.
 * - A key counts as known when its event is queued, so the queue is part of the state.
 * - If the reader is slow, the watch pauses the transport.
 */
export class ListAndWatch implements Watch {
  readonly #options: ListAndWatchOptions;
  readonly #limits: WatchLimits;
  readonly #queue: EventQueue;
  readonly #cursor: Cursor;
  readonly #pageSize: PageSize;
  readonly #ended = new AbortController();
  readonly #guard = new CallbackGuard();
  /** True if no stream can resume at the cursor, because the history after the cursor is compacted or too large. */
  #mustSync = false;
  /** Monotonic time of the next comparison of all keys. */
  #compareAt: number;
  /** True if a stream has broken since all values were read. The next comparison then also compares values. */
  #isDoubtful = false;
  /** Longest duration of a sync. */
  #syncMs = 0;
  /** Monotonic time until which the watch followed the present history. */
  #followedUntil: number;
  /** All events before this revision were received. Also advanced by progress, unlike the cursor. */
  #nextRevision = 0;
  #state: WatchState = 'listing';
  /** The session whose stream is followed. */
  #session: WatchSession | undefined;
  /** Monotonic time at which `checkRights` last sent a request. */
  #rightsCheckedAt = Number.NEGATIVE_INFINITY;
  #isStarted = false;
  #isListed = false;
  #listings = 0;
  #streams = 0;
  #failures = 0;
  /** The failures in a row; undefined if the last attempt succeeded. */
  #outage: Outage | undefined;
  #lastFailure: Failure | undefined;
  readonly #delays = new LatencyHistogram();
  /** Arrival time of the oldest event of the stream that the reader has not received yet. */
  #arrivedAt: number | undefined;

  constructor(options: ListAndWatchOptions) {
    const { prefix, exactKey = false } = options;
    requireArgument(exactKey || prefix.endsWith('/'), `watch: prefix must end in "/", not ${prefix}`);
    this.#options = options;
    this.#limits = { ...WATCH_LIMITS, ...options.limits };
    this.#queue = new EventQueue(this.#limits);
    this.#cursor = new Cursor(prefix, this.#queue, options.keys, watchedRange(options));
    this.#pageSize = new PageSize(this.#limits);
    this.#followedUntil = options.clock.now();
    this.#compareAt = this.#jitteredTime(COMPARE_MS);
  }

  status(): WatchStatus {
    return {
      prefix: this.#options.prefix,
      state: this.#state,
      keys: this.#cursor.knownKeys.size,
      nextRevision: this.#nextRevision,
      listed: this.#isListed,
      isDoubtful: this.#isDoubtful,
      listings: this.#listings,
      streams: this.#streams,
      failures: this.#failures,
      lastFailure: this.#lastFailure,
      queuedBytes: this.#queue.bytes + (this.#session?.bufferedBytes ?? 0),
      delays: this.#delays.status(),
    };
  }

  /** Checks that the prefix may still be read, because another call of the client was refused. */
  checkRights(): void {
    const now = this.#options.clock.now();
    if (this.#session === undefined || now - this.#rightsCheckedAt < MIN_RIGHTS_MS) return;
    this.#rightsCheckedAt = now;
    void this.#session.checkRights(this.#cursor.range);
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<readonly WatchEvent[]> {
    requireAllowed(!this.#isStarted, 'a watch can be read only once');
    this.#isStarted = true;
    const { signal, closed, onBegin, onEnd, clock } = this.#options;
    this.#guard.call(onBegin);
    const abort = (): void => this.#end('ended');
    const leaveSignals = [signal, closed].map((source) => onAbort(source, abort));
    const running = this.#run();
    try {
      for (;;) {
        const batch = await this.#queue.next();
        if (batch.length === 0) return;
        const arrivedAt = this.#arrivedAt;
        if (this.#queue.isEmpty) this.#arrivedAt = undefined;
        yield batch;
        if (arrivedAt !== undefined) this.#delays.add(clock.now() - arrivedAt, batch.length);
        if (!this.#queue.isEmpty) await eventLoopTurn(); // let other work run between two batches
      }
    } finally {
      for (const leave of leaveSignals) leave();
      this.#end('ended');
      await running;
      this.#guard.call(onEnd);
    }
  }

  #end(state: 'ended' | 'diverged'): void {
    this.#enter(state);
    this.#ended.abort(ENDED);
    this.#options.reconnects?.leave(this);
    this.#queue.end();
  }

  /** Sets the state, unless the watch has ended. */
  #enter(state: WatchState): void {
    if (this.#ended.signal.aborted) return;
    this.#state = state;
    this.#guard.call(this.#options.onState, state);
  }

  // ── One session after the other ────────────────────────────────────────────────────────────────────────

  async #run(): Promise<void> {
    while (!this.#ended.signal.aborted) {
      try {
        await this.#runSession();
      } catch (thrown) {
        // rejects only if the watch ends during the wait
        if (!this.#ended.signal.aborted) await this.#recover(asKvstoreError(thrown)).catch(() => {});
      }
    }
  }

  /** Runs one session. Resolves when all keys must be compared or read again; rejects if the session fails. */
  async #runSession(): Promise<void> {
    const { transport, prefix, exactKey, clock } = this.#options;
    const isDue = clock.now() >= this.#compareAt;
    const canResume = this.#cursor.canResume && !this.#mustSync && !isDue;
    const request = { prefix, exactKey, startRevision: canResume ? this.#cursor.nextRevision : 0 };
    const { signal } = this.#ended;
    const session = new WatchSession({ transport, request, clock, signal, limits: this.#limits });
    try {
      if (!canResume) await this.#sync(session, isDue);
      else if (!(await this.#resume(session))) return;
      await this.#follow(session);
    } finally {
      session.close();
    }
  }

  /** Follows the stream of a session until all keys must be compared again. Rejects if the stream fails. */
  async #follow(session: WatchSession): Promise<void> {
    const { clock } = this.#options;
    this.#streams++;
    this.#enter('watching');
    this.#session = session;
    const followedSince = clock.now();
    try {
      await session.follow({
        lifetimeMs: this.#compareAt - followedSince,
        onEvents: (events, isPartial) => this.#receive(events, isPartial),
        onProgress: ({ revision }) => {
          this.#nextRevision = Math.max(this.#nextRevision, revision + 1);
        },
        onAlive: () => {
          if (clock.now() - Math.max(followedSince, this.#rightsCheckedAt) >= RIGHTS_MS) this.checkRights();
        },
        isFull: () => this.#queue.isFull,
        whenNotFull: () => this.#waitForReader(session),
      });
      this.#outage = undefined;
      this.#compareAt = clock.now(); // the lifetime has ended: a comparison is due
    } finally {
      this.#followedUntil = clock.now();
      if (this.#followedUntil - followedSince >= STABLE_MS) this.#outage = undefined;
      this.#session = undefined;
    }
  }

  /** Handles the failure of a session, and resolves when the next session may begin. */
  async #recover(error: KvstoreError): Promise<void> {
    if (error.code === 'compacted') this.#mustSync = true;
    if (error.code === 'future-revision') this.#handleDivergence();
    await this.#waitBeforeRetry(error, this.#recordFailure(error));
  }

  #handleDivergence(): void {
    const { onDiverged, endOnDivergence, clock } = this.#options;
    this.#guard.call(onDiverged, this.#followedUntil);
    if (endOnDivergence === true) {
      this.#end('diverged');
      return;
    }
    this.#followedUntil = clock.now();
    this.#nextRevision = 0;
    this.#cursor.diverge();
  }

  /** Returns the outage, including this failure. */
  #recordFailure(error: KvstoreError): Outage {
    const { clock, prefix } = this.#options;
    if (this.#cursor.knownKeys.size > 0) {
      this.#isDoubtful = true; // the known values may be from another history of the store
      this.#compareAt = Math.min(this.#compareAt, this.#rereadTime());
    }
    this.#failures++;
    const { failures, since } = this.#outage ?? { failures: 0, since: clock.now() };
    const outage = { failures: failures + 1, since };
    this.#outage = outage;
    this.#lastFailure = failureOf(withMissingRight(error, 'read', prefix), clock);
    this.#enter(error.code === 'forbidden' ? 'forbidden' : 'waiting');
    return outage;
  }

  async #waitBeforeRetry({ code }: KvstoreError, outage: Outage): Promise<void> {
    const { clock, random, reconnects } = this.#options;
    const outageBackoff = isRecentOutage(outage.since, clock) ? RECENT_BACKOFF : BACKOFF;
    const backoff = code === 'forbidden' ? FORBIDDEN_BACKOFF : outageBackoff;
    const delayMs = backoffDelay(outage.failures, backoff, random);
    const { signal } = this.#ended;
    const isReachable = !UNREACHABLE.has(code);
    if (isReachable) reconnects?.wakeAll();
    await sleep(clock, delayMs, signal);
    if (!isReachable) await reconnects?.wait(this, outage, signal);
  }

  /** Returns the monotonic time of the comparison of all values after a stream broke. */
  #rereadTime(): number {
    const minMs = Math.max(this.#limits.rereadMs, this.#syncMs / REREAD_SHARE);
    return this.#jitteredTime(Math.min(COMPARE_MS, minMs));
  }

  /** Returns a time 0.5 to 1.5 times `ms` from now, so that many watches do not run at the same time. */
  #jitteredTime(ms: number): number {
    const { clock, random } = this.#options;
    return clock.now() + ms * (0.5 + random());
  }

  // ── Bringing up to date ────────────────────────────────────────────────────────────────────────────────

  #syncOptions(session: WatchSession): SyncOptions {
    const { prefix, clock } = this.#options;
    return {
      cursor: this.#cursor,
      prefix,
      clock,
      pageSize: this.#pageSize,
      limits: this.#limits,
      read: (request) => session.range(request),
      admit: () => this.#admit(),
      yieldTurn: () => this.#yield(),
      onListing: () => {
        this.#listings++;
        if (this.#state === 'watching') this.#enter('listing');
      },
    };
  }

  /** Resolves when the server has accepted the watch of a session. */
  async #waitUntilOpened(session: WatchSession): Promise<ResponseHeader> {
    const header = await session.opened;
    this.#options.reconnects?.wakeAll();
    return header;
  }

  /**
   * Returns true if the stream resumes at the cursor; false, without a failure, if the history after the cursor is
   * compacted. The next session then reads the keys.
   */
  async #resume(session: WatchSession): Promise<boolean> {
    try {
      await this.#waitUntilOpened(session);
      await proveHistory(this.#syncOptions(session));
      return true;
    } catch (error) {
      if (asKvstoreError(error).code !== 'compacted') throw error;
      this.#mustSync = true;
      return false;
    }
  }

  /**
   * Compares the known keys with the server of the session, and reads the difference.
   *
   * @param isDue true if all keys must be compared, not only their number
   */
  async #sync(session: WatchSession, isDue: boolean): Promise<void> {
    const { clock } = this.#options;
    const opened = await this.#waitUntilOpened(session);
    if (this.#state !== 'watching') this.#enter('listing');
    // If this sync fails, the next session must sync, too, but compares all keys only when that is due again.
    this.#mustSync = true;
    if (isDue) this.#compareAt = this.#rereadTime();
    const comparisonWhenDue = this.#isDoubtful ? 'values' : 'revisions';
    const comparison = isDue ? comparisonWhenDue : 'count';
    const startedAt = clock.now();
    let revision: number;
    try {
      revision = await sync(this.#syncOptions(session), comparison);
    } finally {
      this.#syncMs = Math.max(this.#syncMs, clock.now() - startedAt);
    }
    if (revision < opened.revision) throw new KvstoreError('unavailable', 'another server answered');
    this.#mustSync = false;
    if (isDue) {
      this.#isDoubtful = false;
      this.#compareAt = this.#jitteredTime(COMPARE_MS);
    }
    // The stream was paused during the sync.
    if (clock.now() - startedAt >= LONG_PAUSE_MS) void session.checkHistory(this.#options.prefix, revision);
    this.#nextRevision = this.#cursor.nextRevision;
    if (!this.#isListed) {
      this.#isListed = true;
      this.#queue.pushListDone();
    }
    this.#flush();
  }

  /** Ends a batch: copies the values of the anchors, so that they do not keep the message, and delivers the events. */
  #flush(): void {
    this.#cursor.knownKeys.anchors.copyValues();
    this.#queue.flush();
  }

  /** Waits until this turn has room for a slice. Throws if the watch has ended. */
  async #admit(): Promise<void> {
    await this.#options.gate?.pass(this.#limits.sliceKeys, this.#ended.signal);
    this.#ended.signal.throwIfAborted();
  }

  /** Lets the reader receive queued events, and other work run. Throws if the watch has ended. */
  async #yield(): Promise<void> {
    this.#flush();
    if (this.#options.gate === undefined) await eventLoopTurn();
    await this.#queue.whenNotFull();
    this.#ended.signal.throwIfAborted();
  }

  // ── Following ──────────────────────────────────────────────────────────────────────────────────────────

  /** Resolves when the stream of a session may continue. */
  async #waitForReader(session: WatchSession): Promise<void> {
    const { clock, prefix } = this.#options;
    const pausedAt = clock.now();
    const lastRevision = this.#cursor.nextRevision - 1;
    await this.#queue.whenNotFull();
    if (clock.now() - pausedAt >= LONG_PAUSE_MS) void session.checkHistory(prefix, lastRevision);
  }

  #receive(events: readonly TransportEvent[], isPartial: boolean): void {
    this.#arrivedAt ??= this.#options.clock.now();
    this.#cursor.receive(events, isPartial);
    this.#outage = undefined; // not if an event is invalid: the delays between retries then grow
    this.#nextRevision = Math.max(this.#nextRevision, this.#cursor.nextRevision);
    this.#queue.shorten();
    this.#flush();
  }
}
