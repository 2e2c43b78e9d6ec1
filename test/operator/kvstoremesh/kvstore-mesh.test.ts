import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { deferred } from '../../../src/base/sleep.ts';
import { textOfBytes } from '../../../src/kvstore/codec/bytes.ts';
import { encodeClusterConfig } from '../../../src/kvstore/codec/cluster-config.ts';
import { MemoryBackend } from '../../../src/kvstore/memory/memory-backend.ts';
import { KvstoreError } from '../../../src/kvstore/session/errors.ts';
import type { MirroredClusterStatus } from '../../../src/operator/kvstoremesh/kvstore-mesh.ts';
import {
  completeCluster,
  configure,
  newCluster,
  write,
  writeIP,
} from '../../clustermesh/support/mesh-world.ts';
import { giveUpDelete } from '../../kvstore/support/given-up-write.ts';
import { advance, settle } from '../../kvstore/support/settle.ts';
import { CopiedCluster } from './support/copied-cluster.ts';

const IP = 'cilium/cache/ip/v1/a/10.0.0.1';
const CONFIG = 'cilium/cluster-config/a';
const CANARIES = 'cilium/synced/a/';

let copied: CopiedCluster;

beforeEach(() => {
  copied = new CopiedCluster();
});
afterEach(() => copied.stop());

/** Copies cluster `a` with one IP. */
async function copy(): Promise<void> {
  writeIP(copied.remote, '10.0.0.1', 0x1_0100);
  copied.add();
  await settle(12);
}

function statusOf(name: string): MirroredClusterStatus {
  const status = copied.mesh.status().clusters.find((cluster) => cluster.name === name);
  if (status === undefined) throw new Error(`${name} is not copied`);
  return status;
}

