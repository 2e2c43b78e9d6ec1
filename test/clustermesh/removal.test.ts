import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { TurnGate } from '../../src/base/turn-gate.ts';
import { ClusterMesh } from '../../src/clustermesh/cluster-mesh.ts';
import { History } from '../../src/history/history.ts';
import { IPCache } from '../../src/ipcache/ipcache.ts';
import { FaultyMemoryBackend } from '../../src/kvstore/memory/faulty-memory-backend.ts';
import type { MemoryServer } from '../../src/kvstore/memory/memory-server.ts';
import { ManualClock } from '../base/support/manual-clock.ts';
import { groupsAround, itemsOf } from '../history/support/past-lists.ts';
import { settle } from '../kvstore/support/settle.ts';
import { Agent, coldStart, newCluster, write, writeIP, writeNode } from './support/mesh-world.ts';

const IPS = 4000;
const NODES = 100;
const SLICES = 8 * 64;

let clock: ManualClock;
let agent: Agent;
let asked: (() => void)[];
let server: MemoryServer;

function fill(): void {
  for (let i = 0; i < IPS; i++) writeIP(server, `10.1.${i >> 8}.${i & 255}`, (1 << 16) + 256);
  for (let i = 0; i < NODES; i++) writeNode(server, 'a', `n${i}`, `192.168.1.${i}`);
  for (let i = 0; i < NODES; i++) {
    const value = { cluster: 'a', namespace: 'ns', name: `s${i}`, shared: true, backends: {} };
    write(server, `cilium/state/services/v1/a/ns/s${i}`, value);
  }
}

/** Runs turns of the event loop until a condition holds. */
async function turnUntil(holds: () => boolean): Promise<void> {
  for (let turns = 0; !holds(); turns++) {
    expect(turns).toBeLessThan(1000);
    for (const callback of asked.splice(0)) callback();
    await settle(1);
  }
}

function done(promise: Promise<unknown>): () => boolean {
  let isDone = false;
  void promise.then(() => {
    isDone = true;
  });
  return () => isDone;
}

const state = (): string | undefined => agent.mesh.statusOf('a')?.state;
const atHalf = (): boolean => agent.ipcache.size > 0 && agent.ipcache.size < IPS / 2;

async function expectAsFresh(servers: readonly (readonly [string, MemoryServer])[]): Promise<void> {
  expect(agent.view()).toEqual(await coldStart(clock, new Map(servers)));
}

beforeEach(async () => {
  clock = new ManualClock();
  asked = [];
  const nextTurn = (callback: () => void): number => asked.push(callback);
  const gate = new TurnGate({ clock, nextTurn, weightPerTurn: SLICES });
  agent = new Agent(clock, (options) => new ClusterMesh({ ...options, gate }));
  server = newCluster(clock, 'a', 1);
  fill();
  await agent.add('a', server);
  await turnUntil(() => state() === 'ready');
});
afterEach(async () => {
  const stopped = done(agent.stop());
  await turnUntil(stopped);
});

it('reports the withdrawal as the cause of all its changes, from its beginning to its end', async () => {
  const calls: (readonly [string, boolean])[] = [];
  const nextTurn = (callback: () => void): number => asked.push(callback);
  const gate = new TurnGate({ clock, nextTurn, weightPerTurn: SLICES });
  const random = (): number => 0.5;
  const ipcache = new IPCache();
  const history = new History({ ipcache, clock });
  const mesh = new ClusterMesh({
    clusterName: 'own',
    clusterID: 9,
    clock,
    random,
    gate,
    ipcache,
    onCause: (cause) => history.setCause(cause),
    onWithdrawal: (cluster, isRunning) => calls.push([cluster, isRunning]),
  });
  void mesh.add('a', () => new FaultyMemoryBackend({ server, clock, random }));
  await turnUntil(() => mesh.statusOf('a')?.state === 'ready');
  // Like a claim that a fault has left: no key of the kvstore has it.
  ipcache.upsert('10.9.9.9', { source: 'clustermesh', owner: 'a', identity: 9 });
  history.start();
  clock.advance(1);
  const left = done(mesh.remove('a'));
  await turnUntil(() => ipcache.size > 0 && ipcache.size < IPS / 2);
  expect(calls).toEqual([['a', true]]);
  await turnUntil(left);
  expect(calls).toEqual([
    ['a', true],
    ['a', false],
  ]);
  const records = await itemsOf(history.past.records());
  const causes = records.flatMap((record) => (record.kind === 'prefix' ? [record.cause] : []));
  expect(causes).toHaveLength(IPS + 1);
  expect(new Set(causes.map((cause) => JSON.stringify(cause)))).toEqual(
    new Set([JSON.stringify({ store: 'a', revision: '', withdrawal: true })]),
  );
  expect(history.status().records.batch).toBeLessThan(10);
  const groups = await groupsAround(history, clock.wallTime());
  expect(groups[0]).toMatchObject({ store: 'a', withdrawal: true, deleted: IPS + 1 });
});

