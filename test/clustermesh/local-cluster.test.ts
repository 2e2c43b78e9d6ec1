import { expect, it, vi } from 'vitest';
import { CLUSTER_CONFIG_PREFIX } from '../../src/kvstore/codec/keys.ts';
import { FaultyMemoryBackend } from '../../src/kvstore/memory/faulty-memory-backend.ts';
import { MemoryServer } from '../../src/kvstore/memory/memory-server.ts';
import { KvstoreError } from '../../src/kvstore/session/errors.ts';
import type { NumericIdentity } from '../../src/model/numeric-identity.ts';
import { advance, settle } from '../kvstore/support/settle.ts';
import { configure, newCluster, OWN, write, writeIP } from './support/mesh-world.ts';
import { agent, agentForEachTest, clock, ips } from './support/set-up.ts';

agentForEachTest();

const MINUTE_MS = 60_000;

it('the local cluster reports its name, its configured id, and its progress', async () => {
  const server = new MemoryServer({ clock });
  const own = agent.followOwnOn(agent.connect(OWN, server));
  const seen: string[] = [];
  const off = own.onChange((name) => seen.push(`${name} ${own.status().state}`));
  const synced = vi.fn();
  void own.synced().then(synced);
  expect([own.names, own.clusterID, own.progressOf(OWN).synced]).toEqual([[OWN], 0, false]);
  expect(synced).not.toHaveBeenCalled();
  await settle(8);
  expect([own.clusterID, own.progressOf(OWN)]).toEqual([
    0,
    expect.objectContaining({ name: OWN, synced: true }),
  ]);
  expect(synced).toHaveBeenCalledOnce();
  expect(await own.syncedWithin({ deadlineMs: 1000 })).toEqual([]);
  configure(server, OWN, 9);
  await settle(8);
  expect([own.clusterID, own.status().state, seen.at(-1)]).toEqual([9, 'ready', `${OWN} ready`]);
  write(server, 'cilium/state/identities/v1/id/300', 'k8s:app=x;');
  await settle(4);
  expect(own.identities.lookupByID(300 as NumericIdentity)).toEqual([
    { source: 'k8s', key: 'app', value: 'x' },
  ]);
  const told = seen.length;
  off();
  agent.links.get(OWN)?.link.down();
  await settle(4);
  expect(own.status()).toMatchObject({ state: 'unreachable' });
  expect(own.status()).not.toHaveProperty('servicesExpired');
  expect(seen).toHaveLength(told);
});

it('the local cluster is awaited while its first sync progresses, and no longer than the deadline', async () => {
  const backend = agent.connect(OWN, new MemoryServer({ clock }));
  agent.links.get(OWN)?.link.blackHole();
  const own = agent.followOwnOn(backend);
  let missing: readonly string[] | undefined;
  void own.syncedWithin({ deadlineMs: 10_000 }).then((names) => {
    missing = names;
  });
  await advance(clock, 9_900);
  expect(missing).toBeUndefined();
  await advance(clock, 200);
  expect(missing).toEqual([OWN]);
});

it('the local cluster is followed once, even if it is started twice, and its owner closes its client', async () => {
  const server = newCluster(clock, OWN, 9);
  const backend = new FaultyMemoryBackend({ server, clock });
  const [close, retryInTurn] = [vi.spyOn(backend, 'close'), vi.spyOn(backend, 'retryInTurn')];
  const own = agent.followOwnOn(backend);
  own.start();
  await settle(8);
  const { streams } = own.status().resources.ip?.watch ?? {};
  own.start();
  await settle(8);
  expect([own.status().state, own.status().resources.ip?.watch?.streams]).toEqual(['ready', streams]);
  await own.stop();
  await own.stop();
  expect([close.mock.calls, retryInTurn.mock.calls, server.streams, clock.pending]).toEqual([[], [], 0, 0]);
  writeIP(server, '10.9.0.1', 0x9_0200);
  await settle(4);
  expect(ips()).toEqual([]);
});

it('the local cluster is retried by itself after a failed handshake', async () => {
  const backend = agent.connect(OWN, newCluster(clock, OWN, 9));
  const link = agent.links.get(OWN)?.link;
  let refusals = 0;
  if (link !== undefined)
    link.onRead = ({ start }) => {
      if (start.startsWith(CLUSTER_CONFIG_PREFIX) && ++refusals <= 3)
        throw new KvstoreError('overloaded', 'no');
    };
  const own = agent.followOwnOn(backend);
  await settle(8);
  expect(own.status()).toMatchObject({ state: 'failed', failures: 1 });
  await advance(clock, 5_000);
  expect(own.status()).toMatchObject({ state: 'ready', failures: 3, lastFailure: { message: 'no' } });
});

/**
 * The local kvstore with a configuration that announces canaries, but without canaries, which a local cluster
 * does not need.
 */
function withoutCanaries(): MemoryServer {
  const server = new MemoryServer({ clock });
  configure(server, OWN, 9);
  writeIP(server, '10.9.0.1', 0x9_0200);
  return server;
}

it('the local cluster requires no canary, even after its configuration has changed', async () => {
  const server = withoutCanaries();
  const own = agent.followOwnOn(agent.connect(OWN, server));
  await settle(8);
  expect(own.status().state).toBe('ready');
  write(server, `${CLUSTER_CONFIG_PREFIX}${OWN}`, {
    id: 9,
    capabilities: { syncedCanaries: true, maxConnectedClusters: 255 },
  });
  await advance(clock, 5_000);
  expect(own.status()).toMatchObject({ state: 'ready', failures: 0 });
});

it('the local cluster requires its canaries after its kvstore was replaced, whatever its configuration contains', async () => {
  const server = withoutCanaries();
  const backup = server.snapshot();
  writeIP(server, '10.9.0.2', 0x9_0200);
  const own = agent.followOwnOn(agent.connect(OWN, server));
  await settle(8);
  expect(own.status().state).toBe('ready');
  server.restore(backup);
  for (let i = 0; i < 20; i++) write(server, 'unrelated', `${i}`); // its revision becomes higher than the old one
  writeIP(server, '10.9.0.3', 0x9_0200);
  await advance(clock, 30_000);
  expect(own.status()).toMatchObject({ state: 'watching', ready: false });
  expect(ips()).toEqual(['10.9.0.1', '10.9.0.2']);
  for (const resource of ['nodes', 'services', 'identities', 'ip'])
    write(server, `cilium/synced/${OWN}/cilium/state/${resource}/v1`, 'now');
  await advance(clock, 30_000);
  expect([own.status().state, ips()]).toEqual(['ready', ['10.9.0.1', '10.9.0.3']]);
});

it('the local cluster without a configuration is trusted a quarter of an hour after its kvstore was replaced', async () => {
  const server = new MemoryServer({ clock });
  for (const address of ['10.9.0.1', '10.9.0.2']) writeIP(server, address, 0x9_0200);
  const own = agent.followOwnOn(agent.connect(OWN, server));
  await settle(8);
  server.restore(new MemoryServer({ clock }).snapshot());
  writeIP(server, '10.9.0.2', 0x9_0200);
  await advance(clock, 14 * MINUTE_MS);
  expect([own.status().ready, ips()]).toEqual([false, ['10.9.0.1', '10.9.0.2']]);
  expect(own.status().tasks.map(({ name }) => name)).toContain('refill');
  await advance(clock, 2 * MINUTE_MS);
  expect([own.status().ready, ips()]).toEqual([true, ['10.9.0.2']]);
});
