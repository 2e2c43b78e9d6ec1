import { checkArgument, OBJECT, optional, optionsWith } from '../../base/arguments.ts';
import { systemClock } from '../../base/system-clock.ts';
import { KvstoreClient } from '../kvstore-client.ts';
import { FaultyLink } from './faulty-link.ts';
import type { MemoryBackendOptions } from './memory-backend.ts';
import { MemoryServer } from './memory-server.ts';
import { MemoryTransport } from './memory-transport.ts';

/** A `MemoryBackend` whose link to the server injects faults. */
export class FaultyMemoryBackend extends KvstoreClient {
  readonly server: MemoryServer;
  /** The link of this client. Other clients of the server have separate links. */
  readonly link: FaultyLink;

  constructor(options: MemoryBackendOptions = {}) {
    checkArgument('new FaultyMemoryBackend: options', options, optionsWith({ server: optional(OBJECT) }));
    const { clock = systemClock, random = () => 0.5 } = options;
    const { server = new MemoryServer({ clock }) } = options;
    const link = new FaultyLink(new MemoryTransport(server), clock);
    super({ ...options, kind: 'memory', transport: link, clock, random });
    this.server = server;
    this.link = link;
  }
}
