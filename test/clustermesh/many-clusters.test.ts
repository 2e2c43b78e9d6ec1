import { expect, it, onTestFinished, vi } from 'vitest';
import { TurnGate } from '../../src/base/turn-gate.ts';
import { ClusterMesh } from '../../src/clustermesh/cluster-mesh.ts';
import { FaultyMemoryBackend } from '../../src/kvstore/memory/faulty-memory-backend.ts';
import { MemoryServer } from '../../src/kvstore/memory/memory-server.ts';
import { ManualClock } from '../base/support/manual-clock.ts';
import { advance, settle } from '../kvstore/support/settle.ts';
import { Agent, newCluster, write } from './support/mesh-world.ts';

const CLUSTERS = 20;
const IPS = 30;
const PER_TURN = 100;

function cluster(clock: ManualClock, id: number): MemoryServer {
  const server = newCluster(clock, `c${id}`, id);
  for (let i = 0; i < IPS; i++) {
    const ip = `10.${id}.0.${i}`;
    write(server, `cilium/state/ip/v1/default/${ip}`, { IP: ip, ID: (id << 16) + 256 });
  }
  return server;
}

/** An agent of a mesh behind a gate whose turns the test starts. */
async function world(): Promise<{
  agent: Agent;
  clock: ManualClock;
  servers: readonly MemoryServer[];
  turn: () => void;
}> {
  const clock = new ManualClock();
  const asked: (() => void)[] = [];
  const nextTurn = (callback: () => void): number => asked.push(callback);
  const gate = new TurnGate({ clock, nextTurn, weightPerTurn: PER_TURN });
  const agent = new Agent(clock, (options) => new ClusterMesh({ ...options, gate }));
  onTestFinished(() => agent.stop());
  const servers = Array.from({ length: CLUSTERS }, (_, i) => cluster(clock, i + 20));
  await Promise.all(servers.map((server, i) => agent.add(`c${i + 20}`, server)));
  const turn = (): void => {
    for (const callback of asked.splice(0)) callback();
  };
  return { agent, clock, servers, turn };
}

it('many clusters that sync at the same time share the turns of the event loop (freeze: all applied in one turn)', async () => {
  const { agent, turn } = await world();
  let most = 0;
  let turns = 0;
  for (; agent.ipcache.size < CLUSTERS * IPS; turns++) {
    expect(turns).toBeLessThan(1000);
    const before = agent.ipcache.size;
    turn();
    await settle();
    most = Math.max(most, agent.ipcache.size - before);
  }
  expect(turns).toBeGreaterThan((CLUSTERS * IPS) / PER_TURN);
  // A turn ends with the batch that reaches the limit.
  expect(most).toBeLessThan(PER_TURN + 2 * IPS);
  for (; !agent.mesh.status().ready; turns++) {
    expect(turns).toBeLessThan(1000);
    turn();
    await settle();
  }
});

it('the removal of many clusters is divided into turns (regression: 0.2 s in one turn)', async () => {
  const { agent, turn } = await world();
  for (; !agent.mesh.status().ready; turn()) await settle();
  turn(); // begins with an empty turn
  const removed = Promise.all(agent.mesh.names.map((name) => agent.mesh.remove(name)));
  await settle();
  const draining = agent.mesh.status().clusters.filter(({ state }) => state === 'draining');
  for (let turns = 0; agent.mesh.names.length > 0; turns++) {
    expect(turns).toBeLessThan(1000);
    turn();
    await settle();
  }
  await removed;
  expect(draining.length).toBeLessThan(CLUSTERS);
  expect(agent.ipcache.size).toBe(0);
});

it('stopping a mesh does not wait for clusters that wait for their turn', async () => {
  const { agent, turn } = await world();
  turn();
  await settle();
  await agent.mesh.stop();
  const { size } = agent.ipcache;
  for (let i = 0; i < 100; i++) turn();
  await settle();
  expect(agent.ipcache.size).toBe(size);
});

it('a cluster that is removed while it waits for its turn leaves nothing behind (I10)', async () => {
  const { agent, turn } = await world();
  for (let i = 0; i < 40; i++) {
    turn();
    await settle();
  }
  let removed = 0;
  for (const name of agent.mesh.names) void agent.mesh.remove(name).then(() => removed++);
  for (let turns = 0; removed < CLUSTERS; turns++) {
    expect(turns).toBeLessThan(1000);
    turn();
    await settle();
  }
  expect(agent.ipcache.size).toBe(0);
});

