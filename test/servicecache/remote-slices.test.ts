import fc from 'fast-check';
import { Map as ImmutableMap } from 'immutable';
import { describe, expect, it, vi } from 'vitest';
import { type ClusterEndpointSlice, SERVICE_NAME_LABEL } from '../../src/model/cluster-endpoint-slice.ts';
import { createBackend, type EndpointSlice, NO_BACKENDS } from '../../src/servicecache/backend.ts';
import { applyOriginChange, NO_CORRELATION } from '../../src/servicecache/correlation.ts';
import type { Origin, OriginChange, Origins } from '../../src/servicecache/origin-index.ts';
import type { ServiceCache } from '../../src/servicecache/service-cache.ts';
import {
  emptyState,
  type ServiceState,
  withRemoteSlice,
  withService,
  withSlice,
  withWholeOffer,
} from '../../src/servicecache/service-state.ts';
import { fewerRuns } from '../base/support/fewer-runs.ts';
import { cacheOf, offer, SHOP, service, slice, transcript } from './support/scene.ts';

const TCP = 6;

/** A slice of cluster `east` for the service `shop/checkout`. */
function remote(
  name: string,
  ips: readonly string[],
  fields: Partial<ClusterEndpointSlice> = {},
): ClusterEndpointSlice {
  return {
    cluster: 'east',
    clusterID: 2,
    namespace: SHOP.namespace,
    name,
    addressType: 'IPv4',
    labels: new Map([[SERVICE_NAME_LABEL, SHOP.name]]),
    annotations: new Map(),
    endpoints: ips.map((ip) => ({
      addresses: [ip],
      conditions: { ready: true },
      nodeName: `node-of-${name}`,
      forZones: [],
      deprecatedTopology: new Map(),
    })),
    ports: [{ name: 'http', port: 8080, protocol: TCP }],
    ...fields,
  };
}

function withGlobalService(publishNotReady = false): ServiceCache {
  const cache = cacheOf();
  cache.updateService(service({ global: true, publishNotReady }));
  cache.markSynced();
  return cache;
}

const backendsOf = (cache: ServiceCache): Readonly<Record<string, unknown>> =>
  cache.get(SHOP)?.endpoints.backends.toObject() ?? {};

