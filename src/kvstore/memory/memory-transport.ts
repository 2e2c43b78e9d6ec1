import type { Clock } from '../../base/clock.ts';
import { abortedError, asKvstoreError, KvstoreError } from '../errors.ts';
import { sharedSignal } from '../shared-signal.ts';
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
} from '../transport.ts';
import type { MemoryServer } from './memory-server.ts';
import type { MemoryWatchStream } from './memory-watch-stream.ts';

/** The way to the server: `down` refuses at once, a `black-hole` swallows everything and says nothing. */
export type LinkState = 'up' | 'down' | 'black-hole';

const DEADLINE_MS = 10_000;
const KEEPALIVE_MS = 25_000; // ping after 15 s, give up 10 s later: as the etcd transport is set

const unavailable = (why: string): KvstoreError => new KvstoreError('unavailable', why);

/**
 * A client's link to a {@link MemoryServer}, with every fault of a network to order. Each client has its own,
 * so one can be cut off while the others go on.
 */
export class MemoryTransport implements Transport {
  readonly #server: MemoryServer;
  readonly #clock: Clock;
  readonly #streams = new Set<MemoryWatchStream>();
  readonly #stalledPrefixes = new Set<string>();
  readonly #forbidden = new Set<string>();
  readonly #waiting = new Set<(error: KvstoreError) => void>();
  #link: LinkState = 'up';
  #closed = false;
  #tokenExpired = false;
  #answersToLose = 0;
  #cutNextWatchAfter: number | undefined;
  #maxResponseBytes = Number.POSITIVE_INFINITY;

  constructor(server: MemoryServer, clock: Clock) {
    this.#server = server;
    this.#clock = clock;
  }

