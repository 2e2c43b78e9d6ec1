import type { Buffer } from 'node:buffer';
import { type Failure, failureOf } from '../../base/failure.ts';
import { EitherSignal, fired, followSignal } from '../../base/follow-signal.ts';
import { CallbackGuard, type FaultListener } from '../../base/guard.ts';
import { sleep } from '../../base/sleep.ts';
import type { Runtime } from '../../base/system-clock.ts';
import type { TurnGate } from '../../base/turn-gate.ts';
import type {
  FollowedResource,
  FollowOptions,
  KubernetesObject,
  ResourceEvent,
  ResourceKind,
  ResourceSink,
  ResourceStatus,
} from '../resource.ts';
import { ApiError, asApiError } from '../rest/api-error.ts';
import type { ApiRequest, ApiTransport } from '../rest/api-transport.ts';
import { Exchange } from '../rest/exchange.ts';
import { resourceName, rightToGrant } from '../rest/resource-path.ts';
import { FieldTree } from './field-tree.ts';
import { isKubernetesObject, type Kept, KnownObjects } from './known-objects.ts';
import { LineScanner } from './line-scanner.ts';
import {
  countRepeatedPages,
  lastPutPath,
  listPath,
  MAX_OBJECT_BYTES,
  parseList,
  readListShell,
  streamPath,
  watchPath,
} from './list-query.ts';
import { ListScanner } from './list-scanner.ts';
import { readTexts } from './read-texts.ts';
import {
  beginReflector,
  type ListSource,
  type ReflectorEffect,
  type ReflectorInput,
  type ReflectorState,
  stepReflector,
} from './reflector-machine.ts';
import { LINE_FIELDS, readWatchLine, scanWatchLine } from './watch-line.ts';

/** The common parts of all reflectors of a client. */
export interface ReflectorContext extends Runtime {
  readonly transport: ApiTransport;
  readonly gate: TurnGate;
  /** Fires when the client is closed. */
  readonly closed: AbortSignal;
  /** Receives the errors of sinks and other callbacks. */
  readonly onFault?: FaultListener | undefined;
}

/** Backoff (KUBERNETES 3). Each delay is multiplied by a random factor from 1 to 2. */
const BACKOFF_MS = { first: 800, cap: 30_000 };
/** Range of the requested duration of a watch (KUBERNETES 2). */
const WATCH_SECONDS = { min: 300, max: 600 };
/** A watch is cancelled this time after its duration, and a page of a list this time after the longest duration. */
const TIMEOUT_MARGIN_MS = 30_000;
/**
 * Maximum time without data during a list, and maximum time of a proof. A list of 50,000 objects from etcd may take
 * 20 s to start.
 */
const LIST_SILENCE_MS = 60_000;
/** Maximum time from the request of a watch to its response. */
const OPENING_MS = 30_000;
/**
 * Maximum time without data after the first data of a watch. A server sends at least a bookmark every minute; if three
 * are missing, the watch has failed. There is no limit before the first data, because some servers send no bookmarks
 * for kinds without changes.
 */
const WATCH_SILENCE_MS = 3 * 60_000;

/** The result of an action: an input of the reflector machine, without the time. */
type ActionResult = ReflectorInput extends infer I
  ? I extends { now: number }
    ? Omit<I, 'now'>
    : never
  : never;

/** The guaranteed fields of a {@link KubernetesObject}. */
const IDENTIFYING_FIELDS = ['name', 'namespace', 'uid', 'resourceVersion'].map((name) => `metadata.${name}`);

const STOP: ActionResult = { type: 'stop' };

/**
 * Keeps a sink equal to the objects of one kind on an API server, by lists and watches, and recovers from all failures.
 * The README of `k8s` has the guarantees. `stepReflector` decides the next action; this class performs it.
 */
