import { MemoryServer } from '../../../src/kvstore/memory/memory-server.ts';
import { KvstoreError } from '../../../src/kvstore/session/errors.ts';
import type {
  LeaseID,
  RangeRequest,
  RangeResponse,
  TxnRequest,
  TxnResponse,
  WatchObserver,
  WatchRequest,
} from '../../../src/kvstore/session/transport.ts';

type Stream = ReturnType<MemoryServer['watch']>;

const noLeader = (): KvstoreError => new KvstoreError('no-leader', 'etcdserver: no leader');

/** A server that can lose its leader, for all of its clients: calls fail then, and streams end. */
export class FaultyServer extends MemoryServer {
  readonly #open = new Set<Stream>();
  #leaderless = false;

  loseLeader(): void {
    this.#leaderless = true;
    for (const stream of this.#open) stream.end(noLeader());
  }

  electLeader(): void {
    this.#leaderless = false;
  }

  override range(request: RangeRequest): RangeResponse {
    this.#serve();
    return super.range(request);
  }

  override txn(request: TxnRequest): TxnResponse {
    this.#serve();
    return super.txn(request);
  }

  override grantLease(ttlSeconds: number): LeaseID {
    this.#serve();
    return super.grantLease(ttlSeconds);
  }

  override keepLeaseAlive(id: LeaseID): number {
    this.#serve();
    return super.keepLeaseAlive(id);
  }

  override watch(request: WatchRequest, observer: WatchObserver, onGone: () => void = () => {}): Stream {
    const stream: Stream = super.watch(request, observer, () => {
      this.#open.delete(stream);
      onGone();
    });
    this.#open.add(stream);
    if (this.#leaderless) stream.end(noLeader());
    return stream;
  }

  #serve(): void {
    if (this.#leaderless) throw noLeader();
  }
}