describe('slices of a remote cluster', () => {
  it('have no backend for the placeholder of an ingress', () => {
    const cache = withGlobalService();
    const ports = [{ name: '', port: 9999, protocol: TCP }];
    cache.mergeExternalSliceUpdate(remote('cilium-ingress-x', ['192.192.192.192', '10.1.0.1'], { ports }));
    expect(Object.keys(backendsOf(cache))).toEqual(['10.1.0.1']);
  });

  it('and its services in the older format have no backend for the placeholder (regression: only slices were checked)', () => {
    const cache = withGlobalService();
    cache.mergeExternalServiceUpdate(offer('east', ['192.192.192.192', '10.1.0.1'], 9999));
    expect(Object.keys(backendsOf(cache))).toEqual(['10.1.0.1']);
  });

  it('are the backends of a global service, and are removed with the slice', () => {
    const cache = withGlobalService();
    const told = transcript(cache);
    expect(cache.mergeExternalSliceUpdate(remote('s-1', ['10.0.0.1']))).toBe('applied');
    expect(cache.mergeExternalSliceUpdate(remote('s-2', ['10.0.0.2']))).toBe('applied');
    expect(cache.mergeExternalSliceUpdate(remote('s-2', ['10.0.0.2']))).toBe('unchanged');
    expect(cache.mergeExternalSliceDelete({ cluster: 'east', id: SHOP, name: 's-1' })).toBe('applied');
    expect(cache.mergeExternalSliceDelete({ cluster: 'east', id: SHOP, name: 's-1' })).toBe('not-found');
    expect(told).toEqual([
      'update shop/checkout',
      'update shop/checkout east/10.0.0.1:8080',
      'update shop/checkout east/10.0.0.1:8080 east/10.0.0.2:8080',
      'update shop/checkout east/10.0.0.2:8080',
    ]);
    expect(cache.withdrawCluster('east')).toBe('applied');
    expect(told.at(-1)).toBe('update shop/checkout');
    expect(cache.status().remoteServices).toBe(0);
  });

  it('of weight 0 are in maintenance: known, and never selected (regression: the weight of a remote slice had no effect)', () => {
    const cache = withGlobalService();
    const weight = (value: string): ReadonlyMap<string, string> =>
      new Map([['service.cilium.io/weight', value]]);
    cache.mergeExternalSliceUpdate(remote('s-1', ['10.0.0.1'], { annotations: weight('0') }));
    cache.mergeExternalSliceUpdate(remote('s-2', ['10.0.0.2'], { annotations: weight('7') }));
    cache.mergeExternalSliceUpdate(remote('s-3', ['10.0.0.3'], { annotations: weight('many') }));
    const states = (): unknown[] => Object.values(JSON.parse(JSON.stringify(backendsOf(cache))));
    expect(states()).toMatchObject([
      { address: '10.0.0.1', state: 'maintenance', weight: 0 },
      { address: '10.0.0.2', state: 'active', weight: 7 },
      { address: '10.0.0.3', state: 'active', weight: 100 },
    ]);
    expect([...(cache.select(SHOP, 'cluster-ip')?.keys() ?? [])].sort()).toEqual(['10.0.0.2', '10.0.0.3']);
  });

  it('that claim one address: the first by name wins and gets the port names of the other', () => {
    const cache = withGlobalService();
    const ports = [
      { name: 'web', port: 8080, protocol: TCP },
      { name: 'http', port: 9999, protocol: TCP },
    ];
    cache.mergeExternalSliceUpdate(remote('s-2', ['10.0.0.1'], { ports }));
    cache.mergeExternalSliceUpdate(remote('s-1', ['10.0.0.1']));
    const won = { nodeName: 'node-of-s-1', ports: { http: { port: 8080 }, web: { port: 8080 } } };
    expect(JSON.parse(JSON.stringify(backendsOf(cache)['10.0.0.1']))).toMatchObject(won);
    cache.mergeExternalSliceDelete({ cluster: 'east', id: SHOP, name: 's-1' });
    expect(JSON.parse(JSON.stringify(backendsOf(cache)['10.0.0.1']))).toMatchObject({
      nodeName: 'node-of-s-2',
      ports: { http: { port: 9999 }, web: { port: 8080 } },
    });
  });

  it('are named by explain, including overruled and merged ones', () => {
    const cache = withGlobalService();
    cache.mergeExternalSliceUpdate(remote('s-2', ['10.0.0.1', '10.0.0.2']));
    cache.mergeExternalSliceUpdate(remote('s-1', ['10.0.0.1']));
    cache.mergeExternalSliceUpdate(remote('s-1', ['10.0.0.2'], { cluster: 'west' }));
    expect(
      cache
        .explain(SHOP)
        ?.backends.map((each) => `${each.address} ${each.cluster}/${each.slice} ${each.verdict}`),
    ).toEqual([
      '10.0.0.1 east/s-1 effective',
      '10.0.0.1 east/s-2 merged',
      '10.0.0.2 east/s-2 effective',
      '10.0.0.2 west/s-1 overruled',
    ]);
    expect(cache.explain(SHOP)?.origins).toEqual([
      { cluster: 'east', slice: 's-1', backends: 1 },
      { cluster: 'east', slice: 's-2', backends: 2 },
      { cluster: 'west', slice: 's-1', backends: 1 },
    ]);
  });

  it('have the states of their conditions', () => {
    const cache = withGlobalService();
    const conditions = [
      {},
      { ready: false },
      { ready: false, serving: true, terminating: true },
      { ready: false, serving: false, terminating: true },
    ];
    const endpoints = conditions.map((each, i) => ({
      addresses: [`10.0.0.${i}`],
      conditions: each,
      forZones: [],
      deprecatedTopology: new Map(),
    }));
    cache.mergeExternalSliceUpdate(remote('s-1', [], { endpoints }));
    const states = (): unknown =>
      cache
        .get(SHOP)
        ?.endpoints.backends.map(({ state }) => state)
        .toObject();
    expect(states()).toEqual({ '10.0.0.0': 'active', '10.0.0.2': 'terminating' });
    expect(cache.explain(SHOP)?.backends.map(({ verdict }) => verdict)).toEqual([
      ...['effective', 'not-ready', 'effective', 'not-ready'],
    ]);
    cache.updateService(service({ global: true, publishNotReady: true }));
    expect(states()).toEqual({
      '10.0.0.0': 'active',
      '10.0.0.1': 'not-ready',
      '10.0.0.2': 'terminating',
      '10.0.0.3': 'not-ready',
    });
  });

  it('of the local cluster, or without the label of a service, are rejected and counted', () => {
    const cache = withGlobalService();
    expect(cache.mergeExternalSliceUpdate(remote('s-1', ['10.0.0.1'], { cluster: 'own' }))).toBe('invalid');
    expect(cache.mergeExternalSliceUpdate(remote('s-1', ['10.0.0.1'], { labels: new Map() }))).toBe(
      'invalid',
    );
    expect(cache.status().rejections.byReason).toEqual({ 'local-cluster': 1, missing: 1 });
  });
});

