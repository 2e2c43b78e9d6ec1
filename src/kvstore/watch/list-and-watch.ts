import { setImmediate as eventLoopTurn } from 'node:timers/promises';
import { assert } from '../../base/assert.ts';
import { backoffDelay } from '../../base/backoff.ts';
import type { Clock, Random } from '../../base/clock.ts';
import { type Failure, failureOf } from '../../base/failure.ts';
import { CallbackGuard } from '../../base/guard.ts';
import { sleep } from '../../base/sleep.ts';
import type { Watch, WatchEvent, WatchState, WatchStatus } from '../backend.ts';
import { asKvstoreError, KvstoreError } from '../errors.ts';
import { prefixRange } from '../key-range.ts';
import type { CallOptions, KeyValue, ResponseHeader, Transport, TransportEvent } from '../transport.ts';
import { COMPARE_ALL_KEYS, type Cursor, type FenceResult, fence, reconcile, sameHistory } from './fence.ts';
import { followStream } from './follow-stream.ts';
import { KnownKeys } from './known-keys.ts';
import { type ListRequest, listPages, type Retry } from './paged-list.ts';
import { ReaderQueue } from './reader-queue.ts';

/** What a {@link ListAndWatch} is made of. */
export interface ListAndWatchOptions {
  readonly transport: Transport;
  readonly prefix: string;
  readonly clock: Clock;
  readonly random: Random;
  readonly signal?: AbortSignal | undefined;
  /** See `WatchOptions`. */
  readonly endOnDivergence?: boolean | undefined;
  /** See `WatchOptions`. */
  readonly onState?: ((state: WatchState) => void) | undefined;
  /** Told when the store turns out to be another one, or another past of the same. */
  readonly onDiverged?: (() => void) | undefined;
  /** Told once, when the watch has ended. */
  readonly onEnd?: (() => void) | undefined;
}

/**
 * What to do next.
 *
 *     list ──► follow ── stream ends ──► fence ── same ───────────► follow
 *               │  ▲                       ├─ same, but far behind ► delta
 *               │  │                       ├─ cannot be told ──────► list-afresh ──► follow
 *               │  │                       └─ diverged ────────────► diverged ► list-afresh, or the end
 *               │  └──────────── delta ◄── stream compacted
 *               └─ half an hour ────────► reconcile (as fence, comparing every key)
 */
type Step = 'list' | 'list-afresh' | 'diverged' | 'delta' | 'fence' | 'reconcile' | 'follow';

const BACKOFF = { baseMs: 50, capMs: 5000 };
// A right that is missing comes back when a person gives it: there is no hurry.
const FORBIDDEN_BACKOFF = { baseMs: 5000, capMs: 60_000 };
// etcd replays single writes at about 8,000 revisions/s, so past this a listing is faster (ETCD.md, "Watch").
const BACKLOG_REVISIONS = 20_000;
// Keys of a listing that are taken in at once: about a millisecond, between which others get their turn.
const SLICE_KEYS = 512;
// How much a delta may hold before a whole listing, in pages, is the better way.
const DELTA_KEYS = 20_000;
// Watch events lost by the server's own bugs (etcd #17555, #18089, #19179) are found after so long.
const RECONCILE_MS = 30 * 60_000;

/**
 * The list-and-watch driver: everything that has to be right under faults, over any transport. See `Watch` for
 * what it promises. How it keeps that:
 *
 * - it remembers the mod revision of every key; event types come from there, not from the server;
 * - it resumes after the last *event* it has seen, never after a header's revision, which can be ahead;
 * - before it resumes, and once more when a stream is open, it asks the server whether that still has the history
 *   followed so far (`fence.ts`): in between the store may have been restored;
 * - what is learnt counts as known when it is queued, so the queue belongs to the state;
 * - it holds back the transport when the reader is slow.
 */
