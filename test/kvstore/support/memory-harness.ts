import { bytesOfText, textOfBytes } from '../../../src/kvstore/codec/bytes.ts';
import { keyRange, prefixRange } from '../../../src/kvstore/codec/key-range.ts';
import { FaultyMemoryBackend } from '../../../src/kvstore/memory/faulty-memory-backend.ts';
import { FaultyMemoryServer } from '../../../src/kvstore/memory/faulty-memory-server.ts';
import type { MemoryServer } from '../../../src/kvstore/memory/memory-server.ts';
import { NO_LEASE, type WriteOperation } from '../../../src/kvstore/session/transport.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import type { ContractClient, ContractKvstore, Entry } from './contract-harness.ts';
import { advance, settle } from './settle.ts';

function operation([key, value]: readonly [string, string | undefined]): WriteOperation {
  return value === undefined
    ? { op: 'delete', range: keyRange(key) }
    : { op: 'put', key, value: bytesOfText(value), lease: NO_LEASE };
}

function memoryClient(server: MemoryServer, clock: ManualClock, leaseSeconds: number): ContractClient {
  const backend = new FaultyMemoryBackend({ server, clock, leaseSeconds });
  const { link } = backend;
  const own = new Set<string>();
  const grant = link.grantLease.bind(link);
  link.grantLease = async (ttl, options) => {
    const lease = await grant(ttl, options);
    own.add(lease);
    return lease;
  };
  const done = Promise.resolve();
  const now = (act: () => void): Promise<void> => {
    act();
    return done;
  };
  return {
    backend,
    cut: () => now(() => link.cut()),
    down: () => now(() => link.down()),
    blackHole: () => now(() => link.blackHole()),
    up: () => now(() => link.up()),
    cutNextCatchUp: () => now(() => link.cutNextWatchAfter(700)),
    cutAfterCreated: () => now(() => link.cutNextWatchAfter(0)),
    expireToken: () => now(() => link.expireToken()),
    forbid: (prefix) => now(() => link.forbid(prefix)),
    allow: (prefix) => now(() => link.allow(prefix)),
    loseLeases: () =>
      now(() => {
        for (const lease of own) server.expireLease(lease);
      }),
    openStreams: () => link.streams,
    close: () => backend.close(),
  };
}

/** The memory backend under the contract, on a fake clock. */
export function memoryKvstore(): Promise<ContractKvstore> {
  const clock = new ManualClock();
  const server = new FaultyMemoryServer({ clock });
  const clients: ContractClient[] = [];
  const write = (entries: readonly (readonly [string, string | undefined])[]): Promise<void> => {
    server.txn({ compare: [], writes: entries.map(operation) });
    return Promise.resolve();
  };
  const kvstore: ContractKvstore = {
    name: 'memory',
    clock,
    client: ({ leaseSeconds = 60 } = {}) => {
      const client = memoryClient(server, clock, leaseSeconds);
      clients.push(client);
      return Promise.resolve(client);
    },
    load: async (entries: readonly Entry[]) => {
      for (let i = 0; i < entries.length; i += 128) await write(entries.slice(i, i + 128));
    },
    put: (key, value) => write([[key, value]]),
    remove: (key) => write([[key, undefined]]),
    together: write,
    content: (prefix) => {
      const { kvs } = server.range(prefixRange(prefix));
      return Promise.resolve(new Map(kvs.map(({ key, value }) => [key, textOfBytes(value) ?? ''])));
    },
    compact: () => Promise.resolve(server.compact()),
    backup: () => {
      const snapshot = server.snapshot();
      return Promise.resolve(() => Promise.resolve(server.restore(snapshot)));
    },
    restart: async () => {
      for (const client of clients) await client.cut();
    },
    loseLeader: () => Promise.resolve(server.loseLeader()),
    electLeader: () => Promise.resolve(server.electLeader()),
    until: async (what, isSo) => {
      for (let i = 0; i < 2000; i++) {
        if (await isSo()) return;
        await (i < 5 ? settle() : advance(clock, 100));
      }
      throw new Error(`never: ${what}`);
    },
    pass: (ms) => advance(clock, ms),
    dispose: async () => {
      for (const client of clients) await client.close();
    },
  };
  return Promise.resolve(kvstore);
}