describe('a cluster of 4,000 IPs that is removed', () => {
  it('is withdrawn 64 keys at a time, and reads show the remainder (freeze: all in one turn)', async () => {
    const batches: number[] = [];
    agent.ipcache.subscribe({ onChanges: (changes) => batches.push(changes.length) });
    batches.length = 0;
    const removed = done(agent.mesh.remove('a'));
    await turnUntil(atHalf);
    expect(state()).toBe('draining');
    const { size } = agent.ipcache;
    expect([...agent.ipcache.entries()]).toHaveLength(size);
    const { ip, nodes, services } = agent.mesh.statusOf('a')?.resources ?? {};
    // Nodes are withdrawn last, because the others refer to them. Until then the cache has their addresses.
    expect(nodes?.keys).toBe(NODES);
    expect(services?.keys).toBe(0);
    expect(ip?.keys).toBe(size - NODES);
    await turnUntil(removed);
    expect(Math.max(...batches)).toBeLessThanOrEqual(64);
    await expectAsFresh([]);
  });

  it('and added again during the removal is followed after it (I10)', async () => {
    void agent.mesh.remove('a');
    await turnUntil(atHalf);
    const other = newCluster(clock, 'a', 2);
    writeIP(other, '10.2.0.1', (2 << 16) + 256);
    const added = done(agent.add('a', other));
    let least = agent.ipcache.size;
    await turnUntil(() => {
      least = Math.min(least, agent.ipcache.size);
      return added();
    });
    expect(least).toBe(0);
    await turnUntil(() => state() === 'ready');
    await expectAsFresh([['a', other]]);
  });

  it('leaves nothing if the mesh is stopped during the removal (I10)', async () => {
    const removed = done(agent.mesh.remove('a'));
    await turnUntil(atHalf);
    const stopped = done(agent.mesh.stop());
    await turnUntil(stopped);
    expect(removed()).toBe(true);
    await expectAsFresh([]);
  });

  it('during a sweep leaves nothing (I10)', async () => {
    const empty = newCluster(clock, 'a', 1);
    await agent.add('a', empty);
    await turnUntil(atHalf);
    await turnUntil(done(agent.mesh.remove('a')));
    await expectAsFresh([]);
  });
});

describe('a cluster that gets another id', () => {
  it('and another kvstore during its drain keeps nothing of the old id (I9)', async () => {
    write(server, 'cilium/cluster-config/a', { id: 2, capabilities: { syncedCanaries: true } });
    await turnUntil(() => state() === 'draining' && atHalf());
    const other = newCluster(clock, 'a', 2);
    writeIP(other, '10.2.0.1', (2 << 16) + 256);
    await agent.add('a', other);
    await turnUntil(() => state() === 'ready');
    await expectAsFresh([['a', other]]);
  });

  it('and is stopped during its drain keeps the remainder', async () => {
    write(server, 'cilium/cluster-config/a', { id: 2, capabilities: { syncedCanaries: true } });
    await turnUntil(() => state() === 'draining' && atHalf());
    const { size } = agent.ipcache;
    const knownAt = agent.mesh.statusOf('a')?.knownAt;
    await agent.mesh.stop();
    for (let i = 0; i < 10; i++) await turnUntil(() => true);
    expect(agent.ipcache.size).toBe(size);
    expect([agent.mesh.statusOf('a')?.knownAt, knownAt]).toEqual([clock.wallTime(), clock.wallTime()]);
  });
});