describe('a cluster that changes its format', () => {
  it('loses no backend that both formats have, in either direction', () => {
    const cache = withGlobalService();
    const addresses = (): unknown => Object.keys(backendsOf(cache)).sort();
    const seen: unknown[] = [];
    cache.subscribe({ onEvents: () => void seen.push(addresses()) });
    cache.mergeExternalServiceUpdate(offer('east', ['10.0.0.1', '10.0.0.2']));
    seen.length = 0;
    cache.mergeExternalSliceUpdate(remote('s-1', ['10.0.0.2']));
    cache.mergeExternalSliceUpdate(remote('s-2', ['10.0.0.3']));
    cache.mergeExternalServiceDelete(offer('east', []));
    expect(addresses()).toEqual(['10.0.0.2', '10.0.0.3']);
    for (const each of seen) expect(each).toContain('10.0.0.2');
    seen.length = 0;
    cache.mergeExternalServiceUpdate(offer('east', ['10.0.0.2']));
    for (const name of ['s-1', 's-2']) cache.mergeExternalSliceDelete({ cluster: 'east', id: SHOP, name });
    expect(addresses()).toEqual(['10.0.0.2']);
    for (const each of seen) expect(each).toContain('10.0.0.2');
  });
});

describe('a service of 50,000 backends over 500 slices', () => {
  const address = (slice: number, i: number): string => `10.${slice >> 8}.${slice & 255}.${i}`;
  const numbered = (slice: number, from: number): ClusterEndpointSlice =>
    remote(
      `s-${slice}`,
      Array.from({ length: 100 }, (_, i) => address(slice, from + i)),
    );

  function filled(slices: number): ServiceCache {
    const cache = withGlobalService();
    cache.batch(() => {
      for (let slice = 0; slice < slices; slice++) cache.mergeExternalSliceUpdate(numbered(slice, 0));
    });
    return cache;
  }

  /** Returns the CPU time of changing one backend of a slice repeatedly. */
  function costOf(cache: ServiceCache): number {
    const before = process.cpuUsage();
    for (let i = 0; i < 50; i++) cache.mergeExternalSliceUpdate(numbered(2, i % 2));
    const { user, system } = process.cpuUsage(before);
    return user + system;
  }

  it('costs one slice if one slice changes', () => {
    const [large, small] = [filled(500), filled(5)];
    expect(large.get(SHOP)?.endpoints.backends.size).toBe(50_000);
    costOf(small); // warm-up
    let ratio = Number.POSITIVE_INFINITY;
    for (let attempt = 0; attempt < 10 && !(ratio < 10); attempt++)
      ratio = Math.min(ratio, costOf(large) / costOf(small));
    // A cost of the whole service would give a ratio of 100.
    expect(ratio).toBeLessThan(10);
  });

  it('keeps the objects of unchanged backends', () => {
    const cache = filled(500);
    const before = cache.get(SHOP)?.endpoints.backends;
    cache.mergeExternalSliceUpdate(numbered(7, 1));
    const after = cache.get(SHOP)?.endpoints.backends;
    expect(after?.size).toBe(50_000);
    const changed = after?.filter((backend, ip) => before?.get(ip) !== backend);
    expect([...(changed?.keys() ?? [])]).toEqual([address(7, 100)]);
  });

  it('moves an address from slice to slice without losing it', () => {
    const cache = filled(500);
    const moved = remote('s-499', [...Array.from({ length: 100 }, (_, i) => address(499, i)), address(7, 0)]);
    cache.mergeExternalSliceUpdate(moved);
    expect(cache.get(SHOP)?.endpoints.backends.get(address(7, 0))?.nodeName).toBe('node-of-s-499');
    cache.mergeExternalSliceUpdate(numbered(7, 1));
    expect(cache.get(SHOP)?.endpoints.backends.has(address(7, 0))).toBe(true);
    expect(cache.status().contested).toBe(0);
  });
});

