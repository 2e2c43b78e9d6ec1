import { describe, expect, it } from 'vitest';
import { RejectionLog, rejection } from '../src/base/rejection.ts';
import { ConfigFollower } from '../src/clustermesh/config-follower.ts';
import { LocalCluster } from '../src/clustermesh/local-cluster.ts';
import { ClusterMesh } from '../src/index.ts';
import { IPCache } from '../src/ipcache/ipcache.ts';
import { GarbageCollector } from '../src/kvstore/gc/garbage-collector.ts';
import { FaultyMemoryBackend } from '../src/kvstore/memory/faulty-memory-backend.ts';
import { Heartbeat, KvstoreHealth } from '../src/kvstore/session/health.ts';
import { SharedStore } from '../src/kvstore/stores/shared-store.ts';
import { SyncStore } from '../src/kvstore/stores/sync-store.ts';
import { WatchStore } from '../src/kvstore/stores/watch-store.ts';
import { NodeManager } from '../src/nodemanager/node-manager.ts';
import { ServiceCache } from '../src/servicecache/service-cache.ts';
import { ManualClock, WALL_TIME_AT_0 } from './base/support/manual-clock.ts';
import { advance } from './kvstore/support/settle.ts';

/**
 * Returns the paths of values that JSON would drop or change: anything but plain objects, arrays, texts,
 * finite numbers, booleans.
 */
function notPlain(value: unknown, path: string): readonly string[] {
  if (value === undefined || value === null || typeof value === 'string' || typeof value === 'boolean')
    return [];
  if (typeof value === 'number') return Number.isFinite(value) ? [] : [`${path}: ${value}`];
  if (typeof value !== 'object') return [`${path}: a ${typeof value}`];
  const prototype: unknown = Object.getPrototypeOf(value);
  if (prototype !== Object.prototype && prototype !== Array.prototype)
    return [`${path}: a ${value.constructor.name}`];
  return Object.entries(value).flatMap(([key, field]) => notPlain(field, `${path}.${key}`));
}

function expectPlain(name: string, status: unknown): void {
  expect(notPlain(status, name)).toEqual([]);
  expect(JSON.parse(JSON.stringify(status))).toEqual(status);
}

const random = (): number => 0.5;

describe('status() is plain data that survives JSON, even after many failures:', () => {
  it('engines', () => {
    const ipcache = new IPCache();
    ipcache.upsert('10.0.0.0/8', { identity: 300, source: 'k8s' });
    ipcache.upsert('bad', { identity: 1, source: 'k8s' });
    ipcache.upsert('10.1.0.1', { identity: 1000, source: 'local' });
    const nodes = new NodeManager({
      ipcache,
      random,
      clock: new ManualClock(),
      clusterName: 'a',
      nodeName: 'n',
    });
    const failing = (): never => {
      throw new TypeError('no route');
    };
    nodes.subscribe({
      nodeAdd: failing,
      nodeUpdate: failing,
      nodeDelete: failing,
      nodeConfigurationChanged: failing,
    });
    nodes.subscribe({ nodeAdd: failing, nodeUpdate: failing, nodeDelete: failing });
    nodes.nodeUpdated({ name: 'x', cluster: 'a', source: 'k8s' });
    const addresses = [{ type: 'CiliumInternalIP', ip: '10.1.0.1' }];
    nodes.nodeUpdated({ name: 'y', cluster: 'a', source: 'local', addresses });
    nodes.nodeUpdated({ name: '', cluster: 'a', source: 'k8s' });
    const services = new ServiceCache({ clusterName: 'a' });
    services.mergeExternalServiceDelete({ cluster: 'a', namespace: 'shop', name: 'cart' });

    const status = nodes.status();
    expect(status.handlers.map(({ failing: [first] }) => first?.error)).toEqual([
      { code: 'TypeError', message: 'no route', at: WALL_TIME_AT_0 },
      { code: 'TypeError', message: 'no route', at: WALL_TIME_AT_0 },
    ]);
    expect(status.lostAddresses).toMatchObject({ 'a/y': [{ ip: '10.1.0.1' }] });
    expect(ipcache.status()).toMatchObject({
      maxEntries: 'unlimited',
      entriesBySource: { k8s: 1, local: 1 },
    });
    expectPlain('ipcache', ipcache.status());
    expectPlain('nodes', status);
    expectPlain('services', services.status());
    expectPlain('full ipcache', new IPCache({ maxEntries: 0 }).status());
  });

  it('stores and the tasks of a kvstore', async () => {
    const clock = new ManualClock();
    const backend = new FaultyMemoryBackend({ clock, random });
    backend.link.down();
    const ended = new AbortController();
    const { signal } = ended;
    const rejections = new RejectionLog();
    rejections.add(rejection('__proto__', 'value', {}, 'is hostile'));
    const common = { backend, prefix: 'p/', clock, random, rejections };
    const decode = () => ({ ok: true, value: 1 }) as const;
    const observer = { onUpdate: (): void => {}, onDelete: (): void => {} };
    const watch = new WatchStore({ decode, observer, rejections });
    const sync = new SyncStore(common);
    const shared = new SharedStore({ ...common, decode, observer });
    const collection = { list: () => backend.get('p/x').then(() => new Map()), remove: async () => true };
    const collector = new GarbageCollector({ collection, clock, intervalMs: 1000 });
    const heartbeat = new Heartbeat({ backend, clock });
    const health = new KvstoreHealth({ backend, clock });
    const running = [
      watch.run({ backend, prefix: 'p/', signal }),
      ...[sync, shared, collector, heartbeat, health].map((task) => task.run(signal)),
    ];
    sync.upsert('a', new Uint8Array());
    shared.local.upsert('b', new Uint8Array());
    await advance(clock, 30_000);

    for (const status of [collector.status(), heartbeat.status(), health.status(), sync.status()]) {
      expect(status.lastFailure).toMatchObject({ code: 'unavailable' });
    }
    expect(watch.status().watch?.lastFailure).toMatchObject({ code: 'unavailable' });
    for (const each of [backend, watch, sync, shared, collector, heartbeat, health, rejections]) {
      expectPlain(each.constructor.name, each.status());
    }
    ended.abort();
    await Promise.all([...running, backend.close()]);
  });

  it('the mesh, the local cluster and the folder of configurations', async () => {
    const clock = new ManualClock();
    const ipcache = new IPCache();
    const backend = new FaultyMemoryBackend({ clock, random });
    const engines = { ipcache, remoteNodeIdentities: true };
    const own = new LocalCluster({ ...engines, clusterName: 'own', backend });
    const mesh = new ClusterMesh({ ...engines, clusterName: 'own', clusterID: 1, clock, random });
    const list = (): Promise<never> => Promise.reject(new Error('no such folder'));
    const folder = new ConfigFollower({ source: { list, watch: () => never }, mesh, clock });
    own.start();
    backend.link.down();
    await mesh.add('far', () => backend);
    await folder.start();
    await advance(clock, 30_000);

    expect(folder.status().problems).toEqual({ '': 'no such folder' });
    expect(mesh.status().clusters[0]?.lastFailure).toBeDefined();
    expect(own.status().resources.ip).toMatchObject({ synced: false });
    for (const status of [own.status(), mesh.status(), folder.status()]) expectPlain('status', status);
    await Promise.all([folder.stop(), mesh.stop(), own.stop()]);
  });
});

const never = Object.assign(() => {}, { [Symbol.dispose]: () => {} });