export class Reflector implements FollowedResource {
  readonly stopped: Promise<void>;
  readonly #kind: ResourceKind;
  readonly #sink: ResourceSink;
  readonly #context: ReflectorContext;
  readonly #options: FollowOptions;
  readonly #known: KnownObjects;
  /** The fields to read of objects, and of the lines of streams and watches; undefined for all. */
  readonly #fields: FieldTree | undefined;
  readonly #lineFields: FieldTree | undefined;
  readonly #guard: CallbackGuard;
  readonly #ended = new AbortController();
  /** Fires when the first list was delivered, or when the reflector has ended. */
  readonly #settled = new AbortController();
  #state: ReflectorState;
  /** True after the first complete list was delivered. */
  #listed = false;
  #events = 0;
  #lastEventAt: number | undefined;
  #rejected = 0;
  #bookmarks = 0;
  #lists = 0;
  #watches = 0;
  /** Monotonic time of the last data of this kind. */
  #lastBytesAt: number | undefined;
  /** Monotonic time of the first failure since the last open watch. */
  #behindSince: number | undefined;
  /** Monotonic time at which the current wait ends. */
  #retryAt: number | undefined;
  #failures = 0;
  #lastFailure: Failure | undefined;

  constructor(kind: ResourceKind, sink: ResourceSink, options: FollowOptions, context: ReflectorContext) {
    this.#kind = kind;
    this.#sink = sink;
    this.#context = context;
    this.#options = options;
    this.#guard = new CallbackGuard(context.onFault);
    const fields = options.fields && [...IDENTIFYING_FIELDS, ...options.fields];
    this.#fields = fields && FieldTree.of(fields);
    this.#lineFields = fields && FieldTree.of([...LINE_FIELDS, ...fields.map((field) => `object.${field}`)]);
    this.#known = new KnownObjects((object) => this.#keep(object));
    const { state, effect } = beginReflector();
    this.#state = state;
    this.stopped = this.#run(effect);
  }