describe('many slices of a service with the same address', () => {
  const ports = ImmutableMap({ http: { port: 8080, protocol: TCP } });
  const backends = ImmutableMap({ '10.0.0.1': createBackend({ address: '10.0.0.1', ports }) });

  it.each<[string, OriginChange['before'], OriginChange['after'], number]>([
    ['adds', NO_BACKENDS, backends, 1],
    ['removes', backends, NO_BACKENDS, -1],
  ])(
    'compare few of their claims (regression: all, for each slice that %s one)',
    (_, before, after, step) => {
      let comparisons = 0;
      const origin = (at: number): Origin => ({
        slice: `s-${1000 + at}`,
        get cluster() {
          comparisons++;
          return '';
        },
      });
      const origins: Origins = { all: () => [], search: () => origin(0), sliceCount: () => 0 };
      let correlation = applyOriginChange(
        NO_CORRELATION,
        { origin: origin(0), before: NO_BACKENDS, after: backends },
        origins,
      );
      for (let at = 1; at < 1000; at++) {
        const change = { origin: origin(at), before: NO_BACKENDS, after: backends };
        correlation = applyOriginChange(correlation, change, origins);
      }
      comparisons = 0;
      const at = step > 0 ? 1000 : 500;
      const change = { origin: origin(at), before, after };
      correlation = applyOriginChange(correlation, change, origins);
      expect(correlation.contested.get('10.0.0.1')).toHaveLength(1000 + step);
      expect(comparisons).toBeLessThan(60);
    },
  );

  it('have the port of a slice of another cluster only while that cluster wins', () => {
    const cache = withGlobalService();
    const metrics = [{ name: 'metrics', port: 9090, protocol: TCP }];
    cache.updateEndpoints(slice('a-1', ['10.0.0.1']));
    cache.mergeExternalSliceUpdate(remote('s-1', ['10.0.0.1']));
    cache.mergeExternalSliceUpdate(remote('s-2', ['10.0.0.1'], { ports: metrics }));
    const portsOf = () =>
      [...(cache.get(SHOP)?.endpoints.backends.get('10.0.0.1')?.ports.keys() ?? [])].sort();
    expect(portsOf()).toEqual(['http']);
    cache.deleteEndpoints(SHOP, 'a-1');
    expect(portsOf()).toEqual(['http', 'metrics']);
    cache.mergeExternalSliceUpdate(
      remote('s-3', ['10.0.0.1'], { ports: [{ name: 'dns', port: 53, protocol: TCP }] }),
    );
    expect(portsOf()).toEqual(['dns', 'http', 'metrics']);
    cache.mergeExternalSliceUpdate(remote('s-1', ['10.0.0.1'], { ports: metrics }));
    expect(portsOf()).toEqual(['dns', 'metrics']);
    cache.mergeExternalSliceUpdate(
      remote('s-3', ['10.0.0.1'], { ports: [{ name: 'ftp', port: 21, protocol: TCP }] }),
    );
    expect(portsOf()).toEqual(['ftp', 'metrics']);
  });
});

