import { describe, expect, it, vi } from 'vitest';
import { ClusterMesh } from '../../src/clustermesh/cluster-mesh.ts';
import { MemoryServer } from '../../src/kvstore/memory/memory-server.ts';
import { KvstoreError } from '../../src/kvstore/session/errors.ts';
import { advance, settle } from '../kvstore/support/settle.ts';
import {
  type Agent,
  completeCluster,
  configure,
  deleteIP,
  newCluster,
  OWN,
  write,
  writeIP,
  writeNode,
  writeService,
} from './support/mesh-world.ts';
import { agent, agentForEachTest, backendsOf, clock, restart, statusOf } from './support/set-up.ts';

agentForEachTest();

/** Adds a cluster and waits until it is ready. */
async function follow(name: string, server: MemoryServer): Promise<void> {
  await agent.add(name, server);
  await settle(8);
  expect(statusOf(name).state).toBe('ready');
}

it.each([-1, 1.5, 256])('a mesh refuses the id %s of its own cluster', (clusterID) => {
  expect(() => new ClusterMesh({ clusterName: 'a', clusterID })).toThrow(
    `new ClusterMesh: options.clusterID must be an integer from 0 to 255, not ${clusterID}`,
  );
});

describe('a remote cluster', () => {
  it('writes to every engine, as claims of its own', async () => {
    const server = newCluster(clock, 'a', 1);
    writeIP(server, '10.1.0.1', 0x1_0200);
    writeNode(server, 'a', 'n1', '192.168.1.1');
    writeService(server, 'a', 's0', '10.1.0.1');
    write(server, `cilium/state/identities/v1/id/${0x1_0200}`, 'k8s:app=x;');
    await follow('a', server);
    expect(agent.ipcache.get('10.1.0.1')).toMatchObject({
      identity: 0x1_0200,
      source: 'clustermesh',
      owner: 'a',
    });
    expect(agent.nodes.get('a/n1')).toMatchObject({ source: 'clustermesh' });
    expect(agent.services.get({ namespace: 'ns', name: 's0' })?.endpoints.backends.size).toBe(1);
    const labels = [{ source: 'k8s', key: 'app', value: 'x' }];
    expect(agent.mesh.identitiesOf('a')?.lookupByID(0x1_0200)).toEqual(labels);
    expect(agent.mesh.identitiesOf('a')?.lookupByLabels(labels)).toBe(0x1_0200);
  });

  it('counts and shows the error of a listener of its identities (regression: it was lost)', async () => {
    const server = newCluster(clock, 'a', 1);
    await follow('a', server);
    const identities = agent.mesh.identitiesOf('a');
    const seen: number[] = [];
    const onIdentityGone = (): void => {};
    identities?.subscribe({ onIdentity: () => expect.fail('the listener'), onIdentityGone });
    identities?.subscribe({ onIdentity: (id) => void seen.push(id), onIdentityGone });
    write(server, `cilium/state/identities/v1/id/${0x1_0200}`, 'k8s:app=x;');
    await settle(8);
    expect(seen).toEqual([0x1_0200]);
    expect(identities?.listenerFaults).toBe(1);
    expect(statusOf('a').lastFailure?.message).toBe('a listener of identities failed: the listener');
  });

  it('reports the duration of its first sync, and the state of its client', async () => {
    const server = new MemoryServer({ clock });
    configure(server, 'a', 1);
    await agent.add('a', server);
    await advance(clock, 3000);
    expect(statusOf('a').firstSyncMs).toBeUndefined();
    completeCluster(server, 'a');
    await settle(8);
    expect(statusOf('a')).toMatchObject({ firstSyncMs: 3000, lastSyncMs: 3000 });
    expect(statusOf('a').kvstore).toEqual(agent.links.get('a')?.status());
    write(server, 'cilium/cluster-config/a', { id: 2, capabilities: { syncedCanaries: true } });
    await settle(8);
    expect(statusOf('a')).toMatchObject({ state: 'ready', firstSyncMs: 3000, lastSyncMs: 0 });
  });

  it('older than 1.13, without configuration or canaries, is followed, too', async () => {
    const server = new MemoryServer({ clock });
    writeIP(server, '10.1.0.1', 0x7_0200);
    await follow('a', server);
    expect(agent.ipcache.get('10.1.0.1')?.identity).toBe(0x7_0200);
    expect(statusOf('a').config).toBeUndefined();
  });

  it('that follows an etcd before its cluster has written to it has no key of this cluster (regression: the IPs of the local cluster, until kvstoremesh had copied the remote one)', async () => {
    const server = new MemoryServer({ clock });
    await agent.add('a', server);
    await settle(8);
    writeIP(server, '10.1.0.1', 0x7_0200);
    await settle(8);
    write(server, 'cilium/cluster-config/b', { id: 7, capabilities: {} });
    await settle(8);
    writeIP(server, '10.1.0.2', 0x7_0200);
    await settle(8);
    expect([...agent.ipcache.entries()]).toEqual([]);
    expect(statusOf('a')).toMatchObject({ state: 'no-configuration', failures: 1 });
    write(server, 'cilium/cluster-config/a', { id: 1, capabilities: { cached: true } });
    write(server, 'cilium/cache/ip/v1/a/10.1.0.3', { IP: '10.1.0.3', ID: 0x1_0200 });
    await settle(8);
    expect([...agent.ipcache.entries()].map(({ key }) => key)).toEqual(['10.1.0.3']);
    expect(statusOf('a').state).toBe('ready');
  });

  it('that is in a kvstoremesh copy is read from there', async () => {
    const server = new MemoryServer({ clock });
    write(server, 'cilium/cluster-config/a', { id: 1, capabilities: { cached: true, syncedCanaries: true } });
    for (const resource of ['nodes', 'services', 'identities', 'ip']) {
      write(server, `cilium/synced/a/cilium/cache/${resource}/v1`, '2026-01-01T00:00:00Z');
    }
    write(server, 'cilium/cache/ip/v1/a/10.1.0.1', { IP: '10.1.0.1', ID: 0x1_0200 });
    write(server, 'cilium/cache/ip/v1/ab/10.1.0.2', { IP: '10.1.0.2', ID: 0x1_0200 });
    write(server, 'cilium/cache/nodes/v1/a/n1', { Name: 'n1', Cluster: 'a' });
    await follow('a', server);
    expect([...agent.ipcache.entries()].map(({ key }) => key)).toEqual(['10.1.0.1']);
    expect(agent.nodes.exists('a/n1')).toBe(true);
  });

  it('`a` does not see the nodes of `ab` (trap: prefix without slash)', async () => {
    const server = newCluster(clock, 'a', 1);
    writeNode(server, 'ab', 'n1', '192.168.1.1');
    await follow('a', server);
    expect(agent.nodes.size).toBe(0);
  });

  it('with the local name, or one that cannot be part of a key, is not added', async () => {
    const server = newCluster(clock, 'x', 1);
    expect(await agent.mesh.add(OWN, () => agent.connect('x', server))).toBe('local-cluster');
    for (const name of ['', 'a/b', '..', 'a b', '-a', 'x'.repeat(64)]) {
      expect(await agent.mesh.add(name, () => agent.connect('x', server))).toBe('invalid-name');
    }
    expect(agent.mesh.status().clusters).toEqual([]);
    expect([OWN, 'a/b', 'x'].map((name) => agent.mesh.check(name))).toEqual([
      'local-cluster',
      'invalid-name',
      undefined,
    ]);
  });

  it('is synced once it was read completely, and reports its progress', async () => {
    const server = new MemoryServer({ clock });
    configure(server, 'a', 1);
    await agent.add('a', server);
    const synced = vi.fn();
    void agent.mesh.synced().then(synced);
    await settle(8);
    expect([synced.mock.calls, agent.mesh.progressOf('a')?.synced]).toEqual([[], false]);
    completeCluster(server, 'a');
    await settle(8);
    expect([synced.mock.calls.length, agent.mesh.progressOf('a')?.synced]).toEqual([1, true]);
    expect(agent.mesh.progressOf('b')).toBeUndefined();
  });

  it('waits for its turn among the other unreachable clusters', async () => {
    const backend = agent.connect('a', newCluster(clock, 'a', 1));
    const retryInTurn = vi.spyOn(backend, 'retryInTurn');
    await agent.mesh.add('a', () => backend);
    await settle(8);
    expect(retryInTurn).toHaveBeenCalledOnce();
    expect(retryInTurn).toHaveBeenCalledWith(expect.objectContaining({ turn: expect.any(Function) }));
  });
});

