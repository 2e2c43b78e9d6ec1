import type { Clock } from '../base/clock.ts';
import { type Failure, failureOf } from '../base/failure.ts';
import { asKvstoreError, type KvstoreErrorCode, OUT_OF_REACH } from './errors.ts';
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

/** Failures that say nothing of the server. */
const OWN: ReadonlySet<KvstoreErrorCode> = new Set(['aborted', 'closed']);

/** A transport, and what its calls and streams have shown of the server: any answer, and any event, is a sign of life. */
export class ObservedTransport implements Transport {
  readonly #inner: Transport;
  readonly #clock: Clock;
  readonly #onRefused: () => void;
  #connected = false;
  #clusterID: string | undefined;
  #lastFailure: Failure | undefined;
  readonly #requests: Partial<Record<KvstoreErrorCode | 'ok', number>> = { ok: 0 };

  /** @param onRefused called when something was refused for want of a right */
  constructor(inner: Transport, clock: Clock, onRefused: () => void) {
    this.#inner = inner;
    this.#clock = clock;
    this.#onRefused = onRefused;
  }

  /** Whether the last that was heard of the server is not that it cannot be reached. */
  get connected(): boolean {
    return this.#connected;
  }

  /** Of the server that answered last. */
  get clusterID(): string | undefined {
    return this.#clusterID;
  }

  get lastFailure(): Failure | undefined {
    return this.#lastFailure;
  }

  /** How often calls have ended in which way; the streams of watches are none. */
  get requests(): Readonly<Partial<Record<KvstoreErrorCode | 'ok', number>>> {
    return { ...this.#requests };
  }

  range(request: RangeRequest, options?: CallOptions): Promise<RangeResponse> {
    return this.#answered(this.#inner.range(request, options));
  }

  txn(request: TxnRequest, options?: CallOptions): Promise<TxnResponse> {
    return this.#answered(this.#inner.txn(request, options));
  }

  grantLease(ttlSeconds: number, options?: CallOptions): Promise<LeaseID> {
    return this.#seen(this.#inner.grantLease(ttlSeconds, options));
  }

  keepLeaseAlive(lease: LeaseID, options?: CallOptions): Promise<number> {
    return this.#seen(this.#inner.keepLeaseAlive(lease, options));
  }

  revokeLease(lease: LeaseID, options?: CallOptions): Promise<void> {
    return this.#seen(this.#inner.revokeLease(lease, options));
  }

  endpoints(options?: CallOptions): Promise<readonly EndpointStatus[]> {
    return this.#inner.endpoints(options);
  }

  watch(request: WatchRequest, observer: WatchObserver): WatchStream {
    const stream = this.#inner.watch(request, {
      onCreated: (header) => {
        this.#alive(header);
        observer.onCreated(header);
      },
      onEvents: (events, header, partial) => {
        this.#alive(header);
        observer.onEvents(events, header, partial);
      },
      onProgress: (header, requested) => {
        this.#alive(header);
        observer.onProgress(header, requested);
      },
      onEnd: (reason) => {
        this.#failed(reason);
        observer.onEnd(reason);
      },
    });
    return {
      range: (read, options) => this.#answered(stream.range(read, options)),
      pause: () => stream.pause(),
      resume: () => stream.resume(),
      requestProgress: () => stream.requestProgress(),
      cancel: () => stream.cancel(),
    };
  }

  close(): Promise<void> {
    this.#connected = false;
    return this.#inner.close();
  }

  async #answered<T extends { readonly header: ResponseHeader }>(call: Promise<T>): Promise<T> {
    const answer = await this.#seen(call);
    this.#alive(answer.header);
    return answer;
  }

  async #seen<T>(call: Promise<T>): Promise<T> {
    try {
      const answer = await call;
      this.#connected = true;
      this.#count('ok');
      return answer;
    } catch (error) {
      this.#count(asKvstoreError(error).code);
      this.#failed(error);
      throw error;
    }
  }

  #count(outcome: KvstoreErrorCode | 'ok'): void {
    this.#requests[outcome] = (this.#requests[outcome] ?? 0) + 1;
  }

  #alive({ clusterID }: ResponseHeader): void {
    this.#connected = true;
    this.#clusterID = clusterID;
  }

  #failed(thrown: unknown): void {
    const { code } = asKvstoreError(thrown);
    if (!OWN.has(code)) this.#lastFailure = failureOf(thrown, this.#clock);
    if (code !== 'aborted') this.#connected = code !== 'closed' && !OUT_OF_REACH.has(code);
    if (code === 'forbidden') this.#onRefused();
  }
}
