import { checkArgument, FUNCTION, objectWith } from '../../base/arguments.ts';
import type { Clock, Timer } from '../../base/clock.ts';
import { onAbort } from '../../base/follow-signal.ts';
import { abortedError, asKvstoreError, closedError, KvstoreError } from '../session/errors.ts';
import type {
  CallOptions,
  EndpointStatus,
  LeaseID,
  RangeRequest,
  RangeResponse,
  Transport,
  TxnRequest,
  TxnResponse,
  WatchObserver,
  WatchRequest,
  WatchStream,
} from '../session/transport.ts';
import { FaultyStream } from './faulty-stream.ts';

/** State of a link: `down` refuses immediately, `black-hole` drops everything without an answer. */
export type LinkState = 'up' | 'down' | 'black-hole';

const DEADLINE_MS = 10_000;
const KEEPALIVE_MS = 25_000; // as the etcd transport: a ping after 15 s, and a timeout of 10 s

const unavailable = (reason: string): KvstoreError => new KvstoreError('unavailable', reason);
const forbidden = (): KvstoreError => new KvstoreError('forbidden', 'etcdserver: permission denied');
const expired = (): KvstoreError => new KvstoreError('invalid-token', 'etcdserver: invalid auth token');

/**
 * A client's link to a server, which injects the faults of a network over any transport. Each client has a separate
 * link, so one client can be disconnected while the others continue. Each method describes to which calls and streams
 * its fault applies.
 */
export class FaultyLink implements Transport, AsyncDisposable {
  /** Called before each read. */
  onRead: (request: RangeRequest) => void = () => {};
  readonly #inner: Transport;
  readonly #clock: Clock;
  readonly #streams = new Set<FaultyStream>();
  readonly #stalledPrefixes = new Set<string>();
  readonly #forbiddenPrefixes = new Set<string>();
  /** For each running call, the function that fails it. */
  readonly #runningCalls = new Set<(error: KvstoreError) => void>();
  /** Timers for the end of the streams in a black hole. */
  readonly #keepalives: Timer[] = [];
  #link: LinkState = 'up';
  /** True if the next call fails with `invalid-token`. */
  #isTokenExpired = false;
  #answersToLose = 0;
  /** Number of events before the next watch breaks. */
  #cutNextWatchAfter: number | undefined;
  #maxResponseBytes = Number.POSITIVE_INFINITY;

  constructor(inner: Transport, clock: Clock) {
    checkArgument('new FaultyLink: inner', inner, objectWith({ range: FUNCTION, txn: FUNCTION }));
    checkArgument('new FaultyLink: clock', clock, objectWith({ after: FUNCTION }));
    this.#inner = inner;
    this.#clock = clock;
  }

  range(request: RangeRequest, options?: CallOptions): Promise<RangeResponse> {
    return this.#read(request, options, () => this.#inner.range(request, options));
  }

  txn(request: TxnRequest, options?: CallOptions): Promise<TxnResponse> {
    return this.#call(options, () => this.#inner.txn(request, options));
  }

  grantLease(ttlSeconds: number, options?: CallOptions): Promise<LeaseID> {
    return this.#call(options, () => this.#inner.grantLease(ttlSeconds, options));
  }

  keepLeaseAlive(lease: LeaseID, options?: CallOptions): Promise<number> {
    return this.#call(options, () => this.#inner.keepLeaseAlive(lease, options));
  }

  revokeLease(lease: LeaseID, options?: CallOptions): Promise<void> {
    return this.#call(options, () => this.#inner.revokeLease(lease, options));
  }