describe('an invalid value of a remote cluster', () => {
  it('is rejected, counted and reported with its key; the other values are applied', async () => {
    const server = newCluster(clock, 'a', 1);
    writeIP(server, '10.1.0.1', 0x1_0200);
    writeIP(server, '10.1.0.2', 0x2_0200);
    writeIP(server, '10.1.0.3', 2);
    writeNode(server, 'a', 'n1', '192.168.1.1', 'b');
    writeNode(server, 'a', 'n2', '192.168.1.2');
    write(server, 'cilium/state/services/v1/a/ns/s0', 'not json');
    write(server, `cilium/state/identities/v1/id/${0x2_0200}`, 'k8s:app=x;');
    await follow('a', server);
    expect(agent.rejections.map(({ at, reason }) => [at, reason]).sort()).toEqual([
      [`cilium/state/identities/v1/id/${0x2_0200}`, 'identity-out-of-range'],
      ['cilium/state/ip/v1/default/10.1.0.2', 'identity-out-of-range'],
      ['cilium/state/nodes/v1/a/n1', 'key-mismatch'],
      ['cilium/state/services/v1/a/ns/s0', 'invalid-json'],
    ]);
    expect(statusOf('a').rejections.total).toBe(4);
    // All clusters have the same keys (regression: the log of the mesh did not name the cluster).
    expect(agent.rejections.filter(({ message }) => !message.startsWith('cluster a: cilium/'))).toEqual([]);
    expect(statusOf('a').resources.ip).toMatchObject({ keys: 2, rejected: 1 });
    expect(agent.ipcache.get('10.1.0.3')?.identity).toBe(2);
    expect(agent.nodes.exists('a/n2')).toBe(true);
  });

  it('replaces the earlier value, because a restarted agent would not have it (I9)', async () => {
    const server = newCluster(clock, 'a', 1);
    writeIP(server, '10.1.0.1', 0x1_0200);
    await follow('a', server);
    writeIP(server, '10.1.0.1', 0x2_0200);
    await settle(4);
    expect(agent.ipcache.get('10.1.0.1')).toBeUndefined();
    writeIP(server, '10.1.0.1', 0x1_0300);
    await settle(4);
    expect(agent.ipcache.get('10.1.0.1')?.identity).toBe(0x1_0300);
    expect(statusOf('a').resources.ip).toMatchObject({ keys: 1, rejected: 0 });
  });

  it('in its configuration fails the handshake, until it is corrected', async () => {
    const server = newCluster(clock, 'a', 1);
    write(server, 'cilium/cluster-config/a', { id: 'one' });
    await agent.add('a', server);
    await settle(8);
    expect(statusOf('a')).toMatchObject({ state: 'failed', ready: false });
    expect(statusOf('a').lastFailure).toMatchObject({
      code: 'wrong-type',
      message: expect.stringContaining('cilium/cluster-config/a: id'),
    });
    write(server, 'cilium/cluster-config/a', { id: 1, capabilities: { maxConnectedClusters: 511 } });
    await advance(clock, 20_000);
    expect(statusOf('a').lastFailure?.message).toContain('maxConnectedClusters 511');
    write(server, 'cilium/cluster-config/a', { id: 1, capabilities: { syncedCanaries: true } });
    await advance(clock, 20_000);
    expect(statusOf('a').state).toBe('ready');
  });
});

