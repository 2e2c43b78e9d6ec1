import { describe, expect, it } from 'vitest';
import type { LocalClusterOptions, LocalClusterStatus } from '../../src/clustermesh/local-cluster.ts';
import { CLUSTER_CONFIG_PREFIX } from '../../src/kvstore/codec/keys.ts';
import { FaultyMemoryBackend } from '../../src/kvstore/memory/faulty-memory-backend.ts';
import { MemoryServer } from '../../src/kvstore/memory/memory-server.ts';
import { advance, settle } from '../kvstore/support/settle.ts';
import {
  completeCluster,
  configure,
  deleteIP,
  leaseEverything,
  newCluster,
  OWN,
  write,
  writeIP,
  writeNode,
  writeService,
} from './support/mesh-world.ts';
import { agent, agentForEachTest, backendsOf, clock, ips, restart, statusOf } from './support/set-up.ts';

agentForEachTest();

/** Long enough for every backoff and reconnection. */
const SETTLED_MS = 30_000;

const IDENTITY = 0x1_0200;
const PREFIXES = [
  CLUSTER_CONFIG_PREFIX,
  'cilium/state/nodes/v1/a/',
  'cilium/state/services/v1/a/',
  'cilium/state/ip/v1/default/',
  'cilium/state/identities/v1/id/',
  'cilium/synced/a/',
];

/** A remote cluster with something of each resource. */
function fullCluster(): MemoryServer {
  const server = newCluster(clock, 'a', 1);
  fill(server);
  return server;
}

function fill(server: MemoryServer): void {
  for (const address of ['10.1.0.1', '10.1.0.2']) writeIP(server, address, IDENTITY);
  writeNode(server, 'a', 'n1', '192.168.1.1');
  writeService(server, 'a', 's0', '10.1.0.1');
  write(server, `cilium/state/identities/v1/id/${IDENTITY}`, 'k8s:app=x;');
}

async function follow(server: MemoryServer, name = 'a'): Promise<void> {
  await agent.add(name, server);
  await settle(8);
}