  status(): ResourceStatus {
    const { labelSelector, fieldSelector } = this.#kind;
    const now = this.#context.clock.now();
    const { reportedState } = this.#state;
    const behindSince = reportedState === 'stopped' ? undefined : this.#behindSince;
    return {
      resource: resourceName(this.#kind),
      labelSelector,
      fieldSelector,
      state: reportedState,
      listed: this.#listed,
      objects: this.#known.size,
      events: this.#events,
      lastEventAt: this.#lastEventAt,
      rejected: this.#rejected,
      bookmarks: this.#bookmarks,
      resourceVersion: this.#listed ? this.#known.version : undefined,
      lists: this.#lists,
      watches: this.#watches,
      lagMs: this.#listed && this.#lastBytesAt !== undefined ? now - this.#lastBytesAt : undefined,
      behindMs: behindSince === undefined ? undefined : now - behindSince,
      retryInMs: this.#retryAt === undefined ? undefined : Math.max(0, this.#retryAt - now),
      failures: this.#failures,
      lastFailure: this.#lastFailure,
    };
  }

  async waitForListed({
    signal,
    quietMs,
  }: {
    readonly signal?: AbortSignal;
    readonly quietMs?: number;
  } = {}): Promise<void> {
    const { clock } = this.#context;
    const startedAt = clock.now();
    using woken = new EitherSignal(signal, this.#settled.signal);
    while (!this.#listed) {
      if (signal?.aborted === true) throw signal.reason;
      if (this.#settled.signal.aborted)
        throw new ApiError(
          'unavailable',
          `${resourceName(this.#kind)}: stopped before its list was complete`,
        );
      if (quietMs === undefined) await fired(woken.signal);
      else {
        const leftMs = Math.max(startedAt, this.#lastBytesAt ?? 0) + quietMs - clock.now();
        if (leftMs <= 0) throw new ApiError('unavailable', this.#noProgressMessage(quietMs));
        await sleep(clock, leftMs, woken.signal);
      }
    }
  }

  /** Returns the error message of a wait at its limit. */
  #noProgressMessage(quietMs: number): string {
    const why = this.#lastFailure === undefined ? '' : `: ${this.#lastFailure.message}`;
    return `${resourceName(this.#kind)} is ${this.#state.reportedState}: no progress for ${quietMs / 1000} s${why}`;
  }

  // ── Actions ────────────────────────────────────────────────────────────────────────────────────────────

  async #run(first: ReflectorEffect | undefined): Promise<void> {
    const signals = [this.#options.signal, this.#context.closed].filter((signal) => signal !== undefined);
    const unfollows = signals.map((signal) => followSignal(signal, this.#ended));
    await Promise.resolve(); // the caller must have the reflector before the first event
    for (let effect = first; effect !== undefined; ) effect = this.#step(await this.#perform(effect));
    for (const unfollow of unfollows) unfollow();
    this.#settled.abort();
  }

  #step(result: ActionResult): ReflectorEffect | undefined {
    const { reportedState } = this.#state;
    const now = this.#context.clock.now();
    const { state, effect } = stepReflector(this.#state, { ...result, now });
    this.#state = state;
    if (result.type === 'opened') this.#behindSince = undefined;
    else if (this.#listed && (result.type === 'failed' || state.phase === 'waiting'))
      this.#behindSince ??= now;
    if (state.reportedState !== reportedState) this.#guard.call(this.#options.onState, state.reportedState);
    return effect;
  }

  async #perform(effect: ReflectorEffect): Promise<ActionResult> {
    if (this.#ended.signal.aborted) return STOP;
    try {
      const result = await this.#dispatch(effect);
      return this.#ended.signal.aborted ? STOP : result;
    } catch (thrown) {
      return this.#ended.signal.aborted ? STOP : this.#failed(effect, asApiError(thrown));
    }
  }

  #dispatch(effect: ReflectorEffect): Promise<ActionResult> {
    switch (effect.do) {
      case 'list':
        return this.#list(effect.from);
      case 'watch':
        return this.#watch();
      case 'prove':
        return this.#prove(effect.isQuick === true);
      case 'wait':
        return this.#wait(effect.failures, effect.atLeastMs);
    }
  }

  /** Returns an error as the result of the action, and counts it if it is a failure. */
  #failed(effect: ReflectorEffect, error: ApiError): ActionResult {
    const { code, retryAfterMs } = error;
    // An expired version, an unknown kind, and a server without streaming lists are no failures.
    const isStream = effect.do === 'list' && effect.from === 'stream';
    if (code !== 'expired' && code !== 'missing' && !(isStream && code === 'invalid')) {
      this.#failures++;
      const right = rightToGrant(effect.do === 'watch' || isStream ? 'watch' : 'list', this.#kind);
      const shown = code === 'forbidden' ? new ApiError(code, `${error.message}: ${right}`) : error;
      this.#lastFailure = failureOf(shown, this.#context.clock);
    }
    return { type: 'failed', code, retryAfterMs };
  }

  async #wait(failures: number, atLeastMs: number): Promise<ActionResult> {
    const { clock, random } = this.#context;
    const delay = Math.min(BACKOFF_MS.cap, BACKOFF_MS.first * 2 ** (failures - 1));
    const waitMs = Math.max(delay, atLeastMs) * (1 + random());
    this.#retryAt = clock.now() + waitMs;
    await sleep(clock, waitMs, this.#ended.signal);
    this.#retryAt = undefined;
    return { type: 'waited' };
  }

  #newExchange(): Exchange {
    return new Exchange({ ...this.#context, signal: this.#ended.signal });
  }

  #newLineScanner(): LineScanner<object> {
    const { scanner } = this.#options;
    const scan = scanner && ((line: Buffer) => scanWatchLine(line, scanner));
    return new LineScanner<object>(MAX_OBJECT_BYTES, this.#lineFields, scan);
  }

  // ── List ───────────────────────────────────────────────────────────────────────────────────────────────

  async #list(from: ListSource): Promise<ActionResult> {
    this.#known.beginList();
    const version = from === 'stream' ? await this.#stream() : await this.#pages(from);
    if (!(await this.#context.gate.runSteps(this.#endList(version), this.#ended.signal))) return STOP;
    this.#lists++;
    if (!this.#listed) {
      this.#listed = true;
      this.#guard.call(() => this.#sink.onListed());
      this.#settled.abort();
    } else this.#guard.call(() => this.#sink.onRelisted?.());
    return { type: 'listed' };
  }

  /** Delivers the deletes of a complete list, in steps. */
  *#endList(version: string): Generator<void, void, void> {
    let events: ResourceEvent[] = [];
    for (const event of this.#known.endList(version)) {
      events.push(event);
      if (events.length < this.#context.gate.slice) continue;
      this.#deliver(events);
      events = [];
      yield;
    }
    this.#deliver(events);
  }

  /**
   * Yields the bytes of a list or a page. The limit of silence excludes the time in which the caller processes them.
   * The limit of time includes it; an API server ends a list after a minute.
   */
  async *#listBytes(
    exchange: Exchange,
    request: Omit<ApiRequest, 'signal'>,
  ): AsyncGenerator<Uint8Array, void, void> {
    exchange.allowTime(WATCH_SECONDS.max * 1000 + TIMEOUT_MARGIN_MS);
    exchange.allowSilence(LIST_SILENCE_MS);
    for await (const bytes of exchange.read(await exchange.open(request))) {
      this.#onBytes();
      exchange.allowSilence(undefined);
      yield bytes;
      exchange.allowSilence(LIST_SILENCE_MS);
    }
  }

  /** Reads a list page by page and returns its version. */
  async #pages(from: ListSource): Promise<string> {
    let { version, token } = await this.#page(from);
    for (let repeated = 0; token !== undefined; ) {
      const { listed } = this.#known;
      ({ version, token } = await this.#page(from, token));
      repeated = countRepeatedPages(repeated, this.#known.listed > listed);
    }
    return version;
  }

  /**
   * Reads up to the bookmark after the last object and returns its version. The watch of the list is closed; the next
   * watch starts from that version.
   */
  async #stream(): Promise<string> {
    const { gate } = this.#context;
    using exchange = this.#newExchange();
    const scanner = this.#newLineScanner();
    const path = streamPath(this.#kind, this.#known.version, WATCH_SECONDS.max);
    for await (const bytes of this.#listBytes(exchange, { path })) {
      let version: string | undefined;
      const onValues = (values: readonly unknown[]): void => {
        version ??= this.#applyInitial(values, exchange.secret);
      };
      await readTexts(scanner.feed(bytes), gate, onValues, this.#ended.signal);
      if (version !== undefined) {
        this.#rejected += scanner.tooLarge;
        return version;
      }
    }
    throw new ApiError('garbled', 'the streaming list ended before it was complete');
  }

  /**
   * Applies objects of a streaming list. Returns the version if the list is complete. If a line is an error, the events
   * before it are delivered first, because later lists do not repeat them.
   */
  #applyInitial(values: readonly unknown[], secret: string | undefined): string | undefined {
    const events: ResourceEvent[] = [];
    try {
      for (const value of values) {
        const line = readWatchLine(value, secret);
        // The first bookmark of a streaming list is that after its last object.
        if (line.type === 'bookmark' && !line.isListed)
          throw new ApiError('invalid', 'the server treats the request of a streaming list as a watch');
        if (line.type === 'bookmark') return line.version; // the next watch repeats the rest
        if (line.type === 'put') events.push(...this.#known.putListed(line.object));
        // While the watch cache of the server is behind, the server also sends deletes.
        else if (line.type === 'delete') events.push(...this.#known.delete(line.object));
        else this.#rejected++;
      }
      return undefined;
    } finally {
      this.#deliver(events);
    }
  }

  /** Reads a page of a list. Returns its version, and the token of the next page. */
  async #page(
    from: ListSource,
    token?: string,
  ): Promise<{ readonly version: string; readonly token: string | undefined }> {
    const { signal } = this.#ended;
    using exchange = this.#newExchange();
    const scanner = new ListScanner(MAX_OBJECT_BYTES, this.#fields, 'list', this.#options.scanner);
    const path = listPath(this.#kind, from, this.#known.version, token);
    for await (const bytes of this.#listBytes(exchange, { path, gzip: true }))
      await readTexts(scanner.feed(bytes), this.#context.gate, (items) => this.#applyItems(items), signal);
    this.#rejected += scanner.tooLarge;
    return readListShell(scanner.shell, token, exchange.secret);
  }

  #applyItems(items: readonly unknown[]): void {
    const events: ResourceEvent[] = [];
    for (const item of items)
      if (isKubernetesObject(item)) events.push(...this.#known.putListed(item));
      else this.#rejected++;
    this.#deliver(events);
  }

  // ── Watch ──────────────────────────────────────────────────────────────────────────────────────────────

  async #watch(): Promise<ActionResult> {
    const { clock, random, gate } = this.#context;
    const seconds = Math.floor(WATCH_SECONDS.min + random() * (WATCH_SECONDS.max - WATCH_SECONDS.min));
    using exchange = this.#newExchange();
    const startedAt = clock.now();
    const scanner = this.#newLineScanner();
    const { version } = this.#known;
    exchange.allowTime(seconds * 1000 + TIMEOUT_MARGIN_MS);
    exchange.allowSilence(OPENING_MS);
    const answer = await exchange.open({ path: watchPath(this.#kind, version, seconds) });
    exchange.allowSilence(undefined);
    let hasReceivedData = false;
    this.#watches++;
    this.#onBytes();
    this.#step({ type: 'opened' });
    for await (const bytes of exchange.read(answer)) {
      this.#onBytes();
      exchange.allowSilence(undefined);
      const lines = scanner.feed(bytes);
      hasReceivedData ||= lines.length > 0 || scanner.isCut;
      await readTexts(lines, gate, (values) => this.#applyLines(values, answer.secret), this.#ended.signal);
      if (!this.#state.progressed && this.#known.version !== version) this.#step({ type: 'progressed' });
      if (scanner.tooLarge > 0) throw new ApiError('garbled', 'a watch event is too large');
      if (hasReceivedData) exchange.allowSilence(WATCH_SILENCE_MS);
    }
    if (scanner.isCut) throw new ApiError('broken', 'the watch ended within an event');
    // A watch that repeats a known version is not `eventful`: it must not be opened again without a delay.
    return { type: 'ended', lastedMs: clock.now() - startedAt, eventful: this.#known.version !== version };
  }

  /** Applies lines of a watch. If a line is an error, the events before it are delivered first. */
  #applyLines(values: readonly unknown[], secret: string | undefined): void {
    const events: ResourceEvent[] = [];
    try {
      for (const value of values) events.push(...this.#applyLine(value, secret));
    } finally {
      this.#deliver(events);
    }
  }

  #applyLine(value: unknown, secret: string | undefined): readonly ResourceEvent[] {
    const line = readWatchLine(value, secret);
    switch (line.type) {
      case 'put':
        return this.#known.put(line.object);
      case 'delete':
        return this.#known.delete(line.object);
      case 'bookmark':
        this.#bookmarks++;
        this.#known.advanceTo(line.version);
        return [];
      case 'invalid':
        this.#rejected++;
        return [];
    }
  }

  // ── Prove ──────────────────────────────────────────────────────────────────────────────────────────────

  /**
   * Checks if the server has the object of the last put at the same version. If so, it has the same history up to this
   * version, from which the watch continues. Otherwise a list follows, also if the object has changed, because its
   * earlier versions cannot be read. If the last event was not a put, nothing is checked, and the result is `isQuick`.
   *
   * @param isQuick true if the connection was lost for too short a time for a restore
   */
  async #prove(isQuick: boolean): Promise<ActionResult> {
    const { lastPut } = this.#known;
    if (lastPut === undefined) return { type: 'proven', same: isQuick };
    using exchange = this.#newExchange();
    exchange.allowTime(LIST_SILENCE_MS);
    const path = lastPutPath(this.#kind, lastPut);
    const list = parseList(await exchange.text({ path }, MAX_OBJECT_BYTES), exchange.secret);
    const items: readonly unknown[] = Array.isArray(list['items']) ? list['items'] : [];
    const same = items.some(
      (item) =>
        isKubernetesObject(item) &&
        item.metadata.uid === lastPut.uid &&
        item.metadata.resourceVersion === lastPut.version,
    );
    if (same) this.#known.backToLastPut();
    return { type: 'proven', same };
  }

  // ── Delivery ───────────────────────────────────────────────────────────────────────────────────────────

  #onBytes(): void {
    this.#lastBytesAt = this.#context.clock.now();
  }

  /** Returns the part of an object to keep, or the whole object if the callback throws. */
  #keep(object: KubernetesObject): Kept {
    try {
      return this.#options.keep?.(object) ?? object;
    } catch (error) {
      this.#guard.report(error);
      return object;
    }
  }

  #deliver(events: readonly ResourceEvent[]): void {
    if (events.length === 0 || this.#ended.signal.aborted) return;
    this.#events += events.length;
    this.#lastEventAt = this.#context.clock.wallTime();
    this.#guard.call(() => this.#sink.apply(events));
  }
}