it('clusters that are removed together share the turns for their scans of the services (freeze: all in one turn)', async () => {
  const { agent, clock, turn } = await world();
  const removedAll = (): boolean => agent.mesh.names.length === 0;
  const scans: number[] = [];
  vi.spyOn(agent.services, 'withdrawCluster').mockImplementation(() => {
    clock.advance(4);
    scans.push((scans.pop() ?? 0) + 1);
    return 'not-found';
  });
  for (const name of agent.mesh.names) void agent.mesh.remove(name);
  for (let turns = 0; !removedAll(); turns++) {
    expect(turns).toBeLessThan(1000);
    scans.push(0);
    turn();
    await settle();
  }
  expect(scans.reduce((sum, each) => sum + each, 0)).toBe(CLUSTERS);
  expect(Math.max(...scans)).toBe(2); // of 4 ms each
});

it('unreachable clusters are retried two per second, ten more in the first minute, and reconnect (regression: 300 per second)', async () => {
  const clock = new ManualClock();
  const agent = new Agent(clock);
  onTestFinished(() => agent.stop());
  const names = Array.from({ length: CLUSTERS }, (_, i) => `c${i}`);
  for (const [i, name] of names.entries()) await agent.add(name, newCluster(clock, name, i + 20));
  await settle(20);
  expect(agent.mesh.status().ready).toBe(true);
  const before = agent.links.get('c0');
  const attempts = new Map<string, number>();
  for (const [name, { link }] of agent.links) {
    const watch = link.watch.bind(link);
    link.watch = (...words) => {
      attempts.set(name, (attempts.get(name) ?? 0) + 1);
      return watch(...words);
    };
    link.down();
  }
  const attempted = (): number => [...attempts.values()].reduce((sum, count) => sum + count, 0);
  await advance(clock, 5_000);
  // A cluster has six watches. One of them makes three attempts immediately, then one per turn.
  expect(attempted()).toBeLessThanOrEqual(CLUSTERS * 3 + 12 * 5);
  await advance(clock, 60_000);
  const atFirst = attempted();
  await advance(clock, 600_000);
  expect(attempted() - atFirst).toBeLessThanOrEqual(2 * 600 + 1);
  for (const name of names) expect(attempts.get(name)).toBeGreaterThan(600 / CLUSTERS);
  for (const { link } of agent.links.values()) link.up();
  await advance(clock, 15_000);
  expect(agent.mesh.status().ready).toBe(true);
  expect(agent.links.get('c0')).toBe(before);
});

it('a cluster that was unreachable for one second is followed again within two, with 249 of 255 unreachable (regression: 123 s)', async () => {
  const clock = new ManualClock();
  const agent = new Agent(clock);
  onTestFinished(() => agent.stop());
  await agent.add('live', newCluster(clock, 'live', 254));
  const dead = new MemoryServer({ clock });
  for (let i = 0; i < 249; i++) {
    await agent.mesh.add(`c${i}`, () => {
      const backend = new FaultyMemoryBackend({ server: dead, clock, random: () => 0.5 });
      backend.link.down();
      return backend;
    });
  }
  await advance(clock, 90_000);
  const live = agent.links.get('live')?.link;
  for (const awayMs of [1_000, 8_000]) {
    live?.down();
    await advance(clock, awayMs);
    live?.up();
    await advance(clock, 2_000);
    expect(agent.mesh.statusOf('live')?.ready).toBe(true);
  }
});

it('with 249 of 255 unreachable, the others are complete at once, the wait ends within a minute, and memory, timers and retries are bounded', async () => {
  const clock = new ManualClock();
  const agent = new Agent(clock);
  const idle = clock.pending;
  const dead = new MemoryServer({ clock });
  let clients = 0;
  let attempts = 0;
  const connectDead = (): FaultyMemoryBackend => {
    clients++;
    const backend = new FaultyMemoryBackend({ server: dead, clock, random: () => 0.5 });
    const range = backend.link.range.bind(backend.link);
    backend.link.range = (...words) => {
      attempts++;
      return range(...words);
    };
    backend.link.down();
    return backend;
  };
  for (let i = 0; i < 255; i++)
    if (i % 43 === 0) await agent.add(`c${i}`, cluster(clock, i));
    else await agent.mesh.add(`c${i}`, connectDead);
  let missing: readonly string[] | undefined;
  void agent.mesh.clustersSynced({ deadlineMs: 180_000, failures: 3 }).then((names) => {
    missing = names;
  });
  await advance(clock, 1_000);
  const ready = (): number => agent.mesh.status().clusters.filter((of) => of.ready).length;
  expect([ready(), agent.ipcache.size]).toEqual([6, 6 * IPS]);
  await advance(clock, 60_000);
  expect(missing).toHaveLength(249);
  expect(attempts).toBeLessThanOrEqual(249 + 12 * 61);
  const before = attempts;
  await advance(clock, 300_000);
  expect(attempts - before).toBeLessThanOrEqual(2 * 300 + 1);
  expect(clients).toBe(249);
  expect(clock.pending).toBeLessThanOrEqual(255 + 6 * 6); // one for each cluster, and one for each watch of the others
  expect(ready()).toBe(6);
  await agent.stop();
  expect(clock.pending).toBeLessThanOrEqual(idle + 1); // of the nodes
});