export class ListAndWatch implements Watch {
  readonly #options: ListAndWatchOptions;
  readonly #queue = new ReaderQueue();
  readonly #known = new KnownKeys(this.#queue.events);
  readonly #ended = new AbortController();
  readonly #call: CallOptions = { signal: this.#ended.signal };
  readonly #guard = new CallbackGuard();
  #next = 0;
  #header: ResponseHeader | undefined;
  #state: WatchState = 'listing';
  #started = false;
  #listed = false;
  #listings = 0;
  #resumptions = 0;
  #failures = 0;
  #failuresInRow = 0;
  #lastFailure: Failure | undefined;

  constructor(options: ListAndWatchOptions) {
    assert(options.prefix.endsWith('/'), `a watched prefix must end in "/": ${options.prefix}`);
    this.#options = options;
  }

  status(): WatchStatus {
    return {
      prefix: this.#options.prefix,
      state: this.#state,
      keys: this.#known.size,
      nextRevision: this.#next,
      listed: this.#listed,
      listings: this.#listings,
      resumptions: this.#resumptions,
      failures: this.#failures,
      lastFailure: this.#lastFailure,
      queuedBytes: this.#queue.events.bytes,
    };
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<readonly WatchEvent[]> {
    assert(!this.#started, 'a watch can be read only once');
    this.#started = true;
    const { signal, onEnd } = this.#options;
    const abort = (): void => this.#end('ended');
    signal?.addEventListener('abort', abort);
    if (signal?.aborted === true) abort();
    const running = this.#run();
    try {
      for (;;) {
        const batch = await this.#queue.take();
        if (batch.length === 0) return;
        yield batch;
        if (!this.#queue.events.isEmpty) await eventLoopTurn(); // let others run between two batches
      }
    } finally {
      signal?.removeEventListener('abort', abort);
      this.#end('ended');
      await running;
      onEnd?.();
    }
  }

  #end(state: 'ended' | 'diverged'): void {
    if (this.#ended.signal.aborted) return;
    this.#setState(state);
    this.#ended.abort();
    this.#queue.end();
  }

  /** Ended is ended, whatever the step under way still does. */
  #enter(state: WatchState): void {
    if (!this.#ended.signal.aborted) this.#setState(state);
  }

  #setState(state: WatchState): void {
    this.#state = state;
    this.#guard.call(this.#options.onState, state);
  }

  /** What was learnt is to be told now. */
  #flush(): void {
    this.#known.sealLastPut();
    this.#queue.flush();
  }

  // ── One step after the other ───────────────────────────────────────────────────────────────────────────

  async #run(): Promise<void> {
    let step: Step = 'list';
    while (!this.#ended.signal.aborted) {
      try {
        step = await this.#take(step);
      } catch (thrown) {
        if (this.#ended.signal.aborted) return;
        const error = asKvstoreError(thrown);
        step = this.#stepAfter(step, error);
        await this.#failed(error);
      }
    }
  }

  #take(step: Step): Promise<Step> {
    switch (step) {
      case 'list':
        return this.#list(false);
      case 'list-afresh':
        return this.#list(true);
      case 'diverged':
        this.#options.onDiverged?.();
        if (this.#options.endOnDivergence === true) this.#end('diverged');
        return Promise.resolve('list-afresh');
      case 'delta':
        return this.#delta();
      case 'fence':
        return this.#check(fence(this.#options.transport, this.#cursor(), this.#call));
      case 'reconcile':
        return this.#check(reconcile(this.#options.transport, this.#cursor(), this.#call));
      case 'follow':
        return this.#follow();
    }
  }

  /** What to try after a step has failed. */
  #stepAfter(step: Step, error: KvstoreError): Step {
    if (error.code === 'future-revision') return 'diverged';
    if (step === 'follow') return error.code === 'compacted' ? 'delta' : 'fence';
    if (step === 'reconcile') return 'fence';
    if (step === 'delta' && error.code === 'too-large') return 'list'; // in pages, as small as need be
    return step;
  }