describe('cluster ids', () => {
  it('are in the range of the mesh, or 0, which never conflicts', async () => {
    await agent.add('a', newCluster(clock, 'a', 255));
    await agent.add('b', newCluster(clock, 'b', 0));
    await agent.add('c', newCluster(clock, 'c', 0));
    await agent.add('d', newCluster(clock, 'd', 256));
    await settle(8);
    expect(['a', 'b', 'c', 'd'].map((name) => statusOf(name).state)).toEqual(
      [...'abc'].map(() => 'ready').concat('failed'),
    );
    expect(statusOf('d').lastFailure?.message).toBe('cluster d has id 256, but the maximum is 255');
    expect(agent.mesh.status().ready).toBe(false);
    await agent.mesh.remove('d');
    expect(agent.mesh.status().ready).toBe(true);
  });

  it('select the cache in which an identity is looked up: that of its cluster, else those of clusters without an id', async () => {
    const { mesh } = agent;
    const server = newCluster(clock, 'a', 1);
    await follow('a', server);
    await follow('b', newCluster(clock, 'b', 0));
    await follow('c', newCluster(clock, 'c', 0));
    const [a, b, c] = ['a', 'b', 'c'].map((name) => mesh.identitiesOf(name));
    for (let again = 0; again < 2; again++) {
      expect(mesh.identitiesFor(1)).toEqual([a]);
      expect(mesh.identitiesFor(0)).toEqual([b, c]);
      expect(mesh.identitiesFor(7)).toEqual([b, c]);
    }
    configure(server, 'a', 7);
    await settle(8);
    expect([mesh.identitiesFor(7), mesh.identitiesFor(1)]).toEqual([[a], [b, c]]);
    await mesh.remove('a');
    expect(mesh.identitiesFor(7)).toEqual([b, c]);
    await follow('a', newCluster(clock, 'a', 7));
    expect(mesh.identitiesFor(7)).toEqual([mesh.identitiesOf('a')]);
    expect(mesh.identitiesOf('a')).not.toBe(a);
  });

  it('are exclusive, and the message names both clusters (trap: duplicate ids)', async () => {
    await follow('a', newCluster(clock, 'a', 1));
    await agent.add('b', newCluster(clock, 'b', 1));
    await agent.add('c', newCluster(clock, 'c', 9));
    await settle(8);
    expect(statusOf('b')).toMatchObject({ state: 'failed', config: undefined, refusedID: 1 });
    const remedy = 'give each cluster of the mesh another id';
    expect(statusOf('b').lastFailure?.message).toBe(`cluster b has id 1, the same as cluster a; ${remedy}`);
    expect(statusOf('c').lastFailure?.message).toBe(
      `cluster c has id 9, the same as this cluster (own); ${remedy}`,
    );
    await agent.mesh.remove('a');
    await advance(clock, 20_000);
    expect(statusOf('b')).toMatchObject({ state: 'ready', refusedID: undefined });
  });

  it('are refused only while the configuration exists (regression: a conflict was reported after its deletion)', async () => {
    await follow('a', newCluster(clock, 'a', 1));
    const server = newCluster(clock, 'b', 1);
    await agent.add('b', server);
    await settle(8);
    expect(statusOf('b').refusedID).toBe(1);
    write(server, 'cilium/cluster-config/other', { id: 4 });
    write(server, 'cilium/cluster-config/b', undefined);
    await advance(clock, 20_000);
    expect(statusOf('b')).toMatchObject({ state: 'no-configuration', refusedID: undefined });
  });

  it('that change cause a withdrawal of the state that was read under the old id', async () => {
    const server = newCluster(clock, 'a', 1);
    writeIP(server, '10.1.0.1', 0x1_0200);
    writeIP(server, '10.1.0.2', 0x3_0200);
    await follow('a', server);
    write(server, 'cilium/cluster-config/a', { id: 3, capabilities: { syncedCanaries: true } });
    await settle(8);
    expect([...agent.ipcache.entries()].map(({ key }) => key)).toEqual(['10.1.0.2']);
    expect(statusOf('a')).toMatchObject({ state: 'ready', config: { id: 3 } });
  });
});