  range(request: RangeRequest, options?: CallOptions): Promise<RangeResponse> {
    return this.#call(options, () => {
      this.#checkRight(request.start);
      return this.#limited(this.#server.range(request));
    });
  }

  txn(request: TxnRequest, options?: CallOptions): Promise<TxnResponse> {
    return this.#call(options, () => this.#server.txn(request));
  }

  grantLease(ttlSeconds: number, options?: CallOptions): Promise<LeaseID> {
    return this.#call(options, () => this.#server.grantLease(ttlSeconds));
  }

  keepLeaseAlive(lease: LeaseID, options?: CallOptions): Promise<number> {
    return this.#call(options, () => this.#server.keepLeaseAlive(lease));
  }

  revokeLease(lease: LeaseID, options?: CallOptions): Promise<void> {
    return this.#call(options, () => this.#server.revokeLease(lease));
  }

  endpoints(): Promise<readonly EndpointStatus[]> {
    const healthy = this.#link === 'up' && !this.#closed;
    return Promise.resolve([{ endpoint: 'memory', healthy, isLeader: true }]);
  }

  watch(request: WatchRequest, observer: WatchObserver): WatchStream {
    const forget = (): boolean => this.#streams.delete(stream);
    const stream = this.#server.watch(request, {
      onCreated: (header) => observer.onCreated(header),
      onEvents: (events, header, partial) => observer.onEvents(events, header, partial),
      onProgress: (header, requested) => observer.onProgress(header, requested),
      onEnd: (reason) => {
        forget();
        observer.onEnd(reason);
      },
    });
    this.#streams.add(stream);
    this.#applyFaults(stream);
    return {
      pause: () => stream.pause(),
      resume: () => stream.resume(),
      requestProgress: () => stream.requestProgress(),
      cancel: () => {
        forget();
        stream.cancel();
      },
    };
  }

  close(): Promise<void> {
    this.#closed = true;
    this.#breakAll(new KvstoreError('closed', 'the client was closed'));
    return Promise.resolve();
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
    this.#breakAll(unavailable('connection reset'));
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
      for (const stream of [...this.#streams]) stream.end(unavailable('keepalive timed out'));
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
    const error = new KvstoreError('invalid-token', 'etcdserver: invalid auth token');
    for (const stream of [...this.#streams]) stream.end(error);
  }

  /** Refuses reads and watches at or below `prefix`, as to a user without the right; streams break. */
  forbid(prefix: string): void {
    this.#forbidden.add(prefix);
    const error = new KvstoreError('forbidden', 'etcdserver: permission denied');
    for (const stream of [...this.#streams]) if (stream.prefix.startsWith(prefix)) stream.end(error);
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

  #isStalled(stream: MemoryWatchStream): boolean {
    return this.#link === 'black-hole' || this.#stalledPrefixes.has(stream.prefix);
  }

  #applyFaults(stream: MemoryWatchStream): void {
    if (this.#closed) stream.end(new KvstoreError('closed', 'the client was closed'));
    if (this.#link === 'down') stream.end(unavailable('connection refused'));
    if (this.#isStalled(stream)) stream.stall();
    if ([...this.#forbidden].some((prefix) => stream.prefix.startsWith(prefix))) {
      stream.end(new KvstoreError('forbidden', 'etcdserver: permission denied'));
    }
    if (this.#cutNextWatchAfter === undefined) return;
    stream.cutAfter(this.#cutNextWatchAfter);
    this.#cutNextWatchAfter = undefined;
  }

  #checkRight(key: string): void {
    for (const prefix of this.#forbidden) {
      if (key.startsWith(prefix)) throw new KvstoreError('forbidden', 'etcdserver: permission denied');
    }
  }

  #breakAll(error: KvstoreError): void {
    for (const stream of [...this.#streams]) stream.end(error);
    for (const fail of [...this.#waiting]) fail(error);
  }

  #limited(response: RangeResponse): RangeResponse {
    const bytes = response.kvs.reduce((sum, { value }) => sum + value.length, 0);
    if (bytes <= this.#maxResponseBytes) return response;
    throw new KvstoreError('too-large', `${bytes} bytes are more than ${this.#maxResponseBytes}`);
  }

  /** What fails a call before it reaches the server. */
  #obstacle(): KvstoreError | undefined {
    if (this.#closed) return new KvstoreError('closed', 'the client was closed');
    if (this.#link === 'down') return unavailable('connection refused');
    if (!this.#tokenExpired) return undefined;
    this.#tokenExpired = false;
    return new KvstoreError('invalid-token', 'etcdserver: invalid auth token');
  }

  #answer<T>(run: () => T): T {
    const obstacle = this.#obstacle();
    if (obstacle !== undefined) throw obstacle;
    const answer = run();
    if (this.#answersToLose === 0) return answer;
    this.#answersToLose--;
    throw unavailable('connection reset');
  }

  /** Runs a call in a microtask, unless the link swallows it or its signal or deadline comes first. */
  #call<T>(options: CallOptions | undefined, run: () => T): Promise<T> {
    const { deadlineMs = DEADLINE_MS } = options ?? {};
    const signal = sharedSignal(options?.signal);
    return new Promise<T>((resolve, reject) => {
      const fail = (error: KvstoreError): void => {
        settle();
        reject(error);
      };
      const abort = (): void => fail(abortedError());
      const timer =
        this.#link === 'black-hole'
          ? this.#clock.after(deadlineMs, () => fail(new KvstoreError('deadline', 'no answer in time')))
          : undefined;
      const settle = (): void => {
        timer?.cancel();
        signal?.removeEventListener('abort', abort);
        this.#waiting.delete(fail);
      };
      if (signal?.aborted === true) return fail(abortedError());
      signal?.addEventListener('abort', abort);
      this.#waiting.add(fail);
      if (timer !== undefined) return;
      queueMicrotask(() => {
        if (!this.#waiting.has(fail)) return;
        settle();
        try {
          resolve(this.#answer(run));
        } catch (error) {
          reject(asKvstoreError(error));
        }
      });
    });
  }
}
