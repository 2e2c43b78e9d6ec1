import { setImmediate as eventLoopTurn } from 'node:timers/promises';
import {
  checkArgument,
  checkArguments,
  FUNCTION,
  objectWith,
  optional,
  optionsWith,
  requireArgument,
  SIGNAL,
  TEXT,
} from '../../base/arguments.ts';
import { type Backoff, backoffDelay } from '../../base/backoff.ts';
import { type Failure, failureOf } from '../../base/failure.ts';
import { EitherSignal } from '../../base/follow-signal.ts';
import { LatencyHistogram } from '../../base/latency-histogram.ts';
import { sleep } from '../../base/sleep.ts';
import { type Unsubscribe, unsubscribeOnce } from '../../base/subscription.ts';
import { type Runtime, type RuntimeOptions, withRuntime } from '../../base/system-clock.ts';
import { equalBytes } from '../codec/bytes.ts';
import { compareKeys } from '../codec/key-range.ts';
import type {
  BackendStatus,
  KeyRead,
  KvstoreBackend,
  KvstoreLock,
  ListOptions,
  Watch,
  WatchEvent,
  WatchOptions,
  WatchState,
  WatchStatus,
  WrittenAll,
} from './backend.ts';
import { abortedError, asKvstoreError, closedError, KvstoreError, type KvstoreErrorCode } from './errors.ts';
import type { CallOptions, EndpointStatus, KeyValue } from './transport.ts';

/** A key and its value, as the source of a {@link ReadOnlyBackend} lists them. */
export interface SourceEntry {
  readonly key: string;
  readonly value: Uint8Array;
}

/** A change of a key in the source of a {@link ReadOnlyBackend}. Without a value the key was deleted. */
export interface SourceChange {
  readonly key: string;
  readonly value?: Uint8Array | undefined;
}

/** Options of {@link ReadOnlyBackend}. */
export interface ReadOnlyBackendOptions extends RuntimeOptions {
  /** For display: `file`, `consul`. */
  readonly kind: string;
}

/** Delays between two attempts to follow a source. */
const BACKOFF: Backoff = { baseMs: 500, capMs: 30_000 };

/** Number of changes that are compared in one turn of the event loop. A batch has at most as many events. */
const CHANGES_PER_TURN = 256;

/** Maximum number of keys whose revisions are kept between reads. A cluster reads its configuration and heartbeat. */
const MAX_READ_KEYS = 1024;

const NO_VALUE = new Uint8Array();

/**
 * A read-only kvstore over a *source*: any set of keys of your program. A subclass implements `list` and
 * `changes`; this class implements watches with retries that satisfy {@link Watch}. Each watch stores the keys
 * and values that it has delivered. After a fault it lists again and delivers the differences.
 *
 * All writes, leases and locks fail with `forbidden`.
 */
export abstract class ReadOnlyBackend implements KvstoreBackend, AsyncDisposable {
  readonly #options: ReadOnlyBackendOptions & Runtime;
  readonly #closed = new AbortController();
  readonly #watches = new Set<SourceWatch>();
  /** Increases with each list and each batch, because a source has no revisions. */
  #revision = 1;
  /** The last reads of single keys, the oldest first. */
  readonly #reads = new Map<string, KeyValue>();
  #lastFailure: Failure | undefined;
  readonly #requests: Partial<Record<KvstoreErrorCode | 'ok', number>> = {};

  constructor(options: ReadOnlyBackendOptions) {
    checkArgument('new ReadOnlyBackend: options', options, optionsWith({ kind: TEXT }));
    this.#options = withRuntime(options);
  }

  /** Returns all present entries whose keys have this prefix, in any order. */
  protected abstract list(prefix: string, signal: AbortSignal): Promise<readonly SourceEntry[]>;