describe('the end of a connection', () => {
  it('by removal withdraws everything, and the identity cache', async () => {
    const server = newCluster(clock, 'a', 1);
    writeIP(server, '10.1.0.1', 0x1_0200);
    writeNode(server, 'a', 'n1', '192.168.1.1');
    await follow('a', server);
    expect(await agent.mesh.remove('a')).toBe(true);
    expect(await agent.mesh.remove('a')).toBe(false);
    expect([...agent.ipcache.entries()]).toEqual([]);
    expect(agent.nodes.size).toBe(0);
    expect(agent.mesh.identitiesOf('a')).toBeUndefined();
    expect(server.streams).toBe(0);
  });

  it('by stop withdraws nothing', async () => {
    const server = newCluster(clock, 'a', 1);
    writeIP(server, '10.1.0.1', 0x1_0200);
    await follow('a', server);
    await agent.mesh.stop();
    expect(agent.ipcache.get('10.1.0.1')?.identity).toBe(0x1_0200);
    expect(server.streams).toBe(0);
  });

  it('by stop reports each cluster once, as not connected (regression: twice, first as connected)', async () => {
    const server = newCluster(clock, 'a', 1);
    await follow('a', server);
    const reported: unknown[] = [];
    agent.mesh.onChange((name) => reported.push([statusOf(name).state, statusOf(name).connected]));
    await agent.mesh.stop();
    expect(reported).toEqual([['stopped', false]]);
  });

  it('by stop does not add a cluster whose removal had to end first', async () => {
    const server = newCluster(clock, 'a', 1);
    await follow('a', server);
    const removal = agent.mesh.remove('a');
    const addition = agent.mesh.add('a', () => agent.connect('a', server));
    await agent.mesh.stop();
    expect([await removal, await addition, agent.mesh.names]).toEqual([true, 'stopped', []]);
  });

  it('by a new one keeps known state and sweeps deleted keys, in the same identity cache (trap: one cache per reconnect)', async () => {
    const server = newCluster(clock, 'a', 1);
    writeIP(server, '10.1.0.1', 0x1_0200);
    writeIP(server, '10.1.0.2', 0x1_0200);
    await follow('a', server);
    const identities = agent.mesh.identitiesOf('a');
    const other = newCluster(clock, 'a', 1);
    writeIP(other, '10.1.0.2', 0x1_0200);
    const backend = agent.connect('a', other);
    backendDown(agent, 'a');
    expect(await agent.mesh.add('a', () => backend)).toBe('reconnected');
    await settle(4);
    expect(agent.ipcache.size).toBe(2);
    agent.links.get('a')?.link.up();
    await advance(clock, 20_000);
    expect([...agent.ipcache.entries()].map(({ key }) => key)).toEqual(['10.1.0.2']);
    expect(agent.mesh.identitiesOf('a')).toBe(identities);
  });
});