  async #failed(error: KvstoreError): Promise<void> {
    this.#failures++;
    this.#failuresInRow++;
    this.#lastFailure = failureOf(error, this.#options.clock);
    const forbidden = error.code === 'forbidden';
    this.#enter(forbidden ? 'forbidden' : 'waiting');
    const { clock, random } = this.#options;
    const backoff = forbidden ? FORBIDDEN_BACKOFF : BACKOFF;
    const delay = backoff.baseMs / 2 + backoffDelay(this.#failuresInRow, backoff, random);
    await sleep(clock, delay, this.#ended.signal);
  }

  #succeeded(): void {
    this.#failuresInRow = 0;
  }

  #cursor(): Cursor {
    return { prefix: this.#options.prefix, next: this.#next, known: this.#known, header: this.#header };
  }

  // ── Listing ────────────────────────────────────────────────────────────────────────────────────────────

  /** One page, tried until it succeeds or it is no use. */
  readonly #retry: Retry = async (call) => {
    for (;;) {
      try {
        const answer = await call();
        this.#succeeded();
        return answer;
      } catch (thrown) {
        const error = asKvstoreError(thrown);
        if (!error.retryable || this.#ended.signal.aborted) throw error;
        await this.#failed(error);
        this.#enter('listing');
      }
    }
  };

  #pages(request: ListRequest): ReturnType<typeof listPages> {
    return listPages(this.#options.transport, request, this.#retry, this.#call);
  }

  /**
   * Reads the whole prefix. `afresh`, what was known counts for nothing: equal mod revisions can hide different
   * values, so every key is told again.
   */
  async #list(afresh: boolean): Promise<Step> {
    this.#enter('listing');
    this.#listings++;
    if (afresh) this.#known.forgetLastWrites();
    const mayLack = this.#known.size > 0;
    const seen = new Set<string>();
    let first: ResponseHeader | undefined;
    for await (const { header, kvs } of this.#pages({ prefix: this.#options.prefix, revision: 0 })) {
      first ??= header;
      if (header.clusterID !== first.clusterID) return 'diverged';
      if (!afresh && !sameHistory(header, this.#cursor())) return 'diverged';
      if (!afresh && kvs.some((kv) => this.#contradicts(kv))) return 'diverged';
      await this.#takeIn(kvs, afresh);
      if (mayLack) for (const { key } of kvs) seen.add(key);
    }
    if (first === undefined) return 'list';
    if (mayLack) await this.#dropOthers(seen, first.revision);
    return this.#listedAt(first);
  }

  /** Keys that a listing shows, a slice in a turn and never far ahead of the reader. */
  async #takeIn(kvs: readonly KeyValue[], always: boolean): Promise<void> {
    for (let at = 0; at < kvs.length; at += SLICE_KEYS) {
      for (const kv of kvs.slice(at, at + SLICE_KEYS)) this.#known.list(kv, always);
      await this.#nextTurn();
    }
  }

  /** A key that was last written before the cursor, and not as it was seen then: another history. */
  #contradicts({ key, modRevision }: KeyValue): boolean {
    return modRevision < this.#next && this.#known.revisionOf(key) !== modRevision;
  }

  #listedAt(header: ResponseHeader): Step {
    this.#header = header;
    this.#next = header.revision + 1;
    if (!this.#listed) {
      this.#listed = true;
      this.#queue.events.pushListDone();
    }
    this.#flush();
    return 'follow';
  }

