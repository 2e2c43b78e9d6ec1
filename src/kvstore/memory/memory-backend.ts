import type { Clock, Random } from '../../base/clock.ts';
import { systemClock } from '../../base/system-clock.ts';
import { KvstoreClient } from '../kvstore-client.ts';
import { MemoryServer } from './memory-server.ts';
import { MemoryTransport } from './memory-transport.ts';

/** How a {@link MemoryBackend} differs from its defaults. */
export interface MemoryBackendOptions {
  /** Share a kvstore with other backends; by default each backend has its own. */
  readonly server?: MemoryServer | undefined;
  /** Default: the system's. */
  readonly clock?: Clock | undefined;
  /** Default: `Math.random`. */
  readonly random?: Random | undefined;
  /** Life of leased keys after the client's last sign of life. Default 900 s. */
  readonly leaseSeconds?: number | undefined;
}

/**
 * The kvstore that needs no etcd: the same contract, in this process. Several backends over one
 * {@link MemoryServer} behave as several clients of one etcd. `link` orders the faults of the network between
 * this backend and the server, `server` those of the server itself.
 */
export class MemoryBackend extends KvstoreClient {
  readonly server: MemoryServer;
  readonly link: MemoryTransport;

  constructor(options: MemoryBackendOptions = {}) {
    const clock = options.clock ?? systemClock;
    const server = options.server ?? new MemoryServer({ clock });
    const link = new MemoryTransport(server, clock);
    super({
      kind: 'memory',
      transport: link,
      clock,
      random: options.random ?? Math.random,
      leaseSeconds: options.leaseSeconds,
    });
    this.server = server;
    this.link = link;
  }
}