describe('a publisher that dies, with its lease and all its keys,', () => {
  it.each(PREFIXES)(
    'leaves the cluster as it was, whichever watch is slow: %s (freeze: four mixtures in seven runs)',
    async (slow) => {
      const server = fullCluster();
      const lease = leaseEverything(server);
      await follow(server);
      const before = agent.view();
      agent.links.get('a')?.link.stallWatch(slow);
      const died = clock.wallTime();
      server.expireLease(lease);
      await settle(10);
      expect(agent.view()).toEqual(before);
      agent.links.get('a')?.link.unstallWatch(slow);
      await advance(clock, SETTLED_MS);
      expect(agent.view()).toEqual(before);
      expect(statusOf()).toMatchObject({
        state: 'no-configuration',
        ready: false,
        connected: true,
        knownAt: died,
      });
      expect(statusOf().lastFailure?.message).toContain('does not contain its configuration any more');
    },
  );

  it('and returns is listed again: keys that it has not published again are removed once its canaries exist', async () => {
    const server = fullCluster();
    const lease = leaseEverything(server);
    await follow(server);
    server.expireLease(lease);
    await advance(clock, SETTLED_MS);
    configure(server, 'a', 1);
    writeIP(server, '10.1.0.2', 0x1_0300);
    await advance(clock, SETTLED_MS);
    expect(ips()).toContain('10.1.0.1');
    expect(statusOf()).toMatchObject({ state: 'watching', ready: false });
    completeCluster(server, 'a');
    await settle(10);
    expect(ips()).toEqual(['10.1.0.2']);
    expect(statusOf()).toMatchObject({ state: 'ready', knownAt: undefined });
  });

  it('is followed while its configuration is missing (regression: no additions and no changes for five minutes)', async () => {
    const server = fullCluster();
    const lease = leaseEverything(server);
    await follow(server);
    server.expireLease(lease);
    await advance(clock, SETTLED_MS);
    // The publisher puts its keys again, and its configuration some minutes later.
    fill(server);
    completeCluster(server, 'a');
    writeIP(server, '10.1.0.2', 0x1_0300);
    writeIP(server, '10.1.0.3', 0x1_0200);
    writeIP(server, '10.1.0.4', 0x2_0200);
    writeIP(server, '10.1.0.1', 0x2_0200);
    writeService(server, 'a', 's1', '10.1.0.3');
    await settle(10);
    expect(ips()).toEqual(['10.1.0.1', '10.1.0.2', '10.1.0.3', '192.168.1.1']);
    expect([1, 2, 3].map((i) => agent.ipcache.get(`10.1.0.${i}`)?.identity)).toEqual([
      ...[0x1_0200, 0x1_0300, 0x1_0200],
    ]);
    expect(backendsOf('s1')).toEqual(['10.1.0.3']);
    deleteIP(server, '10.1.0.2');
    await advance(clock, SETTLED_MS);
    expect(ips()).toContain('10.1.0.2');
    expect(statusOf()).toMatchObject({ state: 'no-configuration', ready: false });
    configure(server, 'a', 1);
    await settle(10);
    expect(ips()).toEqual(['10.1.0.3', '192.168.1.1']);
    expect(statusOf().state).toBe('ready');
  });

  it('keeps its services withdrawn after their TTL while its configuration is missing (regression: listed again at once)', async () => {
    await restart(() => ({ serviceTTLMs: 60_000 }));
    const server = fullCluster();
    const lease = leaseEverything(server);
    await follow(server);
    server.expireLease(lease);
    await advance(clock, SETTLED_MS);
    fill(server);
    completeCluster(server, 'a');
    await settle(10);
    expect(backendsOf('s0')).toEqual(['10.1.0.1']);
    await advance(clock, 60_000);
    expect(backendsOf('s0')).toEqual([]);
    writeIP(server, '10.1.0.3', IDENTITY);
    writeService(server, 'a', 's1', '10.1.0.3');
    await settle(10);
    expect([ips().includes('10.1.0.3'), backendsOf('s1')]).toEqual([true, []]);
    configure(server, 'a', 1);
    await settle(10);
    expect([backendsOf('s0'), backendsOf('s1')]).toEqual([['10.1.0.1'], ['10.1.0.3']]);
    expect(statusOf().state).toBe('ready');
  });

  it('and returns before any read is listed again: its deletes prove nothing', async () => {
    const server = fullCluster();
    const lease = leaseEverything(server);
    await follow(server);
    const before = agent.view();
    agent.links.get('a')?.link.stallWatch(CLUSTER_CONFIG_PREFIX);
    server.expireLease(lease);
    configure(server, 'a', 1); // the same bytes again
    await advance(clock, SETTLED_MS);
    expect(agent.view()).toEqual(before);
    agent.links.get('a')?.link.unstallWatch(CLUSTER_CONFIG_PREFIX);
    fill(server);
    completeCluster(server, 'a');
    deleteIP(server, '10.1.0.1');
    await advance(clock, SETTLED_MS);
    expect(ips()).toEqual(['10.1.0.2', '192.168.1.1']);
    expect(statusOf().state).toBe('ready');
  });

  it('during a list leaves the earlier state', async () => {
    const server = fullCluster();
    const lease = leaseEverything(server);
    await follow(server);
    const before = agent.view();
    // The handshake of a new connection finds the configuration, its lists find nothing.
    const backend = new FaultyMemoryBackend({ server, clock });
    const watch = backend.watch.bind(backend);
    backend.watch = (prefix, options) => {
      if (prefix.startsWith('cilium/state/')) server.expireLease(lease);
      return watch(prefix, options);
    };
    await agent.mesh.add('a', () => backend);
    await advance(clock, SETTLED_MS);
    expect(agent.view()).toEqual(before);
    expect(statusOf().state).toBe('no-configuration');
  });

  it('loses only its services, and only after the TTL', async () => {
    await restart(() => ({ serviceTTLMs: 60_000 }));
    const server = fullCluster();
    const lease = leaseEverything(server);
    await follow(server);
    server.expireLease(lease);
    await advance(clock, 59_000);
    expect(backendsOf('s0')).toEqual(['10.1.0.1']);
    const { connectionChangedAt } = statusOf();
    await advance(clock, 2_000);
    expect(statusOf()).toMatchObject({ connected: true, connectionChangedAt });
    expect(backendsOf('s0')).toEqual([]);
    expect(ips()).toEqual(['10.1.0.1', '10.1.0.2', '192.168.1.1']);
    expect(statusOf()).toMatchObject({ state: 'no-configuration', servicesExpired: true });
    // One failure is enough.
    await advance(clock, 600_000);
    fill(server);
    configure(server, 'a', 1);
    completeCluster(server, 'a');
    await advance(clock, SETTLED_MS);
    expect(backendsOf('s0')).toEqual(['10.1.0.1']);
    expect(statusOf()).toMatchObject({ state: 'ready', servicesExpired: false });
  });

  it('and whose cluster is removed leaves nothing (I10)', async () => {
    const server = fullCluster();
    const lease = leaseEverything(server);
    await follow(server);
    server.expireLease(lease);
    await settle(10);
    expect(await agent.mesh.remove('a')).toBe(true);
    expect([ips(), agent.nodes.size, backendsOf('s0')]).toEqual([[], 0, []]);
  });

  it('does not delay ordinary deletes: they are applied at once, with one read per burst', async () => {
    const server = fullCluster();
    for (let i = 0; i < 600; i++) writeIP(server, `10.2.${i >> 8}.${i & 255}`, IDENTITY);
    await follow(server);
    let reads = 0;
    const backend = agent.links.get('a');
    const read = backend?.read.bind(backend);
    if (backend === undefined || read === undefined) throw new Error('not connected');
    backend.read = (...words) => {
      reads++;
      return read(...words);
    };
    for (let i = 0; i < 600; i++) deleteIP(server, `10.2.${i >> 8}.${i & 255}`);
    await settle(10);
    expect(ips()).toEqual(['10.1.0.1', '10.1.0.2', '192.168.1.1']);
    expect(reads).toBe(1);
    deleteIP(server, '10.1.0.1');
    await settle(4);
    expect(reads).toBe(2);
  });

  it('delays deletes while the kvstore does not answer, and reports it; updates of other keys continue', async () => {
    const server = fullCluster();
    await follow(server);
    agent.links.get('a')?.link.forbid(CLUSTER_CONFIG_PREFIX);
    deleteIP(server, '10.1.0.1');
    writeNode(server, 'a', 'n2', '192.168.1.2');
    await advance(clock, 5_000);
    expect(ips()).toContain('10.1.0.1');
    expect(agent.nodes.exists('a/n2')).toBe(true);
    expect(statusOf()).toMatchObject({ state: 'unreachable', connected: false });
    expect(statusOf().lastFailure?.message).toContain('permission denied');
    agent.links.get('a')?.link.allow(CLUSTER_CONFIG_PREFIX);
    await advance(clock, 120_000);
    expect(ips()).not.toContain('10.1.0.1');
    expect(statusOf().state).toBe('ready');
  });
});

