import { isDeepStrictEqual } from 'node:util';
import { expect, it, vi } from 'vitest';
import { keyRange } from '../../../src/kvstore/codec/key-range.ts';
import { HEARTBEAT_KEY } from '../../../src/kvstore/codec/keys.ts';
import type { MemoryServer } from '../../../src/kvstore/memory/memory-server.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { Agent, newCluster, OWN, write, writeIP } from '../../clustermesh/support/mesh-world.ts';
import { advance, settle } from '../support/settle.ts';

const CLUSTERS = { [OWN]: 9, a: 1, b: 2 };
const MINUTE_MS = 60_000;
const READ_OF_HEARTBEAT = { ...keyRange(HEARTBEAT_KEY), limit: 1024 };

/** Requests that cost a server something: all but keepalives. */
const REQUESTS = ['range', 'txn', 'watch', 'grantLease'] as const;

/** A cluster without further writes, whose history is compacted after the last write. */
function idleCluster(clock: ManualClock, name: string, id: number): MemoryServer {
  const server = newCluster(clock, name, id);
  writeIP(server, `10.${id}.0.1`, (id << 16) | 0x200);
  write(server, 'unrelated', 'later');
  server.compact();
  return server;
}

it('an idle mesh on compacted kvstores reads only the heartbeat in five minutes, and a write arrives at once (regression: relisted each second)', async () => {
  const clock = new ManualClock();
  const servers = new Map(
    Object.entries(CLUSTERS).map(([name, id]) => [name, idleCluster(clock, name, id)] as const),
  );
  const agent = new Agent(clock);
  for (const [name, server] of servers) {
    if (name === OWN) agent.followOwn(server);
    else await agent.add(name, server);
  }
  await advance(clock, 10_000);
  const watches = (): string[] =>
    [...agent.links].flatMap(([name, backend]) =>
      backend.status().watches.map(({ prefix, state, failures }) => `${name} ${prefix} ${state} ${failures}`),
    );
  const before = watches();
  expect(before.length).toBeGreaterThan(12);
  expect(before.filter((watch) => !watch.endsWith('watching 0'))).toEqual([]);

  const requests = [...servers.values()].flatMap((server) =>
    REQUESTS.map((method) => vi.spyOn(server, method)),
  );
  await advance(clock, 5 * MINUTE_MS);
  const sent = requests.flatMap(({ mock }) => mock.calls);
  expect(sent.filter(([first]) => !isDeepStrictEqual(first, READ_OF_HEARTBEAT))).toEqual([]);
  expect(sent.length).toBeLessThanOrEqual(11 * servers.size);
  expect(watches()).toEqual(before);

  for (const [name, server] of servers) {
    const id = CLUSTERS[name as keyof typeof CLUSTERS];
    writeIP(server, `10.${id}.0.2`, (id << 16) | 0x200);
    await settle(8);
  }
  expect([...agent.ipcache.entries()].map(({ key }) => key).sort()).toEqual(
    [1, 2, 9].flatMap((id) => [`10.${id}.0.1`, `10.${id}.0.2`]),
  );

  for (const server of servers.values()) server.compact();
  for (const backend of agent.links.values()) backend.link.cut();
  await advance(clock, 10_000);
  expect(watches()).toEqual(before.map((watch) => watch.replace(/0$/, '1')));
  await agent.stop();
});