  /**
   * Returns the changes of keys with this prefix, from the first call of `next` on. `list` is called after that
   * call, so the iterable may also return changes that the list contains. If the iterable ends or throws, this method
   * is called again. The iterable must end when the signal fires.
   */
  protected abstract changes(prefix: string, signal: AbortSignal): AsyncIterable<readonly SourceChange[]>;

  /** Calls `list` with the key as the prefix, because a source has no other read. */
  async get(key: string, options: CallOptions = {}): Promise<KeyValue | undefined> {
    return (await this.read(key, options)).kv;
  }

  /** A key keeps its revisions while reads return the same value. */
  async read(key: string, options: CallOptions = {}): Promise<KeyRead> {
    const found = (await this.listPrefix(key, options)).find((entry) => entry.key === key);
    const kv = this.#withKeptRevisions(key, found);
    return { kv, header: { clusterID: this.#options.kind, revision: this.#revision, raftTerm: 0 } };
  }

  /** Ignores `minModRevision`, because a source has no revisions. Each listing has a later revision. */
  async listPrefix(prefix: string, { signal }: ListOptions = {}): Promise<readonly KeyValue[]> {
    using until = new EitherSignal(signal, this.#closed.signal);
    const endError = (): KvstoreError => (this.#closed.signal.aborted ? closedError() : abortedError());
    if (until.signal.aborted) throw endError();
    const revision = ++this.#revision;
    const entries = await this.#listSource(prefix, until.signal).catch((error: unknown) => {
      throw until.signal.aborted ? endError() : this.#recordFailure(error);
    });
    return entries
      .map(({ key, value }) => ({ key, value, createRevision: revision, modRevision: revision }))
      .sort((a, b) => compareKeys(a.key, b.key));
  }

  watch(prefix: string, options: WatchOptions = {}): Watch {
    requireArgument(options.exactKey || prefix.endsWith('/'), `watch: prefix must end in "/", not ${prefix}`);
    const { clock, random } = this.#options;
    const watch = new SourceWatch(prefix, {
      ...options,
      clock,
      random,
      closed: this.#closed.signal,
      list: (signal) => this.#listSource(prefix, signal),
      changes: (signal) => this.changes(prefix, signal),
      nextRevision: () => ++this.#revision,
      onFailure: (error) => this.#recordFailure(error),
      onBegin: () => this.#watches.add(watch),
      onEnd: () => this.#watches.delete(watch),
    });
    return watch;
  }

  update(): Promise<number> {
    return this.#refuse();
  }

  updateIfDifferent(): Promise<boolean> {
    return this.#refuse();
  }

  createOnly(): Promise<boolean> {
    return this.#refuse();
  }

  delete(): Promise<boolean> {
    return this.#refuse();
  }

  writeAll(): Promise<WrittenAll> {
    return this.#refuse();
  }

  deletePrefix(): Promise<number> {
    return this.#refuse();
  }

  lock(): Promise<KvstoreLock> {
    return this.#refuse();
  }

  /** Does nothing: each watch retries with a separate backoff. */
  retryInTurn(): void {}

  /** Does nothing: there are no leases. */
  onLeaseLost(): Unsubscribe {
    return unsubscribeOnce(() => {});
  }

  async endpoints(): Promise<readonly EndpointStatus[]> {
    return [];
  }

  status(): BackendStatus {
    const watches = [...this.#watches].map((watch) => watch.status());
    return {
      kind: this.#options.kind,
      connected: watches.every(({ state }) => state !== 'waiting'),
      clusterID: undefined,
      requests: { ...this.#requests },
      leases: 0,
      leasesLost: 0,
      watches,
      isFenced: false,
      background: { tasks: [], failures: 0, lastFailure: undefined },
      listenerFaults: 0,
      lastFailure: this.#lastFailure,
    };
  }

  async close(): Promise<void> {
    this.#closed.abort();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #listSource(prefix: string, signal: AbortSignal): Promise<readonly SourceEntry[]> {
    const entries = await this.list(prefix, signal);
    this.#count('ok');
    return entries;
  }

  /** Returns the key with the revisions of its last read, as far as it has not changed since. */
  #withKeptRevisions(key: string, found: KeyValue | undefined): KeyValue | undefined {
    const last = this.#reads.get(key);
    this.#reads.delete(key);
    if (found === undefined) return undefined;
    const { createRevision } = last ?? found;
    const kv = last && equalBytes(last.value, found.value) ? last : { ...found, createRevision };
    this.#reads.set(key, kv);
    if (this.#reads.size > MAX_READ_KEYS) {
      const [oldest = ''] = this.#reads.keys();
      this.#reads.delete(oldest);
    }
    return kv;
  }

  #recordFailure(error: unknown): KvstoreError {
    const failure = asKvstoreError(error);
    this.#count(failure.code);
    this.#lastFailure = failureOf(error, this.#options.clock);
    return failure;
  }

  #count(outcome: KvstoreErrorCode | 'ok'): void {
    this.#requests[outcome] = (this.#requests[outcome] ?? 0) + 1;
  }

  #refuse(): Promise<never> {
    return Promise.reject(
      new KvstoreError(
        'forbidden',
        `the ${this.#options.kind} backend is read-only: write to its source directly`,
      ),
    );
  }
}

