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
 * {@link MemoryServer} behave as several clients of one etcd.
 */
export class MemoryBackend extends KvstoreClient {
  readonly server: MemoryServer;

  constructor(options: MemoryBackendOptions = {}) {
    const { clock = systemClock, random = Math.random, leaseSeconds } = options;
    const server = options.server ?? new MemoryServer({ clock });
    super({ kind: 'memory', transport: new MemoryTransport(server), clock, random, leaseSeconds });
    this.server = server;
  }
}