describe('the copy of a cluster', () => {
  it('has every value unchanged, its configuration, and a canary for each resource', async () => {
    const { remote } = copied;
    write(remote, 'cilium/state/nodes/v1/a/n1', 'no node at all');
    write(remote, 'cilium/state/services/v1/a/ns/s', '{}');
    write(remote, 'cilium/state/identities/v1/id/65792', 'k8s:a=1;');
    write(remote, 'cilium/state/identities/v1/value/k8s:a=1;/n1', '65792');
    write(remote, 'cilium/state/nodes/v1/ab/n1', 'of another cluster');
    await copy();
    const { [IP]: value, ...others } = copied.copy();
    expect(JSON.parse(value ?? '')).toEqual({ IP: '10.0.0.1', ID: 0x1_0100 });
    expect(Object.keys(others).sort()).toEqual([
      'cilium/cache/identities/v1/a/id/65792',
      'cilium/cache/nodes/v1/a/n1',
      'cilium/cache/services/v1/a/ns/s',
      CONFIG,
      ...['endpointslices', 'identities', 'ip', 'nodes', 'serviceexports', 'services'].map(
        (of) => `${CANARIES}cilium/cache/${of}/v1`,
      ),
    ]);
    expect(others[CONFIG]).toBe('{"id":1,"capabilities":{"syncedCanaries":true,"cached":true}}');
    expect(others['cilium/cache/nodes/v1/a/n1']).toBe('no node at all');
  });

  it('has no value that the local kvstore would refuse (regression: its canary was never written)', async () => {
    const { remote } = copied;
    const limit = 1.5 * 1024 * 1024 - 512 - 'cilium/state/nodes/v1/a/n1'.length;
    write(remote, 'cilium/state/nodes/v1/a/n1', 'x'.repeat(limit));
    write(remote, 'cilium/state/nodes/v1/a/n2', 'x'.repeat(limit + 1));
    const refused: string[] = [];
    copied.onWrite((keys) => refused.push(...keys.filter((key) => key.endsWith('/n2'))));
    await copy();
    expect(refused).toEqual([]);
    expect(Object.keys(copied.copy('cilium/cache/nodes/'))).toEqual(['cilium/cache/nodes/v1/a/n1']);
    expect(statusOf('a')).toMatchObject({ copy: { canaries: { nodes: true } } });
    expect(statusOf('a').rejections.recent.map(({ message }) => message)).toEqual([
      expect.stringContaining('must have at most 1572352 bytes with its key'),
    ]);
  });

  it('has the capabilities of the cluster in its configuration, known or not', async () => {
    const capabilities = {
      syncedCanaries: false,
      maxConnectedClusters: 511,
      serviceExportsEnabled: false,
      endpointSlicesExportMode: 'a-mode-of-1.25',
      later: { 'a <b>': [1, null, 'x'] },
    };
    write(copied.remote, CONFIG, { id: 1, capabilities });
    copied.add();
    await settle(30);
    expect(JSON.parse(copied.copy(CONFIG)[CONFIG] ?? '')).toEqual({
      id: 1,
      capabilities: { ...capabilities, syncedCanaries: true, cached: true },
    });
  });

  it.each([undefined, false, true])(
    'has service exports if the cluster exports them: %j',
    async (enabled) => {
      const canary = `${CANARIES}cilium/cache/serviceexports/v1`;
      const key = 'cilium/state/serviceexports/v1/a/ns/web';
      write(copied.remote, CONFIG, {
        id: 1,
        capabilities: { syncedCanaries: true, serviceExportsEnabled: enabled },
      });
      write(copied.remote, key, '{"a":1}');
      completeCluster(copied.remote, 'a');
      copied.add();
      await settle(30);
      const copy = copied.copy();
      expect(JSON.parse(copy[CONFIG] ?? '').capabilities.serviceExportsEnabled).toBe(enabled);
      expect(copy['cilium/cache/serviceexports/v1/a/ns/web']).toBeUndefined();
      expect(canary in copy).toBe(enabled !== true); // also written for resources that are not copied, like upstream
      completeCluster(copied.remote, 'a', ['serviceexports']);
      await settle(30);
      expect(copied.copy()['cilium/cache/serviceexports/v1/a/ns/web']).toBe(enabled ? '{"a":1}' : undefined);
      expect(copied.copy()).toHaveProperty([canary]);
    },
  );

  it('is read from the cache of a cluster that is itself cached', async () => {
    const server = newCluster(copied.clock, 'b', 2);
    write(server, 'cilium/cluster-config/b', { id: 2, capabilities: { syncedCanaries: true, cached: true } });
    write(server, 'cilium/cache/nodes/v1/b/n1', 'cached');
    write(server, 'cilium/state/nodes/v1/b/n2', 'not cached');
    for (const of of ['nodes', 'services', 'identities', 'ip'])
      write(server, `cilium/synced/b/cilium/cache/${of}/v1`, 'now');
    copied.add('b', server);
    await settle(12);
    expect(copied.copy('cilium/cache/')).toEqual({ 'cilium/cache/nodes/v1/b/n1': 'cached' });
  });

  it('of a cluster without a configuration does not start', async () => {
    const server = newCluster(copied.clock, 'b', 2);
    write(server, 'cilium/cluster-config/b', undefined);
    write(server, 'cilium/state/nodes/v1/b/n1', 'x');
    copied.add('b', server);
    await settle(12);
    expect(copied.copy()).toEqual({});
    configure(server, 'b', 2);
    await settle(12);
    expect(Object.keys(copied.copy('cilium/cache/'))).toEqual(['cilium/cache/nodes/v1/b/n1']);
  });

  it('waits for the canaries of the remote cluster', async () => {
    const server = newCluster(copied.clock, 'b', 2);
    for (const of of ['nodes', 'services', 'identities', 'ip'])
      write(server, `cilium/synced/b/cilium/state/${of}/v1`, undefined);
    write(server, 'cilium/state/nodes/v1/b/n1', 'x');
    copied.add('b', server);
    await settle(12);
    expect(Object.keys(copied.copy())).toEqual(['cilium/cluster-config/b']);
    completeCluster(server, 'b');
    await settle(12);
    expect(Object.keys(copied.copy())).toHaveLength(8);
  });

  it('is written again after a lost lease', async () => {
    await copy();
    const before = copied.copy();
    for (const lease of copied.local.leases) copied.local.expireLease(lease);
    expect(copied.copy()).toEqual({});
    await advance(copied.clock, 600_000);
    const shown = (content: object): readonly string[] => Object.keys(content).sort();
    expect(shown(copied.copy())).toEqual(shown(before));
  });

  it.each([0, 1])(
    'is put again at once when somebody revokes lease %i of the two (regression: at the next keepalive)',
    async (which) => {
      await copy();
      const before = Object.keys(copied.copy()).sort();
      copied.local.revokeLease(copied.local.leases[which] ?? '');
      expect(Object.keys(copied.copy()).length).toBeLessThan(before.length);
      await settle(4);
      expect(Object.keys(copied.copy()).sort()).toEqual(before);
    },
  );

  it('is followed by one watch per resource, and one for all canaries (regression: by one more per resource)', async () => {
    await copy();
    const prefixes = copied.backend.status().watches.map(({ prefix }) => prefix);
    expect(prefixes.toSorted()).toEqual([
      ...[
        'cilium/.initlock/leases/',
        'cilium/cache/endpointslices/v1/a/',
        'cilium/cache/identities/v1/a/id/',
        'cilium/cache/ip/v1/a/',
        'cilium/cache/nodes/v1/a/',
        'cilium/cache/serviceexports/v1/a/',
      ],
      ...['cilium/cache/services/v1/a/', 'cilium/cluster-config/', 'cilium/synced/a/'],
    ]);
  });

  it('of several clusters has one watch of their configurations (regression: one each, of all of them), which puts each back', async () => {
    const names = ['b', 'c', 'd'];
    for (const [i, name] of names.entries()) copied.add(name, newCluster(copied.clock, name, i + 2));
    await copy();
    const watched = copied.backend
      .status()
      .watches.filter(({ prefix }) => prefix === 'cilium/cluster-config/');
    expect(watched).toHaveLength(1);
    const before = copied.copy('cilium/cluster-config/');
    expect(Object.keys(before)).toHaveLength(4);
    for (const [i, key] of Object.keys(before).entries())
      write(copied.local, key, i % 2 === 0 ? undefined : 'of another client');
    await advance(copied.clock, 2000);
    await settle(12);
    expect(copied.copy('cilium/cluster-config/')).toEqual(before);
    copied.backend.link.cut();
    await advance(copied.clock, 5000);
    write(copied.local, CONFIG, undefined);
    await advance(copied.clock, 2000);
    expect(copied.copy('cilium/cluster-config/')).toEqual(before);
  });

  it('of an earlier process is taken over with its leases: read by one watch, and not written (regression: listed twice, and every key put)', async () => {
    for (let i = 1; i <= 300; i++) writeIP(copied.remote, `10.0.1.${i}`, 0x1_0100 + i);
    await copy();
    const before = copied.copy('cilium/cache/');
    expect(Object.keys(before)).toHaveLength(301);
    await copied.restart();
    const written: string[] = [];
    const listed: string[] = [];
    copied.onWrite((keys) => written.push(...keys.filter((key) => key.startsWith('cilium/cache/'))));
    const list = copied.backend.listPrefix.bind(copied.backend);
    copied.backend.listPrefix = (prefix, options) => {
      listed.push(prefix);
      return list(prefix, options);
    };
    copied.add();
    await settle(40);
    expect(copied.mesh.status().clusters[0]?.copy).toMatchObject({ keys: 302, pending: 0 });
    expect([written, listed]).toEqual([[], []]);
    await advance(copied.clock, 60_000);
    expect([written, listed]).toEqual([[], []]);
    await advance(copied.clock, 3_600_000);
    expect(copied.copy('cilium/cache/')).toEqual(before);
  });

  it('is restored within a second if another client overwrites or deletes it (regression: never)', async () => {
    await copy();
    const before = copied.copy();
    const keys = Object.keys(before);
    expect(keys).toContain(CONFIG);
    for (const key of keys) write(copied.local, key, undefined);
    await settle(20);
    expect(Object.keys(copied.copy())).toEqual(keys);
    for (const key of [IP, CONFIG]) write(copied.local, key, 'of another client');
    await advance(copied.clock, 2000);
    expect(copied.copy()).toMatchObject({ [IP]: before[IP], [CONFIG]: before[CONFIG] });
  });

  it('loses keys again that a restore of the local kvstore from a backup brings back (regression: never)', async () => {
    await copy();
    const { local, remote, clock } = copied;
    writeIP(remote, '10.0.0.2', 0x1_0100);
    await settle(20);
    const backup = local.snapshot();
    write(remote, 'cilium/state/ip/v1/default/10.0.0.1', undefined);
    writeIP(remote, '10.0.0.3', 0x1_0100);
    await settle(20);
    const before = copied.copy();
    expect(Object.keys(before)).not.toContain(IP);
    local.restore(backup);
    await advance(clock, 30_000);
    expect(copied.copy()).toEqual(before);
  });

  it('of a cluster that was never reached costs no watch and no write (regression: seven watches, 21 requests)', async () => {
    void copied.mesh.add('a', () => Promise.reject(new KvstoreError('unavailable', 'no route')));
    await advance(copied.clock, 60_000);
    const { watches, requests } = copied.backend.status();
    expect(watches.map(({ prefix }) => prefix)).toEqual(['cilium/cluster-config/']);
    expect(requests).toEqual({ ok: 2 }); // the configuration of `a`, and the list of that watch
  });

  it('that stops before the local kvstore answers leaves no task (regression: one read the heartbeat for ever)', async () => {
    const { clock, backend } = copied;
    backend.link.down();
    copied.add();
    await settle(12);
    expect(statusOf('a').tasks.map(({ name }) => name)).toEqual(['follow']);
    await copied.stop();
    expect(clock.pending).toBe(0);
  });

  it('replaces keys that an earlier process has left without a configuration', async () => {
    const leftovers = [IP, 'cilium/cache/ip/v1/a/10.9.9.9', `${CANARIES}cilium/cache/ip/v1`];
    for (const key of leftovers) write(copied.local, key, 'old');
    let isReached = false;
    const { remote, clock } = copied;
    writeIP(remote, '10.0.0.1', 0x1_0100);
    void copied.mesh.add('a', () =>
      isReached
        ? new MemoryBackend({ server: remote, clock, random: () => 0.5 })
        : Promise.reject(new KvstoreError('unavailable', 'no route')),
    );
    await advance(clock, 30_000);
    expect(Object.keys(copied.copy()).sort()).toEqual([...leftovers].sort());
    isReached = true;
    await advance(clock, 60_000);
    expect(Object.keys(copied.copy('cilium/cache/'))).toEqual([IP]);
    expect(JSON.parse(copied.copy()[IP] ?? '')).toEqual({ IP: '10.0.0.1', ID: 0x1_0100 });
  });

  it('stays if the remote kvstore is unreachable, also over a restart that outlives the leases', async () => {
    await copy();
    await copied.stop();
    copied.remote.restore(copied.remote.snapshot());
    await copied.restart();
    copied.add();
    copied.link?.down();
    void copied.mesh.add('a', () => Promise.reject(new Error('no way to it')));
    await advance(copied.clock, 3_600_000);
    expect(Object.keys(copied.copy())).toHaveLength(8);
    expect(copied.copy(IP)).toHaveProperty([IP]);
  });

  it.each(['running', 'restarted'])(
    'of a process that is %s loses services and service exports after the service TTL, until the cluster is reached',
    async (process) => {
      const { remote, clock } = copied;
      write(remote, CONFIG, { id: 1, capabilities: { syncedCanaries: true, serviceExportsEnabled: true } });
      write(remote, 'cilium/state/services/v1/a/ns/s', '{}');
      write(remote, 'cilium/state/serviceexports/v1/a/ns/s', '{}');
      completeCluster(remote, 'a', ['nodes', 'services', 'serviceexports', 'identities', 'ip']);
      writeIP(remote, '10.0.0.1', 0x1_0100);
      const withTTL = (): Promise<void> => copied.restart({ serviceTTLMs: 600_000 });
      if (process === 'running') await withTTL();
      copied.add();
      await settle(30);
      const all = Object.keys(copied.copy());
      const services = all.filter((key) => /cache.service.*\/ns\//.test(key));
      expect(services).toHaveLength(2);
      if (process === 'restarted') await withTTL();
      copied.link?.down();
      if (process === 'restarted')
        void copied.mesh.add('a', () => Promise.reject(new KvstoreError('unavailable', 'no route')));
      await advance(clock, 590_000);
      expect(Object.keys(copied.copy())).toEqual(all);
      expect(statusOf('a').servicesExpired).toBe(false);
      await advance(clock, 20_000);
      expect(Object.keys(copied.copy())).toEqual(all.filter((key) => !services.includes(key)));
      expect(statusOf('a').servicesExpired).toBe(true);
      expect(copied.mesh.status().problems).toEqual([
        'the copied services of cluster a were deleted, because it was unreachable or empty for the time of --clustermesh-cache-ttl',
      ]);
      copied.link?.up();
      if (process === 'restarted') copied.add();
      await advance(clock, 30_000);
      expect(Object.keys(copied.copy())).toEqual(all);
      expect(statusOf('a').servicesExpired).toBe(false);
    },
  );

  it('loses keys that a complete list does not contain after a restart, before its canary', async () => {
    await copy();
    await copied.restart();
    write(copied.local, 'cilium/cache/nodes/v1/a/left', 'of an earlier process');
    write(copied.remote, 'cilium/state/ip/v1/default/10.0.0.1', undefined);
    writeIP(copied.remote, '10.0.0.2', 0x1_0100);
    copied.add();
    await settle(20);
    expect(Object.keys(copied.copy('cilium/cache/'))).toEqual(['cilium/cache/ip/v1/a/10.0.0.2']);
  });

  it('after a restart is bound to a lease of the new process before its configuration, which must not outlive it', async () => {
    await copy();
    await copied.restart();
    write(copied.local, IP, copied.copy(IP)[IP]); // without a lease
    let isFull = true;
    const written: string[] = [];
    copied.onWrite((keys) => {
      if (isFull && keys.includes(IP)) throw new KvstoreError('overloaded', 'not now');
      written.push(...keys);
    });
    void copied.mesh.add('a', () => Promise.reject(new Error('no way to it')));
    await advance(copied.clock, 10_000);
    expect(written).not.toContain(CONFIG);
    isFull = false;
    await advance(copied.clock, 60_000);
    expect(written).toContain(CONFIG);
  });

  it.each(['running', 'restarted'])(
    'of a process that is %s has no canary of a format that the cluster begins to export (regression: readers lost all backends)',
    async (process) => {
      const slices = `${CANARIES}cilium/cache/endpointslices/v1`;
      const capabilities = { syncedCanaries: true, endpointSlicesExportMode: 'endpointslices-only' };
      await copy();
      expect(copied.copy()).toHaveProperty([slices]); // of the empty copy, because readers may wait for it
      if (process === 'restarted') await copied.restart();
      const before: boolean[] = [];
      copied.onWrite((keys) => {
        if (keys.includes(CONFIG)) before.push(slices in copied.copy());
      });
      write(copied.remote, CONFIG, { id: 1, capabilities });
      if (process === 'restarted') copied.add();
      await settle(30);
      expect(copied.copy(CONFIG)[CONFIG]).toContain('endpointslices-only');
      expect(before.at(-1)).toBe(false);
      expect(copied.copy()).not.toHaveProperty([slices]);
      write(copied.remote, 'cilium/state/endpointslices/v1/a/ns/s-1', 'a slice');
      completeCluster(copied.remote, 'a', ['endpointslices']);
      await settle(30);
      expect(copied.copy()).toMatchObject({
        [slices]: expect.any(String),
        'cilium/cache/endpointslices/v1/a/ns/s-1': 'a slice',
        [IP]: expect.any(String),
      });
    },
  );

  it('of another id is swept before the new configuration is written', async () => {
    await copy();
    await copied.restart();
    write(copied.remote, CONFIG, { id: 3, capabilities: { syncedCanaries: true, cached: false } });
    const before: (readonly string[])[] = [];
    copied.onWrite((keys) => {
      if (keys.includes(CONFIG)) before.push(Object.keys(copied.copy('cilium/cache/')));
    });
    copied.add();
    await settle(30);
    expect(before).toEqual([[IP], []]); // at first inherited keys stay readable
    expect(copied.copy(CONFIG)[CONFIG]).toContain('"id":3');
    expect(copied.copy()).toHaveProperty([IP]);
  });
});

describe('a removed cluster', () => {
  it('loses its configuration immediately, and everything else after three minutes', async () => {
    await copy();
    const server = newCluster(copied.clock, 'ab', 2);
    write(server, 'cilium/state/nodes/v1/ab/n1', 'x');
    copied.add('ab', server);
    await settle(12);
    write(copied.local, 'cilium/cache/nodes/v1/a/stray', 'of somebody');
    void copied.mesh.remove('a');
    await advance(copied.clock, 179_000);
    expect(copied.copy(CONFIG)).not.toHaveProperty([CONFIG]);
    expect(copied.copy()).toHaveProperty([IP]);
    expect(statusOf('a').state).toBe('draining');
    await advance(copied.clock, 2_000);
    expect(copied.copy('cilium/cache/')).toEqual({ 'cilium/cache/nodes/v1/ab/n1': 'x' });
    expect(copied.copy(CANARIES)).toEqual({});
    expect(copied.mesh.status().clusters.map(({ name }) => name)).toEqual(['ab']);
  });

  it('is removed again if a restore of the local kvstore from a backup brings it back (regression: its keys stayed)', async () => {
    await copy();
    const { local, clock, mesh } = copied;
    const foreign = encodeClusterConfig({ id: 7, capabilities: { syncedCanaries: true, cached: false } });
    write(local, 'cilium/cluster-config/b', textOfBytes(foreign));
    const backup = local.snapshot();
    void mesh.remove('a');
    await advance(clock, 200_000);
    expect(copied.copy()).toEqual({ 'cilium/cluster-config/b': expect.anything() });
    local.restore(backup);
    await advance(clock, 30_000);
    expect(copied.copy()).not.toHaveProperty([CONFIG]);
    expect(copied.copy()).toHaveProperty([IP]); // until its readers have disconnected
    await advance(clock, 200_000);
    expect(copied.copy()).toEqual({ 'cilium/cluster-config/b': expect.anything() });
    expect(mesh.status().clusters).toEqual([]);
  });

  it('is not removed by a process that stops while a restore brings it back (regression: an unhandled rejection)', async () => {
    await copy();
    const { local, clock, mesh } = copied;
    const backup = local.snapshot();
    void mesh.remove('a');
    await advance(clock, 200_000);
    const { promise: closed, resolve: close } = deferred();
    const slow = new MemoryBackend({ server: newCluster(clock, 'b', 2), clock, random: () => 0.5 });
    vi.spyOn(slow, 'close').mockReturnValue(closed);
    void mesh.add('b', () => slow);
    await settle(12);
    const stopped = mesh.stop();
    local.restore(backup);
    await advance(clock, 30_000);
    close();
    await stopped;
    expect(copied.copy()).toHaveProperty([CONFIG]);
  });

  it('is not copied, even if its addition has not begun (regression: the removal was ignored)', async () => {
    copied.add();
    expect(await copied.mesh.remove('a')).toBe(true);
    await advance(copied.clock, 200_000);
    expect(copied.mesh.status().clusters).toEqual([]);
    expect(copied.copy()).toEqual({});
  });

  it('that returns during its removal waits for the end of it, and the last request counts', async () => {
    await copy();
    void copied.mesh.remove('a');
    copied.add();
    void copied.mesh.remove('a');
    copied.add();
    await advance(copied.clock, 170_000);
    expect(copied.copy()).not.toHaveProperty([CONFIG]);
    expect(statusOf('a').rejoins).toBe(true);
    await advance(copied.clock, 12_000);
    expect(copied.copy()).toHaveProperty([CONFIG]);
    expect(copied.copy()).toHaveProperty([IP]);
    expect(statusOf('a').rejoins).toBe(false);
  });

  it('is removed as soon as the local kvstore accepts the deletes', async () => {
    await copy();
    void copied.mesh.remove('a');
    await advance(copied.clock, 60_000);
    copied.backend.link.down();
    await advance(copied.clock, 600_000);
    expect(copied.copy()).toHaveProperty([IP]);
    copied.backend.link.up();
    await advance(copied.clock, 120_000);
    expect(copied.copy()).toEqual({});
  });

  it('that has returned loses nothing to an abandoned sweep (regression: it was not fenced)', async () => {
    await copy();
    const land = giveUpDelete(copied.backend.link, 'cilium/cache/ip/v1/a/');
    void copied.mesh.remove('a');
    copied.add();
    await advance(copied.clock, 300_000);
    expect(copied.copy()).toHaveProperty([IP]);
    await land();
    expect(copied.copy()).toHaveProperty([IP]);
  });

  it('stays unchanged when the process ends, without a delay', async () => {
    await copy();
    void copied.mesh.remove('a');
    await advance(copied.clock, 60_000);
    await copied.stop();
    expect(copied.copy()).toHaveProperty([IP]);
  });
});

describe('its readiness', () => {
  it('does not exist before the first cluster was added, and does not stay missing', async () => {
    expect(copied.mesh.isReady).toBe(false);
    copied.add();
    copied.mesh.markAllAdded();
    expect(copied.mesh.status().ready).toBe(false);
    await settle(12);
    expect(copied.mesh.isReady).toBe(true);
  });

  it('waits for all clusters, except those not connected after 15 s', async () => {
    void copied.mesh.add('b', () => new Promise(() => {}));
    copied.add();
    copied.mesh.markAllAdded();
    expect(copied.mesh.isReady).toBe(false);
    await settle(12);
    expect(copied.mesh.isReady).toBe(false);
    await advance(copied.clock, 15_000);
    expect(copied.mesh.isReady).toBe(true);
  });

  it('waits at most ten minutes for a cluster that is connected and incomplete', async () => {
    write(copied.remote, 'cilium/synced/a/cilium/state/ip/v1', undefined);
    copied.add();
    copied.mesh.markAllAdded();
    await advance(copied.clock, 599_000);
    expect(copied.mesh.isReady).toBe(false);
    await advance(copied.clock, 1_000);
    expect(copied.mesh.isReady).toBe(true);
  });
});

describe('its problems', () => {
  it('name two clusters with one id, and one with the local id, which are copied nevertheless', async () => {
    copied.add();
    await settle(8);
    for (const [name, id] of [
      ['b', 1],
      ['c', 9],
    ] as const)
      copied.add(name, newCluster(copied.clock, name, id));
    await settle(20);
    expect(copied.mesh.status().problems).toEqual([
      'cluster b has id 1, the same as cluster a: agents follow only one of them',
      'cluster c has id 9, the same as this cluster (own): agents follow only one of them',
    ]);
    expect(Object.keys(copied.copy('cilium/cluster-config/'))).toHaveLength(3);
  });

  it('name a cluster with the local id, also if that is published after the start (regression: silent)', async () => {
    await copied.restart({ clusterID: undefined });
    copied.add();
    await settle(20);
    expect(copied.mesh.status().problems).toEqual([]);
    const problem = 'cluster a has id 1, the same as this cluster (own): agents follow only one of them';
    for (const [value, problems] of [
      ['{"id":1,"capabilities":{}}', [problem]],
      ['{"id":', [problem]],
      [undefined, [problem]],
      ['{"id":2,"capabilities":{}}', []],
    ] as const) {
      write(copied.local, 'cilium/cluster-config/own', value);
      await settle(8);
      expect(copied.mesh.status().problems).toEqual(problems);
    }
  });

  it('report that the local kvstore rejects keys, until it accepts them', async () => {
    await copy();
    let isFull = true;
    copied.onWrite((keys) => {
      if (isFull && keys.some((key) => key.startsWith('cilium/cache/ip/')))
        throw new KvstoreError('overloaded', 'etcdserver: mvcc: database space exceeded');
    });
    writeIP(copied.remote, '10.0.0.2', 0x1_0100);
    await advance(copied.clock, 10_000);
    expect(copied.mesh.status().problems).toEqual([
      'cannot write the copy of cluster a to the kvstore of this cluster: 1 key is pending: etcdserver: mvcc: database space exceeded',
    ]);
    isFull = false;
    await advance(copied.clock, 60_000);
    expect(copied.mesh.status().problems).toEqual([]);
    expect(copied.copy()).toHaveProperty(['cilium/cache/ip/v1/a/10.0.0.2']);
    // A pending write without a new failure (regression: the old failure was named).
    copied.backend.link.blackHole();
    writeIP(copied.remote, '10.0.0.3', 0x1_0100);
    await settle(8);
    expect(statusOf('a').copy.pending).toBe(1);
    expect(copied.mesh.status().problems).toEqual([]);
    copied.backend.link.up();
  });
});
