import type { Clock } from '../../../src/base/clock.ts';
import { KvstoreClient } from '../../../src/kvstore/kvstore-client.ts';
import type { MemoryBackendOptions } from '../../../src/kvstore/memory/memory-backend.ts';
import { MemoryServer } from '../../../src/kvstore/memory/memory-server.ts';
import { MemoryTransport } from '../../../src/kvstore/memory/memory-transport.ts';
import { FaultyLink } from './faulty-link.ts';

/** A `MemoryBackend` with the way to its server in the test's hand. */
export class FaultyMemory extends KvstoreClient {
  readonly server: MemoryServer;
  readonly link: FaultyLink;

  constructor(options: MemoryBackendOptions & { readonly clock: Clock }) {
    const { clock, random = () => 0.5 } = options;
    const { server = new MemoryServer({ clock }) } = options;
    const link = new FaultyLink(new MemoryTransport(server), clock);
    super({ ...options, kind: 'memory', transport: link, random });
    this.server = server;
    this.link = link;
  }
}
