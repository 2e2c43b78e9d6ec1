import { KvstoreError } from '../session/errors.ts';
import type { WatchObserver, WatchRequest } from '../session/transport.ts';
import { MemoryServer } from './memory-server.ts';
import type { MemoryWatchStream } from './memory-watch-stream.ts';

const noLeader = (): KvstoreError => new KvstoreError('no-leader', 'etcdserver: no leader');

/**
 * A `MemoryServer` that can lose its leader. Without a leader, calls of all clients fail with `no-leader`, and streams
 * end.
 */
export class FaultyMemoryServer extends MemoryServer {
  #isLeaderless = false;

  /** Ends all streams, and fails all calls until {@link FaultyMemoryServer.electLeader}. */
  loseLeader(): void {
    this.#isLeaderless = true;
    this.endStreams(noLeader());
  }

  /** Ends {@link FaultyMemoryServer.loseLeader}. */
  electLeader(): void {
    this.#isLeaderless = false;
  }

  /** @internal */
  override watch(request: WatchRequest, observer: WatchObserver, onEnded?: () => void): MemoryWatchStream {
    const stream = super.watch(request, observer, onEnded);
    if (this.#isLeaderless) stream.end(noLeader());
    return stream;
  }

  /** @internal */
  protected override checkLeader(): void {
    if (this.#isLeaderless) throw noLeader();
  }
}