const OPTIONS = optional(objectWith({ signal: optional(SIGNAL), onState: optional(FUNCTION) }));

checkArguments(ReadOnlyBackend, {
  get: { key: TEXT, options: OPTIONS },
  read: { key: TEXT, options: OPTIONS },
  listPrefix: { prefix: TEXT, options: OPTIONS },
  watch: { prefix: TEXT, options: OPTIONS },
});

interface SourceWatchOptions extends WatchOptions, Runtime {
  readonly closed: AbortSignal;
  readonly list: (signal: AbortSignal) => Promise<readonly SourceEntry[]>;
  readonly changes: (signal: AbortSignal) => AsyncIterable<readonly SourceChange[]>;
  readonly nextRevision: () => number;
  readonly onFailure: (error: unknown) => void;
  /** Called when the reader starts to read. If the watch is never read, neither this nor `onEnd` is called. */
  readonly onBegin: () => void;
  readonly onEnd: () => void;
}

/** A watch over a source: opens its changes, lists, delivers the differences, and then the changes. */
class SourceWatch implements Watch {
  readonly #prefix: string;
  readonly #options: SourceWatchOptions;
  /** The delivered values. */
  readonly #known = new Map<string, Uint8Array>();
  readonly #delays = new LatencyHistogram();
  #state: WatchState = 'listing';
  /** Revision of the last list or batch of changes. */
  #revision = 0;
  #isListed = false;
  #listings = 0;
  #failures = 0;
  /** Retries since the last listing. */
  #retries = 0;
  #lastFailure: Failure | undefined;

  constructor(prefix: string, options: SourceWatchOptions) {
    this.#prefix = prefix;
    this.#options = options;
  }