function backendDown(of: Agent, name: string): void {
  of.links.get(name)?.link.down();
}

describe('a kvstore that restarts empty', () => {
  it('sweeps nothing before its canaries exist (trap: canary missing)', async () => {
    const server = newCluster(clock, 'a', 1);
    const empty = server.snapshot();
    writeIP(server, '10.1.0.1', 0x1_0200);
    writeIP(server, '10.1.0.2', 0x1_0200);
    await follow('a', server);
    server.restore(empty);
    write(server, 'cilium/synced/a/cilium/state/ip/v1', undefined);
    await advance(clock, 20_000);
    expect(agent.ipcache.size).toBe(2);
    writeIP(server, '10.1.0.2', 0x1_0200);
    completeCluster(server, 'a');
    await advance(clock, 20_000);
    expect([...agent.ipcache.entries()].map(({ key }) => key)).toEqual(['10.1.0.2']);
  });
});

describe('a kvstore that has lost its configuration, too', () => {
  it('counts as one that is being filled, not as a cluster older than 1.13: nothing is swept', async () => {
    const server = newCluster(clock, 'a', 1);
    writeIP(server, '10.1.0.1', 0x1_0200);
    await follow('a', server);
    server.restore(new MemoryServer({ clock }).snapshot());
    await advance(clock, 20_000);
    expect(agent.ipcache.size).toBe(1);
    expect(statusOf('a').lastFailure?.message).toContain('does not contain its configuration any more');
    write(server, 'cilium/cluster-config/a', { id: 1, capabilities: { syncedCanaries: true } });
    completeCluster(server, 'a');
    await advance(clock, 20_000);
    expect(statusOf('a').state).toBe('ready');
    expect(agent.ipcache.size).toBe(0);
  });
});

