import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { IdentityResolver, type RestoredIdentities } from '../../src/clustermesh/identity-resolver.ts';
import { MemoryServer } from '../../src/kvstore/memory/memory-server.ts';
import { type ClusterIdentity, IdentityCache } from '../../src/model/identity-cache.ts';
import { formatLabels, parseLabels } from '../../src/model/labels.ts';
import { isNumericIdentity, type NumericIdentity } from '../../src/model/numeric-identity.ts';
import { ManualClock } from '../base/support/manual-clock.ts';
import { advance, settle } from '../kvstore/support/settle.ts';
import { Agent, newCluster, OWN, write } from './support/mesh-world.ts';

function cacheOf(identities: Readonly<Record<number, string>>): IdentityCache {
  const cache = new IdentityCache();
  for (const [id, app] of Object.entries(identities).map(([id, app]) => [Number(id), app] as const)) {
    if (isNumericIdentity(id)) cache.upsert(id, parseLabels(`k8s:app=${app};`) ?? []);
  }
  return cache;
}

const NAMED = { names: ['own'] };

function meshOf(identitiesFor: (clusterID: number) => readonly IdentityCache[]) {
  return { names: [], identitiesOf: () => undefined, identitiesFor };
}

describe('an identity resolver', () => {
  it('returns the labels that the cluster of the number assigns to it, and no other', () => {
    const number = fc
      .integer({ min: 0, max: 5 })
      .chain((cluster) => fc.tuple(fc.constant(cluster), fc.integer({ min: 254, max: 260 })));
    fc.assert(
      fc.property(
        fc.constantFrom(255 as const, 511 as const),
        // For each cluster, its identities, which may belong to other clusters.
        fc.array(fc.array(number, { maxLength: 6 }), { minLength: 6, maxLength: 6 }),
        fc.array(number, { minLength: 1 }),
        (maxConnectedClusters, said, asked) => {
          const size = maxConnectedClusters === 255 ? 65_536 : 32_768;
          const identityOf = ([cluster, low]: readonly [number, number]): number => cluster * size + low;
          const caches = said.map((numbers, cluster) =>
            cacheOf(Object.fromEntries(numbers.map((each) => [identityOf(each), `by-${cluster}`]))),
          );
          const resolver = new IdentityResolver({
            local: { ...NAMED, identities: caches[1] ?? expect.fail(), clusterID: 1 },
            mesh: meshOf((id) => caches.slice(id, id + 1)),
            maxConnectedClusters,
          });
          for (const each of asked) {
            const [cluster, low] = each;
            const known = said[cluster]?.some((other) => identityOf(other) === identityOf(each)) === true;
            const labels = resolver.resolve(identityOf(each));
            if (cluster === 0 && low < 256) expect(labels).toBeUndefined();
            else expect(labels && formatLabels(labels)).toBe(known ? `k8s:app=by-${cluster};` : undefined);
          }
        },
      ),
    );
  });

  it('resolves reserved identities by name, and no node-local ones', () => {
    const nothing = { ...NAMED, identities: new IdentityCache(), clusterID: 0 };
    const resolver = new IdentityResolver({ local: nothing, mesh: meshOf(() => []) });
    expect(resolver.resolve(1)).toEqual([{ source: 'reserved', key: 'host', value: '' }]);
    for (const number of [200, 1 << 24, (1 << 24) + 300, (2 << 24) + 300, -1, 1.5, 2 ** 32])
      expect(resolver.resolve(number)).toBeUndefined();
  });

  it('resolves the first allocated identity in a cluster without an id', () => {
    const own = { ...NAMED, identities: cacheOf({ 255: 'none', 256: 'first' }), clusterID: 0 };
    const resolver = new IdentityResolver({ local: own, mesh: meshOf(() => []) });
    expect([255, 256].map((identity) => resolver.resolve(identity)?.[0]?.value)).toEqual([
      undefined,
      'first',
    ]);
  });

  it('resolves identities of a mesh without a local cluster, and of a local cluster without a mesh', () => {
    const cache = cacheOf({ 256: 'own', 65792: 'a' });
    const ofMesh = new IdentityResolver({ mesh: meshOf(() => [cache]) });
    const ofLocal = new IdentityResolver({ local: { ...NAMED, identities: cache, clusterID: 1 } });
    const appOf = (resolver: IdentityResolver, identity: number) => resolver.resolve(identity)?.[0]?.value;
    expect([256, 65_792].map((identity) => appOf(ofMesh, identity))).toEqual(['own', 'a']);
    expect([256, 65_792].map((identity) => appOf(ofLocal, identity))).toEqual([undefined, 'a']);
  });

  it('queries all clusters with the id of the number, and none for node-local identities', () => {
    const own = { ...NAMED, identities: new IdentityCache(), clusterID: 1 };
    const caches = [cacheOf({}), cacheOf({ 131584: 'b', 16908800: 'local' })];
    const resolver = new IdentityResolver({ local: own, mesh: meshOf(() => caches) });
    expect(resolver.resolve(0x2_0200)?.[0]?.value).toBe('b');
    expect(resolver.resolve(0x102_0200)).toBeUndefined();
  });

  it('follows a mesh: clusters that join, change their id, have no id because of their age, and leave', async () => {
    const clock = new ManualClock();
    const agent = new Agent(clock);
    const say = (server: MemoryServer, id: number, app: string): void =>
      write(server, `cilium/state/identities/v1/id/${id}`, `k8s:app=${app};`);
    const own = newCluster(clock, OWN, 9);
    const [a, b] = [newCluster(clock, 'a', 1), newCluster(clock, 'b', 2)];
    const old = new MemoryServer({ clock, clusterID: 'old' });
    say(own, 0x9_0200, 'mine');
    say(a, 0x1_0200, 'a');
    say(b, 0x2_0200, 'b');
    say(old, 0x7_0200, 'old');
    const resolver = new IdentityResolver({
      local: agent.followOwnOn(agent.connect(OWN, own)),
      mesh: agent.mesh,
    });
    for (const [name, server] of Object.entries({ a, b, old })) await agent.add(name, server);
    await settle(20);
    const names = (): readonly (string | undefined)[] =>
      [0x9_0200, 0x1_0200, 0x2_0200, 0x7_0200].map((id) => resolver.resolve(id)?.[0]?.value);
    expect(names()).toEqual(['mine', 'a', 'b', 'old']);
    await agent.mesh.remove('a');
    expect(names()).toEqual(['mine', undefined, 'b', 'old']);
    await agent.mesh.remove('b');
    const next = newCluster(clock, 'c', 1);
    say(next, 0x1_0200, 'c');
    await agent.add('c', next);
    await settle(20);
    expect(names()).toEqual(['mine', 'c', undefined, 'old']);
    await agent.stop();
  });

  it('resolves own identities once the configuration of the local cluster is read (regression: only after a restart)', async () => {
    const clock = new ManualClock();
    const agent = new Agent(clock);
    const server = new MemoryServer({ clock, clusterID: OWN });
    const own = agent.followOwnOn(agent.connect(OWN, server));
    const resolver = new IdentityResolver({ local: own, mesh: agent.mesh });
    await settle(20);
    write(server, 'cilium/state/identities/v1/id/590336', 'k8s:app=mine;');
    write(server, `cilium/cluster-config/${OWN}`, '{"id":9,"capabilities":{"syncedCanaries":false}}');
    await advance(clock, 60_000);
    expect(resolver.resolve(0x9_0200)?.[0]?.value).toBe('mine');
    await agent.stop();
  });

  describe('with several clusters and a checkpoint', () => {
    const local = { ...NAMED, identities: cacheOf({ 65792: 'own' }), clusterID: 1 };
    const caches = new Map([
      ['a', cacheOf({ 131328: 'a', 131329: 'a2' })],
      ['b', cacheOf({ 196864: 'b' })],
    ]);
    const mesh = {
      get names() {
        return ['leaving', ...caches.keys()];
      },
      identitiesOf: (name: string) => caches.get(name),
      identitiesFor: (id: number) => [caches.get(id === 2 ? 'a' : 'b') ?? expect.fail()],
    };
    const restoredOf = (...known: readonly ClusterIdentity[]): RestoredIdentities => ({
      clusters: known.map(({ cluster }) => cluster),
      identities: () => known,
      labelsOf: (number) => known.find(({ identity }) => identity === number)?.labels,
    });
    const known = (cluster: string, identity: number, app: string): ClusterIdentity => {
      return { cluster, identity, labels: parseLabels(`k8s:app=${app};`) ?? [] };
    };
    const all = [
      known('own', 65_792, 'own'),
      known('a', 131_328, 'a'),
      known('a', 131_329, 'a2'),
      known('b', 196_864, 'b'),
    ];

    it('yields the identities of all clusters, the local one first, and no reserved ones', () => {
      expect([...new IdentityResolver({ local, mesh }).entries()]).toEqual(all);
      expect([...new IdentityResolver({ local }).entries()]).toEqual(all.slice(0, 1));
      expect([...new IdentityResolver({ mesh }).entries()]).toEqual(all.slice(1));
      expect([...new IdentityResolver({}).entries()]).toEqual([]);
    });

    it('resolves and yields restored identities until a cluster has them', () => {
      const restored = restoredOf(known('a', 131_328, 'old'), known('a', 131_400, 'kept'));
      const resolver = new IdentityResolver({ local, mesh, restored });
      const appOf = (identity: number) => resolver.resolve(identity)?.[0]?.value;
      expect([131_328, 131_400, 131_401, 1].map(appOf)).toEqual(['a', 'kept', undefined, '']);
      expect([...resolver.entries()]).toEqual([...all, known('a', 131_400, 'kept')]);
    });

    it('has another version after a change of an identity, of the clusters, or of the restored clusters', () => {
      const versionWith = (...known: readonly ClusterIdentity[]): string =>
        new IdentityResolver({ local, mesh, restored: restoredOf(...known) }).version;
      const versions = [versionWith(), versionWith(known('a', 131_400, 'kept'))];
      caches.get('b')?.upsert(196_865 as NumericIdentity, []);
      versions.push(versionWith());
      local.identities.upsert(65_793 as NumericIdentity, []);
      versions.push(versionWith());
      caches.set('c', new IdentityCache());
      versions.push(versionWith());
      expect(new Set(versions).size).toBe(5);
      expect(versionWith()).toBe(versions.at(-1));
    });
  });
});
