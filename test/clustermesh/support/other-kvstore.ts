import { KvstoreClient } from '../../../src/kvstore/kvstore-client.ts';
import { FaultyLink } from '../../../src/kvstore/memory/faulty-link.ts';
import type { MemoryServer } from '../../../src/kvstore/memory/memory-server.ts';
import { MemoryTransport } from '../../../src/kvstore/memory/memory-transport.ts';
import type { Transport } from '../../../src/kvstore/session/transport.ts';
import type { ManualClock } from '../../base/support/manual-clock.ts';

/** One address whose kvstore can be replaced, like a DNS name that is changed. */
export class MovableAddress {
  #link: FaultyLink;
  readonly #clock: ManualClock;

  constructor(server: MemoryServer, clock: ManualClock) {
    this.#clock = clock;
    this.#link = new FaultyLink(new MemoryTransport(server), clock);
  }

  /** A client of the current kvstore at the address. */
  connect(): KvstoreClient {
    const transport: Transport = {
      range: (...words) => this.#link.range(...words),
      txn: (...words) => this.#link.txn(...words),
      grantLease: (...words) => this.#link.grantLease(...words),
      keepLeaseAlive: (...words) => this.#link.keepLeaseAlive(...words),
      revokeLease: (...words) => this.#link.revokeLease(...words),
      endpoints: () => this.#link.endpoints(),
      watch: (...words) => this.#link.watch(...words),
      close: () => this.#link.close(),
    };
    return new KvstoreClient({ kind: 'memory', transport, clock: this.#clock, random: () => 0.5 });
  }

  /** Closes every connection; the next one reaches this server. */
  moveTo(server: MemoryServer): void {
    const before = this.#link;
    this.#link = new FaultyLink(new MemoryTransport(server), this.#clock);
    before.cut();
  }
}