  /**
   * Reads what was written since the cursor. If there are then as many keys known as the prefix holds, they
   * are the same keys; otherwise some were deleted, and a listing of keys alone tells which.
   */
  async #delta(): Promise<Step> {
    this.#enter('listing');
    const { transport, prefix } = this.#options;
    const request = { ...prefixRange(prefix), minModRevision: this.#next, limit: DELTA_KEYS };
    const { header, kvs, more, count } = await transport.range(request, this.#call);
    if (!sameHistory(header, this.#cursor())) return 'diverged';
    if (more) return 'list';
    await this.#takeIn(kvs, false);
    if (count !== this.#known.size) await this.#dropDeleted(header.revision);
    return this.#listedAt(header);
  }

  async #dropDeleted(revision: number): Promise<void> {
    const seen = new Set<string>();
    for await (const { kvs } of this.#pages({ prefix: this.#options.prefix, revision, keysOnly: true })) {
      for (const { key } of kvs) seen.add(key);
    }
    await this.#dropOthers(seen, revision);
  }

  /** What a listing has not shown is gone; a slice in a turn too. */
  async #dropOthers(seen: ReadonlySet<string>, revision: number): Promise<void> {
    let looked = 0;
    for (const key of this.#known.keys()) {
      if (!seen.has(key)) this.#known.drop(key, revision);
      if (++looked % SLICE_KEYS === 0) await this.#nextTurn();
    }
  }

  /** Lets the reader take what there is, and others run. Throws when the watch has ended. */
  async #nextTurn(): Promise<void> {
    this.#flush();
    await eventLoopTurn();
    await this.#queue.room();
    this.#ended.signal.throwIfAborted();
  }

  // ── Following ──────────────────────────────────────────────────────────────────────────────────────────

  async #check(check: Promise<FenceResult>): Promise<Step> {
    const { outcome, revision } = await check;
    if (outcome === 'diverged') return 'diverged';
    // What cannot be told is told again if that is little, and compared revision by revision if it is much.
    if (outcome === 'compacted') return this.#known.size <= COMPARE_ALL_KEYS ? 'list-afresh' : 'list';
    return revision - this.#next > BACKLOG_REVISIONS ? 'delta' : 'follow';
  }

  /** Follows the stream until it ends, which is always a failure, or until it is time to reconcile. */
  async #follow(): Promise<Step> {
    this.#resumptions++;
    const { transport, prefix, clock, random } = this.#options;
    await followStream({
      transport,
      clock,
      request: { prefix, startRevision: this.#next },
      signal: this.#ended.signal,
      lifetimeMs: RECONCILE_MS * (0.5 + random()),
      onCreated: (header) => this.#created(header),
      confirm: () => this.#confirm(),
      onEvents: (events, header) => this.#received(events, header),
      onProgress: (header) => {
        this.#next = Math.max(this.#next, header.revision + 1);
      },
      onAlive: () => this.#succeeded(),
      isFull: () => this.#queue.isFull,
      room: () => this.#queue.room(),
    });
    return 'reconcile';
  }

  /**
   * Its revision is that of one member. If that is behind what was listed, it lags, or the store was restored right
   * after the listing: a quorum read tells, and that is the fence's.
   */
  #created(header: ResponseHeader): void {
    this.#enter('watching');
    if (this.#header !== undefined && header.clusterID !== this.#header.clusterID) {
      throw new KvstoreError('future-revision', 'the watch was answered by another cluster');
    }
    if (header.revision >= this.#next - 1) return;
    throw new KvstoreError('unavailable', 'the watch was answered by a server that is behind');
  }

  /**
   * The store may have been restored after the listing or fence that this stream follows, and have grown to where it
   * was. From now on a restore would end the stream: what is found now holds.
   */
  async #confirm(): Promise<void> {
    const { outcome } = await fence(this.#options.transport, this.#cursor(), this.#call);
    if (outcome === 'diverged') throw new KvstoreError('future-revision', 'the store has another history');
    if (outcome === 'compacted')
      throw new KvstoreError('compacted', 'the history cannot be compared any more');
  }

  #received(events: readonly TransportEvent[], header: ResponseHeader): void {
    this.#succeeded();
    this.#header = header;
    for (const event of events) this.#known.apply(event);
    this.#queue.events.relieve();
    this.#next = Math.max(this.#next, (events.at(-1)?.modRevision ?? 0) + 1);
    this.#flush();
  }
}