it('slices that replace a whole offer read none of the earlier slices (regression: all of them, for each slice)', () => {
  const backend = (at: number) =>
    createBackend({ address: `10.0.${at >> 8}.${at & 255}`, ports: [], cluster: 'east' });
  const count = 400;
  const whole = Array.from({ length: count }, (_, at) => backend(at));
  let state = withWholeOffer(withService(emptyState(SHOP), service({ global: true })), 'east', whole);
  let reads = 0;
  for (let at = 0; at < count; at++) {
    const backends = ImmutableMap([[backend(at).address, backend(at)]]);
    const value: EndpointSlice = {
      service: SHOP,
      name: `s-${at}`,
      get backends() {
        reads++;
        return backends;
      },
      notReady: NO_BACKENDS,
    };
    state = withRemoteSlice(state, 'east', value.name, value);
  }
  expect(state.correlation.contested.size).toBe(count);
  expect(reads).toBeLessThan(3 * count);
});

it('that 255 clusters claim are ranked at once if the service becomes global, or not global (regression: 6 s each for 2^20 claims)', () => {
  const addresses = Array.from({ length: 4112 }, (_, at) => `10.0.${at >> 8}.${at & 255}`);
  const added = (state: ServiceState, n: number): ServiceState => {
    const backends = addresses.map((address) => createBackend({ address, ports: [], cluster: `c${n}` }));
    return withWholeOffer(state, `c${n}`, backends);
  };
  let state = withService(emptyState(SHOP), service());
  for (let n = 0; n < 255; n++) state = added(state, n);
  const copied = vi.spyOn(Array.prototype, 'toSpliced');
  const global = withService(state, service({ global: true }));
  expect(global.correlation.backends.size).toBe(4112);
  const claims = global.correlation.contested.get('10.0.0.1') ?? [];
  expect(claims.map(({ origin }) => origin.cluster)).toEqual(
    Array.from({ length: 255 }, (_, n) => `c${n}`).sort(),
  );
  expect(withService(global, service()).correlation).toEqual(state.correlation);
  expect(copied).not.toHaveBeenCalled();
});

