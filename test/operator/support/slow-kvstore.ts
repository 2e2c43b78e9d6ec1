import type { Clock } from '../../../src/base/clock.ts';
import type { MemoryServer } from '../../../src/kvstore/memory/memory-server.ts';
import { MemoryTransport } from '../../../src/kvstore/memory/memory-transport.ts';
import { abortedError, KvstoreError } from '../../../src/kvstore/session/errors.ts';
import type {
  CallOptions,
  Transport,
  TxnRequest,
  TxnResponse,
  WatchObserver,
  WatchRequest,
  WatchStream,
} from '../../../src/kvstore/session/transport.ts';
import type { ManualClock } from '../../base/support/manual-clock.ts';
import { type Pause, SlowLink } from './candidates.ts';

const DEADLINE_MS = 10_000;

/**
 * The link of one process to a kvstore. An aborted call may still arrive later. A stream breaks if a part of
 * it is lost.
 */
export class SlowKvstore extends SlowLink implements Transport {
  readonly #inner: MemoryTransport;
  readonly #clock: Clock;
  readonly #pause: Pause;
  /** Receives each transaction on its arrival. */
  onArrival: (request: TxnRequest) => void = () => {};

  constructor(server: MemoryServer, base: ManualClock, clock: Clock, pause: Pause) {
    super(base, pause);
    this.#inner = new MemoryTransport(server);
    this.#clock = clock;
    this.#pause = pause;
  }

  txn(request: TxnRequest, options?: CallOptions): Promise<TxnResponse> {
    return this.#call(options, async () => {
      this.onArrival(request);
      return this.#inner.txn(request);
    });
  }

  range: Transport['range'] = (request, options) => this.#call(options, () => this.#inner.range(request));
  grantLease: Transport['grantLease'] = (ttl, options) =>
    this.#call(options, () => this.#inner.grantLease(ttl));
  keepLeaseAlive: Transport['keepLeaseAlive'] = (lease, options) =>
    this.#call(options, () => this.#inner.keepLeaseAlive(lease));
  revokeLease: Transport['revokeLease'] = (lease, options) =>
    this.#call(options, () => this.#inner.revokeLease(lease));
  endpoints: Transport['endpoints'] = () => this.#inner.endpoints();
  close: Transport['close'] = () => this.#inner.close();

  watch(request: WatchRequest, observer: WatchObserver): WatchStream {
    let isOpen = true;
    const deliver = (happen: () => void): void => {
      if (!isOpen) return;
      isOpen = this.loses === 'nothing';
      if (isOpen) {
        this.#pause.when(() => {
          if (isOpen) happen();
        });
        return;
      }
      stream.cancel();
      this.#pause.when(() => observer.onEnd(new KvstoreError('unavailable', 'the connection was reset')));
    };
    const stream = this.#inner.watch(request, {
      onCreated: (...of) => deliver(() => observer.onCreated(...of)),
      onEvents: (...of) => deliver(() => observer.onEvents(...of)),
      onProgress: (...of) => deliver(() => observer.onProgress(...of)),
      onEnd: (...of) => deliver(() => observer.onEnd(...of)),
    });
    return {
      range: (read, options) => this.#call(options, () => stream.range(read)),
      pause: () => stream.pause(),
      resume: () => stream.resume(),
      requestProgress: () => stream.requestProgress(),
      cancel: () => {
        isOpen = false;
        stream.cancel();
      },
    };
  }

  #call<T>({ signal, deadlineMs = DEADLINE_MS }: CallOptions = {}, run: () => Promise<T>): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      const end = (settle: () => void): void => {
        timer.cancel();
        signal?.removeEventListener('abort', abort);
        settle();
      };
      const abort = (): void => end(() => reject(abortedError()));
      const timer = this.#clock.after(deadlineMs, () =>
        end(() => reject(new KvstoreError('deadline', 'no answer in time'))),
      );
      if (signal?.aborted === true) return abort();
      signal?.addEventListener('abort', abort);
      this.carry(run).then(
        (answer) => end(() => resolve(answer)),
        (error: unknown) => end(() => reject(error)),
      );
    });
  }
}