  status(): WatchStatus {
    return {
      prefix: this.#prefix,
      state: this.#state,
      keys: this.#known.size,
      nextRevision: this.#revision + 1,
      listed: this.#isListed,
      isDoubtful: false,
      listings: this.#listings,
      streams: 0,
      failures: this.#failures,
      lastFailure: this.#lastFailure,
      queuedBytes: 0,
      delays: this.#delays.status(),
    };
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<readonly WatchEvent[], void, void> {
    using until = new EitherSignal(this.#options.signal, this.#options.closed);
    const { signal } = until;
    this.#options.onBegin();
    try {
      while (!signal.aborted) {
        try {
          for await (const batch of this.#follow(signal)) {
            if (signal.aborted) return;
            yield batch;
          }
        } catch (error) {
          if (signal.aborted) return;
          this.#recordFailure(error);
        }
        await this.#pause(signal);
      }
    } finally {
      this.#options.onEnd();
      this.#enter('ended');
    }
  }

  /** Delivers the differences to a new list, then changes until they end. */
  async *#follow(signal: AbortSignal): AsyncGenerator<readonly WatchEvent[], void, void> {
    const ended = new AbortController();
    using either = new EitherSignal(signal, ended.signal);
    const changes = this.#options.changes(either.signal)[Symbol.asyncIterator]();
    try {
      // Changes begin before the list, so that none is missed between the two.
      const first = changes.next();
      first.catch(() => {}); // awaited below, after the list
      this.#enter('listing');
      const entries = await this.#options.list(either.signal);
      yield* this.#batches(this.#differences(entries));
      this.#listings++;
      this.#retries = 0;
      if (!this.#isListed)
        yield [{ type: 'list-done', key: '', value: NO_VALUE, modRevision: this.#revision }];
      this.#isListed = true;
      this.#enter('watching');
      for (let next = await first; next.done !== true && !signal.aborted; next = await changes.next()) {
        const arrivedAt = this.#options.clock.now();
        yield* this.#batches(next.value);
        this.#delays.add(this.#options.clock.now() - arrivedAt, next.value.length);
      }
    } finally {
      ended.abort();
      // Not awaited, because a generator ends only after its pending `next`, which may wait for the source.
      changes.return?.().catch(() => {});
    }
  }

  /**
   * Yields the entries of a list, and the known keys that it does not contain, without a value. Yields undefined for
   * the others, so that {@link #batches} divides a long comparison among turns.
   */
  *#differences(entries: readonly SourceEntry[]): Generator<SourceChange | undefined, void, void> {
    const listed = new Set<string>();
    for (const entry of entries) {
      listed.add(entry.key);
      yield entry;
    }
    for (const key of this.#known.keys()) yield listed.has(key) ? undefined : { key };
  }

  /** Yields the events of changes in batches. Lets other work run after each {@link CHANGES_PER_TURN} changes. */
  async *#batches(
    changes: Iterable<SourceChange | undefined>,
  ): AsyncGenerator<readonly WatchEvent[], void, void> {
    this.#revision = this.#options.nextRevision();
    let batch: WatchEvent[] = [];
    let applied = 0;
    for (const change of changes) {
      const event = change && this.#apply(change);
      if (event !== undefined) batch.push(event);
      if (++applied % CHANGES_PER_TURN !== 0) continue;
      if (batch.length > 0) yield batch;
      batch = [];
      await eventLoopTurn();
    }
    if (batch.length > 0) yield batch;
  }

  /** Returns the event of a change, or `undefined` if it was delivered before or the key is not watched. */
  #apply({ key, value }: SourceChange): WatchEvent | undefined {
    const isWatched = this.#options.exactKey ? key === this.#prefix : key.startsWith(this.#prefix);
    if (!isWatched) return undefined;
    const old = this.#known.get(key);
    const modRevision = this.#revision;
    if (value === undefined) {
      return this.#known.delete(key) ? { type: 'delete', key, value: NO_VALUE, modRevision } : undefined;
    }
    if (old !== undefined && equalBytes(old, value)) return undefined;
    this.#known.set(key, value);
    return { type: old === undefined ? 'create' : 'modify', key, value, modRevision };
  }

  #recordFailure(error: unknown): void {
    this.#failures++;
    this.#lastFailure = failureOf(error, this.#options.clock);
    this.#options.onFailure(error);
  }

  #pause(signal: AbortSignal): Promise<void> {
    const { clock, random } = this.#options;
    if (signal.aborted) return Promise.resolve();
    this.#enter('waiting');
    return sleep(clock, backoffDelay(++this.#retries, BACKOFF, random), signal);
  }

  #enter(state: WatchState): void {
    // Each failure is reported, even if it repeats the state.
    if (this.#state === state && state !== 'waiting') return;
    this.#state = state;
    try {
      this.#options.onState?.(state);
    } catch {} // ignored, as `WatchOptions.onState` states
  }
}