describe('many slices with contested addresses', () => {
  let reads = 0;

  /** Returns a slice that counts how often its backends are read. */
  function counted(name: string, addresses: readonly number[]): EndpointSlice {
    const { backends, notReady } = slice(
      name,
      addresses.map((at) => `10.0.${at >> 8}.${at & 255}`),
    );
    return {
      service: SHOP,
      name,
      get backends() {
        reads++;
        return backends;
      },
      notReady,
    };
  }

  const withCounted = (state: ServiceState, name: string, ...addresses: readonly number[]): ServiceState =>
    withSlice(state, name, counted(name, addresses));

  it('are not read if the service uses other inputs, too (regression: all, to rank every claim again)', () => {
    let state = withWholeOffer(withService(emptyState(SHOP), service()), 'east', [
      createBackend({ address: '10.0.0.1', ports: [], cluster: 'east' }),
    ]);
    for (let at = 0; at < 200; at++) state = withCounted(state, `s-${at}`, at % 100);
    state = withSlice(state, 'not-ready', slice('not-ready', { '10.0.9.1': { state: 'not-ready' } }));
    reads = 0;
    for (const [fields, expected] of [
      [{ global: true, publishNotReady: true }, ['10.0.9.1', 'east']],
      [{ publishNotReady: true }, ['10.0.9.1']],
      [{ global: true }, ['east']],
      [{}, []],
    ] as const) {
      state = withService(state, service(fields));
      const { backends, contested } = state.correlation;
      expect(contested.size).toBe(100);
      expect(backends.size).toBe(backends.has('10.0.9.1') ? 101 : 100);
      const claims = contested.get('10.0.0.1')?.map(({ origin }) => origin.cluster) ?? [];
      expect([...(backends.has('10.0.9.1') ? ['10.0.9.1'] : []), ...claims.filter(Boolean)]).toEqual(
        expected,
      );
    }
    expect(reads).toBe(0);
  });

  it('are not all read for each slice that changes (regression: they were indexed again)', () => {
    let state = withService(emptyState(SHOP), service());
    for (let at = 0; at < 300; at++) state = withCounted(state, `s-${at}`, at);
    reads = 0;
    for (let at = 0; at < 299; at++) {
      state = withCounted(state, 's-299', 299, at);
      state = withCounted(state, 's-299', 299);
    }
    expect(state.correlation.contested.size).toBe(0);
    expect(reads).toBeLessThan(2500);
  });

  it('are not all read for a slice that overlaps each of them (regression: 2 s for 1,049 slices)', () => {
    let state = withService(emptyState(SHOP), service());
    for (let at = 0; at < 300; at++) state = withCounted(state, `s-${at}`, at);
    reads = 0;
    state = withCounted(state, 's-300', ...Array.from({ length: 300 }, (_, at) => at));
    expect(state.correlation.contested.size).toBe(300);
    expect(reads).toBeLessThan(10);
  });

  it('are no longer indexed after a change of each slice (regression: the former slices were kept for 1,024 changes)', () => {
    let state = withService(emptyState(SHOP), service());
    for (let at = 0; at < 15; at++) state = withCounted(state, `s-${at}`, at);
    const readsOfContest = (): number => {
      state = withCounted(state, 's-0', 0, 14);
      reads = 0;
      state = withCounted(state, 's-0', 0);
      state = withCounted(state, 's-0', 0, 14);
      const before = reads;
      state = withCounted(state, 's-0', 0);
      return before;
    };
    const indexed = readsOfContest();
    for (let at = 1; at < 15; at++) state = withCounted(state, `s-${at}`, at, 100 + at);
    reads = 0;
    state = withCounted(state, 's-0', 0, 14);
    expect(reads).toBeGreaterThan(indexed + 5);
  });

  it('have the same claims as if all slices were added at once (I2)', () => {
    const addresses = fc.uniqueArray(fc.integer({ min: 0, max: 9 }), { maxLength: 4 });
    const change = fc.record({
      name: fc.constantFrom('a', 'b', 'c', 'd', 'e'),
      addresses: fc.option(addresses, { nil: undefined }),
      discarded: fc.oneof(
        { weight: 9, arbitrary: fc.constant(undefined) },
        { weight: 1, arbitrary: addresses },
      ),
    });
    fc.assert(
      fc.property(fc.array(change, { maxLength: 60, size: 'max' }), (changes) => {
        let state = emptyState(SHOP);
        for (const { name, addresses: listed, discarded } of changes) {
          // The result of a batch that fails, or of a preview, is discarded.
          if (discarded !== undefined) withCounted(state, name, ...discarded);
          state = withSlice(state, name, listed && counted(name, listed));
          const claims = new Map<string, string[]>();
          for (const [name, { backends }] of state.slices.sortBy((_, at) => at))
            for (const at of backends.keys()) claims.set(at, [...(claims.get(at) ?? []), name]);
          const contested = state.correlation.contested.map((each) => each.map(({ origin }) => origin.slice));
          expect(new Map(contested)).toEqual(new Map([...claims].filter(([, { length }]) => length > 1)));
          expect([...state.correlation.backends.keys()].sort()).toEqual([...claims.keys()].sort());
        }
      }),
      fewerRuns(40),
    );
  });
});