describe('a client that cannot be created', () => {
  it('is retried, and the reason is in the status', async () => {
    const server = newCluster(clock, 'a', 1);
    let broken = true;
    await agent.mesh.add('a', () => {
      if (broken) throw new Error('no such certificate');
      return agent.connect('a', server);
    });
    await settle(4);
    expect(statusOf('a')).toMatchObject({
      state: 'failed',
      lastFailure: { message: 'no such certificate' },
      connected: false,
    });
    const { lastFailure } = statusOf('a');
    broken = false;
    await advance(clock, 1000);
    expect(statusOf('a')).toMatchObject({ state: 'ready', connected: true });
    await agent.add('a', server);
    await advance(clock, 1000);
    // The time stays that of the last ready state, whatever the cluster does afterwards.
    expect(statusOf('a')).toMatchObject({
      state: 'ready',
      lastFailure,
    });
  });
});

describe('global services', () => {
  it('announced with one backend by two clusters keep it if one withdraws (trap: the other is lost)', async () => {
    const [a, b] = [newCluster(clock, 'a', 1), newCluster(clock, 'b', 2)];
    writeService(a, 'a', 's0', '10.1.0.1');
    writeService(b, 'b', 's0', '10.1.0.1');
    await follow('a', a);
    await follow('b', b);
    write(a, 'cilium/state/services/v1/a/ns/s0', undefined);
    await settle(4);
    expect(backendsOf('s0')).toEqual(['10.1.0.1']);
    await agent.mesh.remove('b');
    expect(backendsOf('s0')).toEqual([]);
  });
});

