import { KvstoreError } from '../session/errors.ts';
import type {
  LeaseID,
  RangeRequest,
  RangeResponse,
  TxnRequest,
  TxnResponse,
  WatchObserver,
  WatchRequest,
} from '../session/transport.ts';
import { MemoryServer } from './memory-server.ts';
import type { MemoryWatchStream } from './memory-watch-stream.ts';

const noLeader = (): KvstoreError => new KvstoreError('no-leader', 'etcdserver: no leader');

/**
 * A `MemoryServer` that can lose its leader. Without a leader, calls of all clients fail with `no-leader`, and streams
 * end.
 */
export class FaultyMemoryServer extends MemoryServer {
  readonly #open = new Set<MemoryWatchStream>();
  #leaderless = false;

  /** Ends all streams, and fails all calls until {@link electLeader}. */
  loseLeader(): void {
    this.#leaderless = true;
    for (const stream of this.#open) stream.end(noLeader());
  }

  /** Ends {@link loseLeader}. */
  electLeader(): void {
    this.#leaderless = false;
  }

  /** @internal */
  override range(request: RangeRequest): RangeResponse {
    this.#checkLeader();
    return super.range(request);
  }

  /** @internal */
  override txn(request: TxnRequest): TxnResponse {
    this.#checkLeader();
    return super.txn(request);
  }

  /** @internal */
  override txnInTurns(request: TxnRequest): TxnResponse | Promise<TxnResponse> {
    this.#checkLeader();
    return super.txnInTurns(request);
  }

  /** @internal */
  override grantLease(ttlSeconds: number): LeaseID {
    this.#checkLeader();
    return super.grantLease(ttlSeconds);
  }

  /** @internal */
  override keepLeaseAlive(id: LeaseID): number {
    this.#checkLeader();
    return super.keepLeaseAlive(id);
  }

  /** @internal */
  override revokeLease(id: LeaseID): void {
    this.#checkLeader();
    super.revokeLease(id);
  }

  /** @internal */
  override watch(
    request: WatchRequest,
    observer: WatchObserver,
    onEnded: () => void = () => {},
  ): MemoryWatchStream {
    const stream: MemoryWatchStream = super.watch(request, observer, () => {
      this.#open.delete(stream);
      onEnded();
    });
    this.#open.add(stream);
    if (this.#leaderless) stream.end(noLeader());
    return stream;
  }

  #checkLeader(): void {
    if (this.#leaderless) throw noLeader();
  }
}
