import { describe, expect, it, onTestFinished } from 'vitest';
import { ClusterMesh } from '../../src/clustermesh/cluster-mesh.ts';
import { bytesOfText } from '../../src/kvstore/codec/bytes.ts';
import { encodeClusterConfig } from '../../src/kvstore/codec/cluster-config.ts';
import { clusterConfigKey, syncedKey } from '../../src/kvstore/codec/keys.ts';
import { MemoryBackend } from '../../src/kvstore/memory/memory-backend.ts';
import { MemoryServer } from '../../src/kvstore/memory/memory-server.ts';
import {
  ClusterPublisher,
  type PublishedServiceExport,
} from '../../src/operator/publish/cluster-publisher.ts';
import { ManualClock } from '../base/support/manual-clock.ts';
import { advance, settle } from '../kvstore/support/settle.ts';

const random = (): number => 0.5;

/** A cluster `a`, and a mesh that reads only its service exports. */
class World {
  readonly clock: ManualClock = new ManualClock();
  readonly server: MemoryServer = new MemoryServer({ clock: this.clock });
  readonly backend: MemoryBackend = new MemoryBackend({ clock: this.clock, random, server: this.server });
  readonly exports: Map<string, string> = new Map();
  /** Ends the publishers, which would restore the configuration. */
  readonly ended: AbortController = new AbortController();
  readonly mesh: ClusterMesh;

  constructor(serviceTTLMs?: number) {
    this.mesh = new ClusterMesh({
      clusterName: 'own',
      clusterID: 9,
      clock: this.clock,
      random,
      identities: false,
      serviceTTLMs,
      exports: {
        exportUpdated: ({ cluster, name, type }) => this.exports.set(`${cluster}/${name}`, type),
        exportDeleted: ({ cluster, name }) => this.exports.delete(`${cluster}/${name}`),
      },
    });
    onTestFinished(() => this.mesh.stop());
  }

  publisher(serviceExports: boolean): ClusterPublisher {
    const options = { clusterName: 'a', clusterID: 1, backend: this.backend, serviceExports, random };
    const publisher = new ClusterPublisher({ ...options, clock: this.clock });
    const running = publisher.run(this.ended.signal);
    onTestFinished(async () => {
      this.ended.abort();
      await running;
    });
    void publisher.markSynced();
    return publisher;
  }

  configure(serviceExportsEnabled?: boolean): Promise<unknown> {
    const capabilities = {
      syncedCanaries: true,
      cached: false,
      ...(serviceExportsEnabled !== undefined && { serviceExportsEnabled }),
    };
    return this.backend.update(clusterConfigKey('a'), encodeClusterConfig({ id: 1, capabilities }));
  }

  async follow(): Promise<void> {
    await this.mesh.add('a', () => new MemoryBackend({ clock: this.clock, random, server: this.server }));
    await advance(this.clock, 5000);
  }

  get synced(): boolean | undefined {
    return this.mesh.progressOf('a')?.synced;
  }
}

const EXPORT: PublishedServiceExport = {
  namespace: 'shop',
  name: 'cart',
  annotations: new Map(),
  labels: new Map(),
  createdAt: 0,
  ports: [],
  type: 'Headless',
  ipFamilies: [],
};

describe('the service exports of a cluster', () => {
  it('are read as its publisher writes them, and nothing else is', async () => {
    const world = new World();
    const publisher = world.publisher(true);
    publisher.upsertServiceExport(EXPORT);
    await settle();
    await world.follow();
    expect([...world.exports]).toEqual([['a/cart', 'Headless']]);
    expect(Object.keys(world.mesh.statusOf('a')?.resources ?? {})).toEqual(['serviceexports']);
    expect(world.synced).toBe(true);
    expect(world.mesh.status().ready).toBe(true);
    publisher.deleteServiceExport(EXPORT);
    await advance(world.clock, 5000);
    expect(world.exports.size).toBe(0);
  });

  it.each([undefined, false])('are not awaited if its capability is %s', async (enabled) => {
    const world = new World();
    await world.configure(enabled);
    await world.follow();
    expect(world.synced).toBe(true);
    await world.mesh.synced();
    expect(world.mesh.status().ready).toBe(true);
  });

  it('are awaited until its canary exists if it has the capability', async () => {
    const world = new World();
    await world.configure(true);
    await world.follow();
    expect(world.synced).toBe(false);
    await world.backend.update(syncedKey('a', 'serviceexports'), bytesOfText('now'));
    await advance(world.clock, 5000);
    expect(world.synced).toBe(true);
  });

  it('stay while its kvstore is lost, and go when it no longer exports any', async () => {
    const world = new World();
    const publisher = world.publisher(true);
    publisher.upsertServiceExport(EXPORT);
    await world.follow();
    world.ended.abort();
    await world.backend.delete(clusterConfigKey('a'));
    await advance(world.clock, 100);
    expect([...world.exports.keys()]).toEqual(['a/cart']);
    await world.configure(false);
    await advance(world.clock, 60_000);
    expect(world.exports.size).toBe(0);
    expect(world.synced).toBe(true);
  });

  it('that have expired return with the configuration, not before (regression: at once)', async () => {
    const world = new World(60_000);
    const publisher = world.publisher(true);
    publisher.upsertServiceExport(EXPORT);
    await world.follow();
    world.ended.abort();
    await world.backend.delete(clusterConfigKey('a'));
    await advance(world.clock, 50_000);
    expect([...world.exports.keys()]).toEqual(['a/cart']);
    await advance(world.clock, 60_000);
    expect(world.mesh.statusOf('a')).toMatchObject({ servicesExpired: true });
    expect(world.exports.size).toBe(0);
    await world.configure(true);
    await advance(world.clock, 60_000);
    expect([...world.exports.keys()]).toEqual(['a/cart']);
  });

  it('are published only if that is switched on', () => {
    expect(() => new World().publisher(false).upsertServiceExport(EXPORT)).toThrow(
      'the option serviceExports must be true',
    );
  });
});