describe('an empty kvstore', () => {
  it.each([
    ['the same etcd', 'a'],
    ['another etcd', 'second'],
  ])(
    'with a new configuration file removes nothing: %s (freeze: 221 IPs withdrawn at once, ready)',
    async (_what, clusterID) => {
      await follow(fullCluster());
      const before = agent.view();
      const empty = new MemoryServer({ clock, clusterID });
      expect(await agent.mesh.add('a', () => agent.connect('a', empty))).toBe('reconnected');
      await advance(clock, SETTLED_MS);
      expect(agent.view()).toEqual(before);
      expect(statusOf()).toMatchObject({ state: 'no-configuration', ready: false, connected: true });
      fill(empty);
      configure(empty, 'a', 1);
      completeCluster(empty, 'a');
      deleteIP(empty, '10.1.0.1');
      await advance(clock, SETTLED_MS);
      expect(ips()).toEqual(['10.1.0.2', '192.168.1.1']);
      expect(statusOf()).toMatchObject({ state: 'ready', ready: true, knownAt: undefined });
    },
  );

  it('from the start has no configuration, and is not reported as ready, complete and without nodes', async () => {
    const server = new MemoryServer({ clock });
    await follow(server);
    await agent.mesh.synced();
    expect(statusOf()).toMatchObject({
      state: 'no-configuration',
      ready: false,
      connected: true,
      knownAt: undefined,
    });
    fill(server);
    await settle(8);
    expect(statusOf()).toMatchObject({ state: 'ready', ready: true });
    configure(server, 'a', 1);
    completeCluster(server, 'a');
    await settle(10);
    expect(statusOf()).toMatchObject({ state: 'ready', config: { id: 1 } });
  });
});