  async endpoints(options?: CallOptions): Promise<readonly EndpointStatus[]> {
    const all = await this.#inner.endpoints(options);
    return all.map((endpoint) => ({ ...endpoint, healthy: endpoint.healthy && this.#link === 'up' }));
  }

  watch(request: WatchRequest, observer: WatchObserver): WatchStream {
    const stream: FaultyStream = new FaultyStream(this.#inner, request, observer, {
      read: (...call) => this.#read(...call),
      onEnded: () => this.#streams.delete(stream),
    });
    this.#streams.add(stream);
    if (this.#link === 'down') stream.end(unavailable('connection refused'));
    if (this.#link === 'black-hole') this.#drop(stream);
    else if (this.#isStalled(stream)) stream.stall();
    if (this.#isForbidden(stream.prefix)) stream.end(forbidden());
    if (this.#cutNextWatchAfter !== undefined) stream.cutAfter(this.#cutNextWatchAfter);
    this.#cutNextWatchAfter = undefined;
    return stream;
  }

  async close(): Promise<void> {
    for (const fail of [...this.#runningCalls]) fail(closedError());
    for (const stream of this.#streams) stream.unstall();
    for (const keepalive of this.#keepalives) keepalive.cancel();
    await this.#inner.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  get state(): LinkState {
    return this.#link;
  }

  /** Number of open streams of this client. */
  get streams(): number {
    return this.#streams.size;
  }

  /** Breaks all open streams and calls. Later streams and calls work. */
  cut(): void {
    const reset = unavailable('connection reset');
    for (const stream of this.#streams) stream.end(reset);
    for (const fail of [...this.#runningCalls]) fail(reset);
  }

  /** Breaks all open streams and calls, and refuses later streams and calls until {@link FaultyLink.up}. */
  down(): void {
    this.#link = 'down';
    this.cut();
  }

  /**
   * Drops everything until {@link FaultyLink.up}: calls exceed their deadline, and streams end by the keepalive after
   * 25 s.
   */
  blackHole(): void {
    this.#link = 'black-hole';
    for (const stream of this.#streams) this.#drop(stream);
  }

  /** Ends a stream in a black hole by its keepalive. */
  #drop(stream: FaultyStream): void {
    stream.stall();
    const timedOut = (): void => stream.end(unavailable('keepalive timed out'));
    this.#keepalives.push(this.#clock.after(KEEPALIVE_MS, timedOut));
  }

  /** Ends {@link FaultyLink.down} and {@link FaultyLink.blackHole}. */
  up(): void {
    this.#link = 'up';
    for (const keepalive of this.#keepalives.splice(0)) keepalive.cancel();
    for (const stream of this.#streams) if (!this.#isStalled(stream)) stream.unstall();
  }

  /** Loses the responses of the next `count` calls: the server applies the calls, but they fail with `unavailable`. */
  loseAnswers(count: number): void {
    this.#answersToLose = count;
  }

  /** Breaks the next watch after this number of events, possibly within a revision. */
  cutNextWatchAfter(events: number): void {
    this.#cutNextWatchAfter = events;
  }

  /** Delays the streams of this prefix, so that the events of different watches change their order. */
  stallWatch(prefix: string): void {
    this.#stalledPrefixes.add(prefix);
    for (const stream of this.#streams) if (this.#isStalled(stream)) stream.stall();
  }

  /** Ends {@link FaultyLink.stallWatch}. */
  unstallWatch(prefix: string): void {
    this.#stalledPrefixes.delete(prefix);
    for (const stream of this.#streams) if (!this.#isStalled(stream)) stream.unstall();
  }

  /** Fails all open streams and the next call with `invalid-token`. Later calls work, as with a new token. */
  expireToken(): void {
    this.#isTokenExpired = true;
    for (const stream of this.#streams) stream.end(expired());
  }

  /**
   * Refuses reads and new watches of keys with this prefix, as etcd does for a user without the right. Open streams
   * continue.
   */
  forbid(prefix: string): void {
    this.#forbiddenPrefixes.add(prefix);
  }

  /** Ends {@link FaultyLink.forbid}. */
  allow(prefix: string): void {
    this.#forbiddenPrefixes.delete(prefix);
  }

  /** Fails reads whose values have more than this number of bytes, with `too-large`. */
  limitResponses(bytes: number): void {
    this.#maxResponseBytes = bytes;
  }

  #isStalled(stream: FaultyStream): boolean {
    return this.#link === 'black-hole' || this.#stalledPrefixes.has(stream.prefix);
  }

  #isForbidden(key: string): boolean {
    return [...this.#forbiddenPrefixes].some((prefix) => key.startsWith(prefix));
  }

  #read(
    request: RangeRequest,
    options: CallOptions | undefined,
    run: () => Promise<RangeResponse>,
  ): Promise<RangeResponse> {
    return this.#call(options, async () => {
      this.onRead(request);
      if (this.#isForbidden(request.start)) throw forbidden();
      const response = await run();
      const bytes = response.kvs.reduce((sum, { value }) => sum + value.length, 0);
      if (bytes <= this.#maxResponseBytes) return response;
      throw new KvstoreError('too-large', `${bytes} bytes are more than ${this.#maxResponseBytes}`);
    });
  }

  async #answer<T>(run: () => Promise<T>): Promise<T> {
    if (this.#link === 'down') throw unavailable('connection refused');
    if (this.#isTokenExpired) {
      this.#isTokenExpired = false;
      throw expired();
    }
    const answer = await run();
    if (this.#answersToLose === 0) return answer;
    this.#answersToLose--;
    throw unavailable('connection reset');
  }

  /** Runs a call. Rejects if its signal aborts, if the link breaks, or at its deadline if the link is a black hole. */
  #call<T>(options: CallOptions | undefined, run: () => Promise<T>): Promise<T> {
    const { deadlineMs = DEADLINE_MS, signal } = options ?? {};
    if (signal?.aborted === true) return Promise.reject(abortedError());
    return new Promise<T>((resolve, reject) => {
      const settle = (): void => {
        timer?.cancel();
        leaveSignal();
        this.#runningCalls.delete(fail);
      };
      const fail = (error: KvstoreError): void => {
        settle();
        reject(error);
      };
      const timer =
        this.#link === 'black-hole'
          ? this.#clock.after(deadlineMs, () => fail(new KvstoreError('deadline', 'no answer in time')))
          : undefined;
      const leaveSignal = onAbort(signal, () => fail(abortedError()));
      this.#runningCalls.add(fail);
      if (timer !== undefined) return;
      this.#answer(run).then(
        (answer) => {
          settle();
          resolve(answer);
        },
        (error: unknown) => fail(asKvstoreError(error)),
      );
    });
  }
}
