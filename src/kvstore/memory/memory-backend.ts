import type { Clock, Random } from '../../base/clock.ts';
import { systemClock } from '../../base/system-clock.ts';
import { KvstoreClient, type KvstoreClientOptions } from '../kvstore-client.ts';
import { MemoryServer } from './memory-server.ts';
import { MemoryTransport } from './memory-transport.ts';

/** Options of {@link MemoryBackend}. */
export interface MemoryBackendOptions
  extends Pick<
    KvstoreClientOptions,
    'onFailure' | 'leaseSeconds' | 'mayWrite' | 'writeTimeoutMs' | 'witnessLeases'
  > {
  /** Share a kvstore with other backends; by default each backend has its own. */
  readonly server?: MemoryServer | undefined;
  /** Default: the system's. */
  readonly clock?: Clock | undefined;
  /** Default: `Math.random`. */
  readonly random?: Random | undefined;
}

/**
 * The kvstore that needs no etcd: the same contract, in this process. Several backends over one
 * {@link MemoryServer} behave as several clients of one etcd.
 */
export class MemoryBackend extends KvstoreClient {
  readonly server: MemoryServer;

  constructor(options: MemoryBackendOptions = {}) {
    const { clock = systemClock, random = Math.random } = options;
    const server = options.server ?? new MemoryServer({ clock });
    const transport = new MemoryTransport(server);
    super({ ...options, kind: 'memory', transport, clock, random });
    this.server = server;
  }
}