describe('a wrong name', () => {
  it('of a remote cluster is reported, and nothing of the existing cluster is read', async () => {
    const server = fullCluster();
    await follow(server, 'b');
    await advance(clock, SETTLED_MS);
    expect(agent.ipcache.size).toBe(0);
    expect(statusOf('b')).toMatchObject({ state: 'no-configuration', ready: false, connected: true });
    expect(statusOf('b').lastFailure?.message).toBe(
      'its kvstore does not contain its configuration, only that of a: check the name',
    );
    // The start does not wait for it.
    expect(await agent.mesh.clustersSynced({ deadlineMs: 180_000 })).toEqual(['b']);
    configure(server, 'b', 2);
    completeCluster(server, 'b');
    await settle(10);
    expect(statusOf('b').state).toBe('ready');
  });

  it('of the local cluster is reported; its keys are read, because there may be no configuration at all', async () => {
    const server = fullCluster();
    const own = agent.followOwnOn(agent.connect(OWN, server));
    await settle(8);
    expect(agent.ipcache.get('10.1.0.1')?.source).toBe('kvstore');
    expect(own.status()).toMatchObject({ state: 'no-configuration', ready: false });
    expect(own.status().lastFailure?.message).toContain('only that of a: check the name');
  });
});

describe('the status of a connection', () => {
  it('contains the time of connection, the last failure with its time, and the age of stale state', async () => {
    await follow(fullCluster());
    const { connectionChangedAt } = statusOf();
    expect(statusOf()).toMatchObject({ connected: true, knownAt: undefined, lastFailure: undefined });
    await advance(clock, 1_000_000);
    expect(statusOf()).toMatchObject({ connected: true, connectionChangedAt });
    const lost = clock.wallTime();
    agent.links.get('a')?.link.down();
    await advance(clock, 60_000);
    expect(statusOf()).toMatchObject({
      state: 'unreachable',
      ready: false,
      connected: false,
      connectionChangedAt: lost,
      knownAt: lost,
      lastFailure: { message: 'connection refused' },
    });
    expect(statusOf().lastFailure?.at).toBeGreaterThan(lost + 50_000);
    agent.links.get('a')?.link.up();
    await advance(clock, SETTLED_MS);
    expect(statusOf()).toMatchObject({ state: 'ready', connected: true, knownAt: undefined });
    expect(statusOf().connectionChangedAt).toBeGreaterThan(lost + 59_000);
    // The failure is over but still reported.
    expect(statusOf().lastFailure?.message).toBe('connection refused');
  });

  it('contains the heartbeat, which is stale if it was not written for two minutes', async () => {
    const server = fullCluster();
    await follow(server);
    await advance(clock, 60_000);
    expect(statusOf().heartbeat).toBe('never');
    write(server, 'cilium/.heartbeat', 'now');
    await advance(clock, 120_000);
    expect(statusOf()).toMatchObject({ heartbeat: 'fresh', ready: true });
    await advance(clock, 120_000);
    expect(statusOf()).toMatchObject({ heartbeat: 'stale', ready: true });
    agent.links.get('a')?.link.down();
    await advance(clock, 300_000);
    expect(statusOf()).toMatchObject({ heartbeat: undefined, ready: false });
    write(server, 'cilium/.heartbeat', 'later');
    agent.links.get('a')?.link.up();
    for (let i = 0; i < 60; i++) {
      await advance(clock, 1000);
      expect(statusOf().heartbeat).not.toBe('stale');
    }
    expect(statusOf()).toMatchObject({ heartbeat: 'fresh', ready: true });
  });

  it('contains no heartbeat while the cluster is not followed (regression: a stale one)', async () => {
    const server = fullCluster();
    await follow(server);
    write(server, 'cilium/.heartbeat', 'now');
    await advance(clock, 60_000);
    expect(statusOf().heartbeat).toBe('fresh');
    write(server, 'cilium/cluster-config/a', { id: 9 });
    for (let i = 0; i < 5; i++) {
      write(server, 'cilium/.heartbeat', `${i}`);
      await advance(clock, 60_000);
    }
    expect(statusOf()).toMatchObject({ heartbeat: undefined, ready: false });
    configure(server, 'a', 1);
    await advance(clock, 60_000);
    expect(statusOf()).toMatchObject({ heartbeat: 'fresh', ready: true });
  });

  it('contains no heartbeat that the user may not read; other reads are few (regression: each watch once a minute)', async () => {
    const server = fullCluster();
    await follow(server);
    agent.links.get('a')?.link.forbid('cilium/.heartbeat');
    const { ok: before = 0 } = statusOf().kvstore?.requests ?? {};
    await advance(clock, 30 * 60_000);
    const { ok: after = 0, forbidden } = statusOf().kvstore?.requests ?? {};
    expect([statusOf().heartbeat, statusOf().ready, forbidden]).toEqual([undefined, true, 6]);
    expect(after - before).toBeLessThan(60);
    agent.links.get('a')?.link.allow('cilium/.heartbeat');
    await advance(clock, 5 * 60_000);
    expect(statusOf().heartbeat).toBe('never');
  });

  it('reports that rights were revoked (freeze: ready, connected)', async () => {
    const server = fullCluster();
    await follow(server);
    agent.links.get('a')?.link.forbid('cilium/state/ip/');
    // The server ends no stream: the replacement is noticed when the watch sends a progress request (ETCD.md).
    await advance(clock, 12 * 60_000);
    expect(statusOf()).toMatchObject({ state: 'unreachable', ready: false, connected: false });
    expect(statusOf().lastFailure?.message).toContain('permission denied');
    expect(ips()).toHaveLength(3);
    agent.links.get('a')?.link.allow('cilium/state/ip/');
    await advance(clock, 120_000);
    expect(statusOf()).toMatchObject({ state: 'ready', connected: true });
  });

  it('reports that nothing of a rejected cluster is served', async () => {
    const server = fullCluster();
    await follow(server);
    write(server, 'cilium/cluster-config/a', { id: 9 });
    await advance(clock, 1_000);
    expect(statusOf()).toMatchObject({ state: 'failed', ready: false, connected: true, knownAt: undefined });
    expect(agent.ipcache.size).toBe(0);
  });
});

