import { checkArgument, OBJECT, optional, optionsWith } from '../../base/arguments.ts';
import { type RuntimeOptions, withRuntime } from '../../base/system-clock.ts';
import { type BackendOptions, KvstoreClient } from '../kvstore-client.ts';
import { MemoryServer } from './memory-server.ts';
import { MemoryTransport } from './memory-transport.ts';

/** Options of {@link MemoryBackend}. */
export interface MemoryBackendOptions extends BackendOptions, RuntimeOptions {
  /** A kvstore to share with other backends. Default: a new one. */
  readonly server?: MemoryServer | undefined;
}

/**
 * A kvstore without etcd: the same contract, in this process. Several backends with one {@link MemoryServer} behave
 * like several clients of one etcd.
 */
export class MemoryBackend extends KvstoreClient {
  readonly server: MemoryServer;

  constructor(options: MemoryBackendOptions = {}) {
    checkArgument('new MemoryBackend: options', options, optionsWith({ server: optional(OBJECT) }));
    const { clock, random } = withRuntime(options);
    const server = options.server ?? new MemoryServer({ clock });
    const transport = new MemoryTransport(server);
    super({ ...options, kind: 'memory', transport, clock, random });
    this.server = server;
  }
}
