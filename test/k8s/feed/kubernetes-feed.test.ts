import { describe, expect, it } from 'vitest';
import { IPCache } from '../../../src/ipcache/ipcache.ts';
import type { FedIPCache } from '../../../src/k8s/feed/address-holders.ts';
import { FakeCluster } from './support/fake-cluster.ts';
import { FeedWorld } from './support/feed-world.ts';
import {
  ciliumEndpoint,
  ciliumEndpointSlice,
  endpointSlice,
  pod,
  service,
  sliced,
} from './support/objects.ts';
import { RecordingMetadata } from './support/recording-metadata.ts';

function selectors(world: FeedWorld): readonly string[] {
  return world.cluster.followers.map(({ kind }) => {
    const { group, version, plural, labelSelector = '-', fieldSelector = '-' } = kind;
    return `${group === '' ? '' : `${group}/`}${version}/${plural} ${labelSelector} ${fieldSelector}`;
  });
}

describe('a feed of Kubernetes', () => {
  it('reports the kind and the version of each object before it is applied, and the end of each batch', async () => {
    const ipcache = new IPCache();
    const log: unknown[] = [];
    ipcache.observeClaims((_key, _writer, _before, after) => log.push([after?.identity]));
    const world = new FeedWorld({
      ipcache,
      onCause: (cause) => log.push(cause && `${cause.kind} ${cause.revision}`),
    });
    await world.started();
    log.length = 0;
    world.cluster.put('ciliumendpoints', ciliumEndpoint('a', { ips: ['10.1.0.1'], identity: 77 }));
    await Promise.resolve();
    expect(log).toEqual([expect.stringMatching(/^CiliumEndpoint \S+$/), [77], undefined]);
  });

  it('requests the kinds that it needs, with these selectors', async () => {
    const world = await new FeedWorld({ metadata: new RecordingMetadata(), onLabels: () => {} }).started();
    expect([...selectors(world)].sort()).toEqual([
      'cilium.io/v2/ciliumcidrgroups - -',
      'cilium.io/v2/ciliumclusterwidenetworkpolicies - -',
      'cilium.io/v2/ciliumendpoints - -',
      'cilium.io/v2/ciliumidentities - -',
      'cilium.io/v2/ciliumnetworkpolicies - -',
      'cilium.io/v2/ciliumnodes - -',
      'discovery.k8s.io/v1/endpointslices !service.kubernetes.io/headless,endpointslice.kubernetes.io/managed-by!=endpointslice-mesh-controller.cilium.io -',
      'networking.k8s.io/v1/networkpolicies - -',
      'v1/namespaces - -',
      'v1/nodes - metadata.name=n1',
      'v1/pods - spec.nodeName=n1',
      'v1/services !service.kubernetes.io/headless,!service.kubernetes.io/service-proxy-name -',
    ]);
  });

  it('requests headless services and those of a proxy if configured (K 14)', async () => {
    const selection = { headless: true, proxyName: 'mine' };
    const world = await new FeedWorld({ selection }).started();
    expect(selectors(world).filter((line) => line.includes('serv'))).toEqual([
      'v1/services service.kubernetes.io/service-proxy-name=mine -',
    ]);
    expect(selectors(world).filter((line) => line.includes('slices'))).toEqual([
      'discovery.k8s.io/v1/endpointslices endpointslice.kubernetes.io/managed-by!=endpointslice-mesh-controller.cilium.io -',
    ]);
  });

  it('requests nothing for an engine that is not used', async () => {
    const world = await new FeedWorld({
      ipcache: undefined,
      services: undefined,
      nodes: undefined,
      identities: 'none',
    }).started();
    expect(selectors(world)).toEqual([]);
    expect(world.feed.synced).toBe(true);
  });

  it('is synced when everything has been applied, except for the local Node (K 55)', async () => {
    const world = new FeedWorld();
    expect(world.feed.synced).toBe(false);
    world.feed.start();
    await Promise.resolve();
    const before = [...world.feed.names].sort();
    expect(before).toEqual([
      'ciliumendpoints',
      'ciliumidentities',
      'ciliumnodes',
      'endpointslices',
      'pods',
      'services',
    ]);
    const seen: string[] = [];
    const off = world.feed.onChange((name) => seen.push(name));
    for (const name of before) {
      expect(world.feed.synced).toBe(false);
      expect(world.feed.blockers()).toContain(`Kubernetes: ${name} are not complete (listing)`);
      world.cluster.list(name);
      expect(world.feed.progressOf(name)?.synced).toBe(true);
    }
    expect(world.feed.synced).toBe(true);
    expect(new Set(seen)).toEqual(new Set(before));
    off();
    const heard = seen.length;
    world.cluster.followers.find(({ kind }) => kind.plural === 'pods')?.say('waiting');
    expect(seen).toHaveLength(heard);
    expect(world.feed.progressOf('nodes')).toBeUndefined();
    expect(world.feed.progressOf('nothing')).toBeUndefined();
    expect(world.feed.progressOf('pods')).toMatchObject({ synced: true, settled: false });
  });

  it('does not wait for kinds that the API server does not serve, and reports them', async () => {
    const world = new FeedWorld();
    for (const plural of ['ciliumnodes', 'ciliumidentities']) world.cluster.missing.add(plural);
    await world.started();
    expect(world.feed.synced).toBe(true);
    expect(world.feed.progressOf('ciliumnodes')).toMatchObject({ synced: false, settled: true });
    const kind = world.feed.status().kinds.find(({ name }) => name === 'ciliumnodes');
    expect(kind).toMatchObject({ state: 'missing', complete: false, objects: 0 });
  });

  it('is started once', async () => {
    const world = await new FeedWorld().started();
    const before = world.cluster.followers.length;
    await world.started();
    expect(world.cluster.followers).toHaveLength(before);
  });

  it('writes nothing if objects are equal under another version (K 10)', async () => {
    const cache = new IPCache();
    const written: unknown[] = [];
    const ipcache: FedIPCache = {
      upsert: (...what) => {
        written.push(what[0]);
        return cache.upsert(...what);
      },
      delete: (...what) => {
        written.push(what[0]);
        return cache.delete(...what);
      },
      batch: (changes) => cache.batch(changes),
    };
    for (const endpoints of ['ciliumendpoints', 'ciliumendpointslices'] as const) {
      const world = await new FeedWorld({ ipcache, endpoints, nodes: undefined }).started();
      const put = (): void => {
        world.cluster.put('pods', pod('web', { labels: { app: 'web' } }));
        world.cluster.put('pods', pod('done', { phase: 'Succeeded' }));
        world.cluster.put('ciliumendpoints', ciliumEndpoint('web', { ips: ['10.1.0.11'] }));
        world.cluster.put(
          'ciliumendpointslices',
          ciliumEndpointSlice('s', [sliced('web', { ips: ['10.1.0.12'] })]),
        );
      };
      put();
      const other = endpoints === 'ciliumendpoints' ? '10.1.0.11' : '10.1.0.12';
      expect(written.splice(0)).toEqual(['10.1.0.10', other]);
      put();
      expect(written.splice(0)).toEqual([]);
    }
  });

  it('has a progress deadline: each batch counts (K 55)', async () => {
    const world = await new FeedWorld().started();
    world.clock.advance(1_000);
    world.cluster.put('ciliumendpoints', ciliumEndpoint('web'));
    expect(world.feed.progressOf('ciliumendpoints')?.progressAt).toBe(1_000);
    expect(world.feed.progressOf('ciliumnodes')?.progressAt).toBe(0);
  });

  it('hands nothing over after it is stopped, and the engines keep their state', async () => {
    const world = await new FeedWorld().started();
    world.cluster.put('ciliumendpoints', ciliumEndpoint('web'));
    await world.feed.stop();
    world.cluster.delete('ciliumendpoints', 'web', 'shop');
    expect(world.at('10.1.0.10')).toBeDefined();
    expect(world.cluster.following).toEqual([]);
  });

  it('follows other slices if the API server serves another version of them (K 13)', async () => {
    const world = new FeedWorld();
    world.cluster.missing.add('endpointslices/v1');
    await world.started();
    world.cluster.put('services', service('checkout'));
    world.cluster.put('endpointslices', endpointSlice('s1', 'checkout', ['10.1.0.1']));
    world.cluster.missing.delete('endpointslices/v1');
    world.cluster.followers.find(({ kind }) => kind.plural === 'endpointslices')?.say('missing');
    for (let tick = 0; tick < 4; tick++) await Promise.resolve();
    world.cluster.settle();
    expect(selectors(world).at(-1)).toContain('discovery.k8s.io/v1/endpointslices');
    const found = world.services.get({ namespace: 'shop', name: 'checkout' });
    expect([...(found?.endpoints.backends.keys() ?? [])]).toEqual(['10.1.0.1']);
  });

  class Unreachable extends FakeCluster {
    down = true;
    asked = 0;
    override firstServed(
      ...args: Parameters<FakeCluster['firstServed']>
    ): ReturnType<FakeCluster['firstServed']> {
      this.asked++;
      return this.down ? Promise.reject(new Error('refused')) : super.firstServed(...args);
    }
  }

  it('sends one discovery request at a time, also if a followed kind is no longer served (regression: each failure sent two)', async () => {
    const cluster = new Unreachable();
    cluster.down = false;
    const world = await new FeedWorld({ random: () => 1 }, cluster).started();
    cluster.down = true;
    cluster.asked = 0;
    cluster.followers.find(({ kind }) => kind.plural === 'endpointslices')?.say('missing');
    for (let second = 0; second < 60; second++) {
      world.clock.advance(1_000);
      for (let tick = 0; tick < 8; tick++) await Promise.resolve();
    }
    // After 0, 0.8, 2.4, 5.6, 12, 24.8 and 50.4 s.
    expect(cluster.asked).toBe(7);
    await world.feed.stop();
  });

  it('retries while the API server cannot answer discovery', async () => {
    const cluster = new Unreachable();
    const world = await new FeedWorld({ random: () => 1 }, cluster).started();
    expect(world.feed.blockers()).toEqual(['Kubernetes: endpointslices are not complete (listing): refused']);
    cluster.down = false;
    for (let tick = 0; tick < 4; tick++) await Promise.resolve();
    world.clock.advance(800);
    for (let tick = 0; tick < 8; tick++) await Promise.resolve();
    world.cluster.settle();
    expect(world.feed.synced).toBe(true);
  });
});