/** Follows the local cluster on a separate server. */
function followOwn(
  server: MemoryServer,
  options: Partial<LocalClusterOptions> = {},
): () => LocalClusterStatus {
  const own = agent.followOwnOn(agent.connect(OWN, server), options);
  return () => own.status();
}

function ownCluster(): MemoryServer {
  const server = newCluster(clock, OWN, 9);
  for (const address of ['10.9.0.1', '10.9.0.2']) writeIP(server, address, 0x9_0200);
  return server;
}

describe('the local kvstore', () => {
  it.each([
    [undefined, 'no-configuration'],
    [false, 'ready'],
  ])('that is empty from the start, with failStatic %s, is %s (before: ready)', async (failStatic, state) => {
    const status = followOwn(new MemoryServer({ clock }), { failStatic });
    await settle(8);
    expect(status()).toMatchObject({ state, ready: state === 'ready', connected: true });
  });

  it('that restarts empty removes nothing, until it is filled again (freeze: everything withdrawn)', async () => {
    const server = ownCluster();
    const status = followOwn(server);
    await settle(8);
    expect(status()).toMatchObject({ state: 'ready', ready: true });
    server.restore(new MemoryServer({ clock }).snapshot());
    await advance(clock, SETTLED_MS);
    expect(ips()).toEqual(['10.9.0.1', '10.9.0.2']);
    expect(status()).toMatchObject({ state: 'no-configuration', ready: false });
    // Keys that are written again are used. Other keys are kept until the cluster is complete.
    writeIP(server, '10.9.0.2', 0x9_0300);
    writeIP(server, '10.9.0.3', 0x9_0300);
    configure(server, OWN, 9);
    await advance(clock, SETTLED_MS);
    expect(ips()).toContain('10.9.0.1');
    completeCluster(server, OWN);
    await advance(clock, SETTLED_MS);
    expect(ips()).toEqual(['10.9.0.2', '10.9.0.3']);
    expect(status()).toMatchObject({ state: 'ready', knownAt: undefined });
  });

  it('whose publisher dies is still followed, but its deletes are not trusted', async () => {
    const server = ownCluster();
    const lease = leaseEverything(server);
    const status = followOwn(server);
    await settle(8);
    server.expireLease(lease);
    await advance(clock, SETTLED_MS);
    writeIP(server, '10.9.0.3', 0x9_0300);
    await settle(4);
    deleteIP(server, '10.9.0.3');
    await settle(4);
    expect(ips()).toEqual(['10.9.0.1', '10.9.0.2', '10.9.0.3']);
    expect(status()).toMatchObject({ state: 'no-configuration', connected: true });
  });

  it('that is trusted removes every key that it does not contain', async () => {
    const server = ownCluster();
    const status = followOwn(server, { failStatic: false });
    await settle(8);
    server.restore(new MemoryServer({ clock }).snapshot());
    await advance(clock, SETTLED_MS);
    expect(ips()).toEqual([]);
    expect(status()).toMatchObject({ state: 'ready', ready: true });
  });

  it('without any configuration is trusted after some time if it is not empty', async () => {
    const server = new MemoryServer({ clock });
    for (const address of ['10.9.0.1', '10.9.0.2']) writeIP(server, address, 0x9_0200);
    const status = followOwn(server, { refillMs: 60_000 });
    await settle(8);
    deleteIP(server, '10.9.0.2');
    await settle(4);
    expect([ips(), status().ready]).toEqual([['10.9.0.1'], true]);
    server.restore(new MemoryServer({ clock }).snapshot());
    await advance(clock, 600_000);
    expect(ips()).toEqual(['10.9.0.1']);
    expect(status()).toMatchObject({ ready: false });
    writeIP(server, '10.9.0.3', 0x9_0200);
    writeIP(server, '10.9.0.4', 0x9_0200);
    await settle(4);
    deleteIP(server, '10.9.0.4');
    await settle(4);
    expect(ips()).toEqual(['10.9.0.1', '10.9.0.3']);
    await advance(clock, 61_000);
    expect(ips()).toEqual(['10.9.0.3']);
    expect(status()).toMatchObject({ state: 'ready', ready: true });
  });
});