describe('an unreachable cluster', () => {
  const TTL = 60_000;

  it('loses its service backends after the TTL, keeps everything else, and gets them back', async () => {
    await restart(() => ({ serviceTTLMs: TTL }));
    const server = newCluster(clock, 'a', 1);
    writeService(server, 'a', 's0', '10.1.0.1');
    writeIP(server, '10.1.0.1', 0x1_0200);
    await follow('a', server);
    await advance(clock, 2.7 * TTL);
    expect(backendsOf('s0')).toEqual(['10.1.0.1']);
    backendDown(agent, 'a');
    await advance(clock, TTL / 2);
    const { knownAt, connectionChangedAt } = statusOf('a');
    expect(knownAt).toBeDefined();
    expect(backendsOf('s0')).toEqual(['10.1.0.1']);
    await advance(clock, TTL);
    expect(backendsOf('s0')).toEqual([]);
    expect(agent.ipcache.size).toBe(1);
    const expired = { servicesExpired: true, connected: false, ready: false, knownAt, connectionChangedAt };
    expect(statusOf('a')).toMatchObject(expired);
    agent.links.get('a')?.link.up();
    await advance(clock, 60_000);
    expect(backendsOf('s0')).toEqual(['10.1.0.1']);
    expect(statusOf('a')).toMatchObject({ servicesExpired: false, state: 'ready' });
  });

  it.each(['removed', 'stopped', 'followed'])(
    'has a timer for its services while they are not followed: not when it is %s',
    async (what) => {
      const pending: number[] = [];
      for (const serviceTTLMs of [100 * TTL, undefined]) {
        await restart(() => ({ serviceTTLMs }));
        const server = newCluster(clock, 'a', 1);
        await agent.add('a', server);
        if (what !== 'followed') agent.links.get('a')?.link.down();
        await settle(8);
        if (what === 'removed') await agent.mesh.remove('a');
        if (what === 'stopped') await agent.mesh.stop();
        await advance(clock, 1000);
        pending.push(clock.pending);
      }
      expect(pending[0]).toBe(pending[1]);
    },
  );

  it('keeps its services if they do not expire, and has none if they are not followed', async () => {
    for (const change of [{ serviceTTLMs: undefined }, { serviceTTLMs: TTL, services: undefined }]) {
      await restart(() => change);
      await agent.mesh.add('a', () => Promise.reject(new Error('down')));
      await settle(8);
      expect(clock.pending).toBe(1); // its backoff
    }
  });

  it('is not connected because it has proven a delete once, after a failure (regression: for good)', async () => {
    const server = newCluster(clock, 'a', 1);
    writeIP(server, '10.1.0.1', 0x1_0200);
    write(server, 'unrelated', 'x'); // no watch can resume from its revision
    await agent.add('a', server);
    const link = agent.links.get('a')?.link;
    if (link === undefined) throw new Error('not connected');
    const watch = link.watch.bind(link);
    let isSilent = false;
    link.watch = (...call) => {
      const stream = watch(...call);
      const range = stream.range.bind(stream);
      const silence = (signal?: AbortSignal): Promise<never> =>
        new Promise((_, reject) => signal?.addEventListener('abort', reject));
      stream.range = (request, options) => (isSilent ? silence(options?.signal) : range(request, options));
      return stream;
    };
    await settle(8);
    let refusals = 0;
    link.onRead = ({ start }) => {
      if (start === 'cilium/cluster-config/a' && ++refusals === 1) throw new KvstoreError('overloaded', 'no');
    };
    deleteIP(server, '10.1.0.1');
    await advance(clock, 1000);
    expect([refusals, agent.ipcache.size, statusOf('a').connected]).toEqual([2, 0, true]);
    write(server, 'unrelated', 'x');
    server.compact();
    for (isSilent of [false, true]) {
      link.cut();
      await advance(clock, 1000);
    }
    expect(statusOf('a').connected).toBe(false);
  });

  it('loses its services after the TTL even if it was reachable for a moment (regression: never)', async () => {
    await restart(() => ({ serviceTTLMs: TTL }));
    const server = new MemoryServer({ clock });
    write(server, 'cilium/cluster-config/a', { id: 1, capabilities: {} });
    writeService(server, 'a', 's0', '10.1.0.1');
    for (let i = 0; i < 200; i++) writeService(server, 'a', `t${i}`, '10.1.0.1');
    await follow('a', server);
    const link = agent.links.get('a')?.link;
    link?.down();
    await advance(clock, 2 * TTL);
    expect(backendsOf('s0')).toEqual([]);
    if (link === undefined) throw new Error('not connected');
    let pages = 0;
    link.onRead = ({ start }) => {
      if (!start.startsWith('cilium/state/services/')) {
        if (start.endsWith('/')) throw new KvstoreError('overloaded', 'not yet'); // all watches but one
      } else if (++pages === 2) link.down();
    };
    link.up();
    await advance(clock, 20_000);
    expect([pages, link.state]).toEqual([2, 'down']);
    expect(backendsOf('s0')).toEqual(['10.1.0.1']);
    await advance(clock, 2 * TTL);
    expect(backendsOf('s0')).toEqual([]);
    expect(statusOf('a').servicesExpired).toBe(true);
  });
});
