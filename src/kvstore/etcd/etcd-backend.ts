import type { Clock, Random } from '../../base/clock.ts';
import { systemClock } from '../../base/system-clock.ts';
import { KvstoreClient } from '../kvstore-client.ts';
import type { EtcdConfig } from './etcd-config.ts';
import { EtcdTransport } from './etcd-transport.ts';

/** How an {@link EtcdBackend} differs from its defaults. */
export interface EtcdBackendOptions {
  /** Default: the system's. Deadlines of calls follow the system's clock in any case. */
  readonly clock?: Clock | undefined;
  /** Default: `Math.random`. */
  readonly random?: Random | undefined;
  /** Life of leased keys after the client's last sign of life. Default 900 s. */
  readonly leaseSeconds?: number | undefined;
}

/** The distributed kvstore: an etcd cluster, version 3.4 or later. */
export class EtcdBackend extends KvstoreClient {
  readonly #transport: EtcdTransport;

  constructor(config: EtcdConfig, options: EtcdBackendOptions = {}) {
    const random = options.random ?? Math.random;
    const transport = new EtcdTransport(config, random);
    super({
      kind: 'etcd',
      transport,
      clock: options.clock ?? systemClock,
      random,
      leaseSeconds: options.leaseSeconds,
    });
    this.#transport = transport;
  }

  /** Streams that are open: none after `close`. */
  get openStreams(): number {
    return this.#transport.streams;
  }

  /** Goes over to another configuration without losing anything: see `EtcdTransport.reconfigure`. */
  reconfigure(config: EtcdConfig): void {
    this.#transport.reconfigure(config);
  }
}
