import type { Clock } from '../../../src/base/clock.ts';
import { abortedError, asKvstoreError, KvstoreError } from '../../../src/kvstore/session/errors.ts';
import { allowManyListeners } from '../../../src/kvstore/session/shared-signal.ts';
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
} from '../../../src/kvstore/session/transport.ts';
import { FaultyStream } from './faulty-stream.ts';

/** The way to the server: `down` refuses at once, a `black-hole` swallows everything and says nothing. */
export type LinkState = 'up' | 'down' | 'black-hole';

const DEADLINE_MS = 10_000;
const KEEPALIVE_MS = 25_000; // ping after 15 s, give up 10 s later: as the etcd transport is set

const unavailable = (why: string): KvstoreError => new KvstoreError('unavailable', why);
const forbidden = (): KvstoreError => new KvstoreError('forbidden', 'etcdserver: permission denied');
const expired = (): KvstoreError => new KvstoreError('invalid-token', 'etcdserver: invalid auth token');

/**
 * A client's link to a server, with every fault of a network to order, over any transport. Each client has its own, so
 * that one can be cut off while the others go on.
 */
export class FaultyLink implements Transport {
  /** Called with every read before it is made. */
  onRead: (request: RangeRequest) => void = () => {};
  readonly #inner: Transport;
  readonly #clock: Clock;
  readonly #streams = new Set<FaultyStream>();
  readonly #stalledPrefixes = new Set<string>();
  readonly #forbidden = new Set<string>();
  readonly #waiting = new Set<(error: KvstoreError) => void>();
  #link: LinkState = 'up';
  #tokenExpired = false;
  #answersToLose = 0;
  #cutNextWatchAfter: number | undefined;
  #maxResponseBytes = Number.POSITIVE_INFINITY;

  constructor(inner: Transport, clock: Clock) {
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
      onGone: () => this.#streams.delete(stream),
    });
    this.#streams.add(stream);
    this.#applyFaults(stream);
    return stream;
  }

  async close(): Promise<void> {
    for (const fail of [...this.#waiting]) fail(new KvstoreError('closed', 'the client was closed'));
    for (const stream of this.#streams) stream.unstall();
    await this.#inner.close();
  }

  // ── Faults ─────────────────────────────────────────────────────────────────────────────────────────────

  get link(): LinkState {
    return this.#link;
  }

  /** Streams of this client that are open. */
  get streams(): number {
    return this.#streams.size;
  }

  /** Breaks every stream and every call under way; the next ones work. */
  cut(): void {
    const reset = unavailable('connection reset');
    for (const stream of this.#streams) stream.end(reset);
    for (const fail of [...this.#waiting]) fail(reset);
  }

  /** Breaks everything, and refuses until {@link up}. */
  down(): void {
    this.#link = 'down';
    this.cut();
  }

  /** From now on nothing arrives; calls run into their deadline, streams into the keepalive. */
  blackHole(): void {
    this.#link = 'black-hole';
    for (const stream of this.#streams) stream.stall();
    this.#clock.after(KEEPALIVE_MS, () => {
      if (this.#link !== 'black-hole') return;
      for (const stream of this.#streams) stream.end(unavailable('keepalive timed out'));
    });
  }

  /** Heals `down` and `blackHole`. */
  up(): void {
    this.#link = 'up';
    for (const stream of this.#streams) if (!this.#isStalled(stream)) stream.unstall();
  }

  /** The next `count` calls take effect on the server, and their answers are lost. */
  loseAnswers(count: number): void {
    this.#answersToLose = count;
  }

  /** The next watch breaks after so many events, in the middle of its catch-up if it is long enough. */
  cutNextWatchAfter(events: number): void {
    this.#cutNextWatchAfter = events;
  }

  /** Streams of this prefix are held back, others are not: events of different watches change their order. */
  stallWatch(prefix: string): void {
    this.#stalledPrefixes.add(prefix);
    for (const stream of this.#streams) if (this.#isStalled(stream)) stream.stall();
  }

  unstallWatch(prefix: string): void {
    this.#stalledPrefixes.delete(prefix);
    for (const stream of this.#streams) if (!this.#isStalled(stream)) stream.unstall();
  }

  /** The next call fails with `invalid-token`, and so do all streams; then a new token has been fetched. */
  expireToken(): void {
    this.#tokenExpired = true;
    for (const stream of this.#streams) stream.end(expired());
  }

  /** Refuses reads and watches at or below `prefix`, as to a user without the right. Streams go on, as etcd's do. */
  forbid(prefix: string): void {
    this.#forbidden.add(prefix);
  }

  /** Takes {@link forbid} back. */
  allow(prefix: string): void {
    this.#forbidden.delete(prefix);
  }

  /** Range answers with more bytes of values fail with `too-large`. */
  limitResponses(bytes: number): void {
    this.#maxResponseBytes = bytes;
  }

  // ── Inside ─────────────────────────────────────────────────────────────────────────────────────────────

  #isStalled(stream: FaultyStream): boolean {
    return this.#link === 'black-hole' || this.#stalledPrefixes.has(stream.prefix);
  }

  #isForbidden(key: string): boolean {
    return [...this.#forbidden].some((prefix) => key.startsWith(prefix));
  }

  #applyFaults(stream: FaultyStream): void {
    if (this.#link === 'down') stream.end(unavailable('connection refused'));
    if (this.#isStalled(stream)) stream.stall();
    if (this.#isForbidden(stream.prefix)) stream.end(forbidden());
    if (this.#cutNextWatchAfter === undefined) return;
    stream.cutAfter(this.#cutNextWatchAfter);
    this.#cutNextWatchAfter = undefined;
  }

  #read(
    request: RangeRequest,
    options: CallOptions | undefined,
    run: () => Promise<RangeResponse>,
  ): Promise<RangeResponse> {
    return this.#call(options, async () => {
      this.onRead(request);
      if (this.#isForbidden(request.start)) throw forbidden();
      return this.#limited(await run());
    });
  }

  #limited(response: RangeResponse): RangeResponse {
    const bytes = response.kvs.reduce((sum, { value }) => sum + value.length, 0);
    if (bytes <= this.#maxResponseBytes) return response;
    throw new KvstoreError('too-large', `${bytes} bytes are more than ${this.#maxResponseBytes}`);
  }

  async #answer<T>(run: () => Promise<T>): Promise<T> {
    if (this.#link === 'down') throw unavailable('connection refused');
    if (this.#tokenExpired) {
      this.#tokenExpired = false;
      throw expired();
    }
    const answer = await run();
    if (this.#answersToLose === 0) return answer;
    this.#answersToLose--;
    throw unavailable('connection reset');
  }

  /** Runs a call, unless the link swallows it, or its signal or deadline comes first. */
  #call<T>(options: CallOptions | undefined, run: () => Promise<T>): Promise<T> {
    const { deadlineMs = DEADLINE_MS } = options ?? {};
    const signal = allowManyListeners(options?.signal);
    return new Promise<T>((resolve, reject) => {
      const settle = (): void => {
        timer?.cancel();
        signal?.removeEventListener('abort', abort);
        this.#waiting.delete(fail);
      };
      const fail = (error: KvstoreError): void => {
        settle();
        reject(error);
      };
      const abort = (): void => fail(abortedError());
      const timer =
        this.#link === 'black-hole'
          ? this.#clock.after(deadlineMs, () => fail(new KvstoreError('deadline', 'no answer in time')))
          : undefined;
      if (signal?.aborted === true) return fail(abortedError());
      signal?.addEventListener('abort', abort);
      this.#waiting.add(fail);
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