it('clusters that return together are followed soon: each reconnection releases four others', async () => {
  const clock = new ManualClock();
  const agent = new Agent(clock);
  onTestFinished(() => agent.stop());
  const links: FaultyMemoryBackend[] = [];
  for (let i = 0; i < 40; i++) {
    const name = `c${i}`;
    await agent.mesh.add(name, () => {
      const server = newCluster(clock, name, i + 20);
      const backend = new FaultyMemoryBackend({ server, clock, random: () => 0.5 });
      backend.link.down();
      links.push(backend);
      return backend;
    });
  }
  await advance(clock, 120_000);
  for (const { link } of links) link.up();
  await advance(clock, 10_000); // two a second would take 20 s
  expect(agent.mesh.status().clusters.filter(({ ready }) => !ready)).toEqual([]);
});

it('a change in one cluster is one piece of work and no read, however many clusters are followed', async () => {
  const workOfChange = async (clusters: number): Promise<readonly number[]> => {
    const clock = new ManualClock();
    const gate = new TurnGate({ clock, nextTurn: setImmediate });
    const agent = new Agent(clock, (options) => new ClusterMesh({ ...options, gate }));
    onTestFinished(() => agent.stop());
    const servers = Array.from({ length: clusters }, (_, i) => cluster(clock, i + 20));
    for (const [i, server] of servers.entries()) await agent.add(`c${i + 20}`, server);
    for (let turns = 0; !agent.mesh.status().ready; turns++) {
      expect(turns).toBeLessThan(1000);
      await settle();
    }
    let reads = 0;
    for (const { link } of agent.links.values()) link.onRead = () => reads++;
    const pieces = vi.spyOn(gate, 'run');
    for (const [server] of [servers, servers.slice(-1)])
      if (server !== undefined)
        write(server, 'cilium/state/ip/v1/default/10.0.0.1', { IP: '10.0.0.1', ID: 7 });
    await settle(10);
    expect(agent.ipcache.get('10.0.0.1')?.identity).toBe(7);
    return [pieces.mock.calls.length, reads];
  };
  expect(await workOfChange(2)).toEqual([2, 0]);
  expect(await workOfChange(60)).toEqual([2, 0]);
});

it('the first entries of a cluster are visible after its first page, however many keys it has', async () => {
  const readsBeforeFirst = async (keys: number): Promise<readonly number[]> => {
    const clock = new ManualClock();
    const agent = new Agent(clock);
    onTestFinished(() => agent.stop());
    const server = newCluster(clock, 'c20', 20);
    for (let i = 0; i < keys; i++) {
      const ip = `10.20.${i >> 8}.${i & 255}`;
      write(server, `cilium/state/ip/v1/default/${ip}`, { IP: ip, ID: (20 << 16) + 256 });
    }
    const pages: number[] = [];
    const range = server.range.bind(server);
    server.range = (request) => {
      if (request.start.startsWith('cilium/state/ip/v1/')) pages.push(request.limit ?? 0);
      return range(request);
    };
    let pagesBefore: number | undefined;
    const onChanges = (): void => {
      pagesBefore ??= pages.length;
    };
    agent.ipcache.subscribe({ onChanges });
    await agent.add('c20', server);
    for (let turns = 0; !agent.mesh.status().ready; turns++) {
      expect(turns).toBeLessThan(1000);
      await settle();
    }
    expect(agent.ipcache.size).toBe(keys);
    return [pagesBefore ?? -1, pages[0] ?? -1];
  };
  const [before = 0, firstPage = 0] = await readsBeforeFirst(20_000);
  expect(firstPage).toBeLessThanOrEqual(1024);
  expect(before).toBeGreaterThan(0);
  expect(before).toBeLessThanOrEqual(2); // the next page is read while the first is applied
  expect(await readsBeforeFirst(10)).toEqual([1, firstPage]);
});
