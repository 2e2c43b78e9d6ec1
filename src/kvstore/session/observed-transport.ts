import type { Clock } from '../../base/clock.ts';
import { type Failure, failureOf } from '../../base/failure.ts';
import { asKvstoreError, type KvstoreErrorCode, UNREACHABLE } from './errors.ts';
import type {
  CallOptions,
  EndpointStatus,
  LeaseID,
  RangeRequest,
  RangeResponse,
  ResponseHeader,
  Transport,
  TxnRequest,
  TxnResponse,
  WatchObserver,
  WatchRequest,
  WatchStream,
} from './transport.ts';

/** Failures that do not depend on the server. */
const LOCAL: ReadonlySet<KvstoreErrorCode> = new Set(['aborted', 'closed']);

/** Records whether the server of a transport is reachable, by the results of its calls and streams. */
export class ObservedTransport implements Transport {
  readonly #inner: Transport;
  readonly #clock: Clock;
  readonly #onRefused: () => void;
  readonly #onRevisionDecreased: (lostHistorySeenAt: number) => void;
  #isConnected = false;
  #clusterID: string | undefined;
  #lastFailure: Failure | undefined;
  /** The highest revision in an answer since the last restore, and when it was last received, in monotonic time. */
  #latest = { revision: 0, at: 0 };
  readonly #requests: Partial<Record<KvstoreErrorCode | 'ok', number>> = { ok: 0 };

  /**
   * @param onRefused called if a call was refused because of a missing right
   * @param onRevisionDecreased called if the revision of the store has decreased, because the store was restored;
   *   `lostHistorySeenAt` is when an answer from before the restore was last received
   */
  constructor(
    inner: Transport,
    clock: Clock,
    onRefused: () => void,
    onRevisionDecreased: (lostHistorySeenAt: number) => void,
  ) {
    this.#inner = inner;
    this.#clock = clock;
    this.#onRefused = onRefused;
    this.#onRevisionDecreased = onRevisionDecreased;
  }

  /** False while the server is unreachable, by the result of the last call or stream. */
  get connected(): boolean {
    return this.#isConnected;
  }

  /** Cluster id of the last answer. */
  get clusterID(): string | undefined {
    return this.#clusterID;
  }

  get lastFailure(): Failure | undefined {
    return this.#lastFailure;
  }

  /** Returns the number of calls by outcome. Watch streams are not counted. */
  get requests(): Readonly<Partial<Record<KvstoreErrorCode | 'ok', number>>> {
    return { ...this.#requests };
  }

  range(request: RangeRequest, options?: CallOptions): Promise<RangeResponse> {
    return this.#checkRevision(this.#inner.range(request, options));
  }

  txn(request: TxnRequest, options?: CallOptions): Promise<TxnResponse> {
    return this.#checkRevision(this.#inner.txn(request, options), (answer) => hasWritten(request, answer));
  }

  grantLease(ttlSeconds: number, options?: CallOptions): Promise<LeaseID> {
    return this.#observe(this.#inner.grantLease(ttlSeconds, options));
  }

  keepLeaseAlive(lease: LeaseID, options?: CallOptions): Promise<number> {
    return this.#observe(this.#inner.keepLeaseAlive(lease, options));
  }

  revokeLease(lease: LeaseID, options?: CallOptions): Promise<void> {
    return this.#observe(this.#inner.revokeLease(lease, options));
  }

  endpoints(options?: CallOptions): Promise<readonly EndpointStatus[]> {
    return this.#inner.endpoints(options);
  }

  watch(request: WatchRequest, observer: WatchObserver): WatchStream {
    const stream = this.#inner.watch(request, {
      onCreated: (header) => {
        this.#recordAnswer(header);
        observer.onCreated(header);
      },
      onEvents: (events, header, isPartial) => {
        this.#recordAnswer(header);
        observer.onEvents(events, header, isPartial);
      },
      onProgress: (header, isRequested) => {
        this.#recordAnswer(header);
        observer.onProgress(header, isRequested);
      },
      onEnd: (reason) => {
        this.#recordFailure(reason);
        observer.onEnd(reason);
      },
    });
    return {
      range: (read, options) => this.#checkRevision(stream.range(read, options)),
      pause: () => stream.pause(),
      resume: () => stream.resume(),
      requestProgress: () => stream.requestProgress(),
      cancel: () => stream.cancel(),
    };
  }

  close(): Promise<void> {
    this.#isConnected = false;
    return this.#inner.close();
  }

  /**
   * Awaits an answer and checks its revision. Quorum revisions never decrease: an answer has at least the revision of
   * any answer before the call, and the answer of a write has a higher one. Otherwise the store was restored. This
   * check misses a restore if the restored store has already reached the revision again.
   */
  async #checkRevision<T extends { readonly header: ResponseHeader }>(
    call: Promise<T>,
    isWrite: (answer: T) => boolean = () => false,
  ): Promise<T> {
    const previous = this.#latest;
    const answer = await this.#observe(call);
    const { header } = answer;
    this.#recordAnswer(header);
    const { revision } = header;
    const minRevision = previous.revision + (isWrite(answer) ? 1 : 0);
    const isRestored = revision < minRevision;
    if (isRestored || revision >= this.#latest.revision) this.#latest = { revision, at: this.#clock.now() };
    if (isRestored) this.#onRevisionDecreased(previous.at);
    return answer;
  }

  async #observe<T>(call: Promise<T>): Promise<T> {
    try {
      const answer = await call;
      this.#isConnected = true;
      this.#count('ok');
      return answer;
    } catch (error) {
      this.#count(asKvstoreError(error).code);
      this.#recordFailure(error);
      throw error;
    }
  }

  #count(outcome: KvstoreErrorCode | 'ok'): void {
    this.#requests[outcome] = (this.#requests[outcome] ?? 0) + 1;
  }

  #recordAnswer({ clusterID }: ResponseHeader): void {
    this.#isConnected = true;
    this.#clusterID = clusterID;
  }

  #recordFailure(thrown: unknown): void {
    const { code } = asKvstoreError(thrown);
    if (!LOCAL.has(code)) this.#lastFailure = failureOf(thrown, this.#clock);
    // An aborted call proves nothing. Codes other than `closed` and UNREACHABLE are answers of the server.
    if (code !== 'aborted') this.#isConnected = code !== 'closed' && !UNREACHABLE.has(code);
    if (code === 'forbidden') this.#onRefused();
  }
}

function hasWritten({ writes, otherwise = [] }: TxnRequest, { succeeded, deleted }: TxnResponse): boolean {
  return deleted > 0 || (succeeded ? writes : otherwise).some(({ op }) => op === 'put');
}
