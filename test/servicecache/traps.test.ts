import { describe, expect, it, vi } from 'vitest';
import { createBackend, createEndpointSlice } from '../../src/servicecache/backend.ts';
import { createService } from '../../src/servicecache/service.ts';
import { ServiceCache } from '../../src/servicecache/service-cache.ts';
import { cacheOf, offer, SHOP, service, slice, transcript } from './support/scene.ts';

describe('traps of other systems', () => {
  it('a remote update is announced if the service is global, shared or not', () => {
    const cache = cacheOf();
    cache.updateService(service({ global: true, shared: false }));
    const told = transcript(cache);
    cache.mergeExternalServiceUpdate(offer('east', ['10.9.0.1']));
    expect(told).toEqual(['update shop/checkout east/10.9.0.1:8080']);
  });

  it('a remote update is not announced if the service is shared but not global', () => {
    const cache = cacheOf();
    cache.updateService(service({ global: false, shared: true }));
    cache.updateEndpoints(slice('a-1', ['10.0.0.1']));
    const told = transcript(cache);
    cache.mergeExternalServiceUpdate(offer('east', ['10.9.0.1']));
    expect(told).toEqual(['update shop/checkout 10.0.0.1:8080']);
  });

  it('a change of annotations alone is a change', () => {
    const cache = cacheOf();
    cache.mergeExternalServiceUpdate(offer('east', ['10.9.0.1']));
    cache.updateService(service());
    const told = transcript(cache);
    expect(cache.updateService(service({ global: true }))).toBe('applied');
    expect(told).toEqual(['update shop/checkout east/10.9.0.1:8080']);
  });

  it('empty external-endpoint records do not remain: the maps become empty again', () => {
    const cache = cacheOf();
    cache.mergeExternalServiceUpdate(offer('east', ['10.9.0.1']));
    cache.mergeExternalServiceDelete({ cluster: 'east', ...SHOP });
    expect(cache.explain(SHOP)).toBeUndefined();
    expect(cache.status()).toMatchObject({ unknown: 0, remoteServices: 0 });
  });

  it.each([
    ['east', 'west'],
    ['west', 'east'],
  ])('the winner of a conflicting backend does not depend on order: %s before %s', (first, second) => {
    const ports: Readonly<Record<string, number>> = { east: 1, west: 2 };
    const cache = cacheOf();
    cache.updateService(service({ global: true }));
    for (const cluster of [first, second]) {
      cache.mergeExternalServiceUpdate(offer(cluster, ['10.9.0.1'], ports[cluster]));
    }
    expect(cache.get(SHOP)?.endpoints.backends.get('10.9.0.1')?.cluster).toBe('east');
    expect(cache.explain(SHOP)?.backends.map(({ cluster, verdict }) => [cluster, verdict])).toEqual([
      ['east', 'effective'],
      ['west', 'overruled'],
    ]);
  });

  it('a remote delete never removes the local service', () => {
    const cache = cacheOf();
    cache.updateService(service({ global: true }));
    cache.updateEndpoints(slice('a-1', ['10.0.0.1']));
    cache.mergeExternalServiceUpdate(offer('east', ['10.9.0.1']));
    const told = transcript(cache);
    cache.mergeExternalServiceDelete({ cluster: 'east', ...SHOP });
    expect(told.at(-1)).toBe('update shop/checkout 10.0.0.1:8080');
    expect(cache.services().has('shop/checkout')).toBe(true);
  });

  it('two clusters announce one backend address; one withdraws; that of the other is not lost', () => {
    const cache = cacheOf();
    cache.updateService(service({ global: true }));
    cache.mergeExternalServiceUpdate(offer('east', ['10.9.0.1'], 1));
    cache.mergeExternalServiceUpdate(offer('west', ['10.9.0.1'], 2));
    const told = transcript(cache);
    cache.mergeExternalServiceDelete({ cluster: 'east', ...SHOP });
    expect(told).toEqual(['update shop/checkout east/10.9.0.1:1', 'update shop/checkout west/10.9.0.1:2']);
  });

  it('entries of a removed cluster do not remain, including overruled ones', () => {
    const cache = cacheOf();
    cache.updateService(service({ global: true }));
    cache.updateEndpoints(slice('a-1', ['10.0.0.1']));
    cache.mergeExternalServiceUpdate(offer('east', ['10.0.0.1', '10.9.0.1']));
    cache.withdrawCluster('east');
    expect(cache.explain(SHOP)?.origins).toEqual([{ cluster: '', slice: 'a-1', backends: 1 }]);
    expect(cache.status().contested).toBe(0);
  });

  it('unchanged objects cause no event storm', () => {
    const cache = cacheOf();
    cache.updateService(service({ global: true }));
    cache.updateEndpoints(slice('a-1', ['10.0.0.1']));
    cache.mergeExternalServiceUpdate(offer('east', ['10.9.0.1']));
    const told = transcript(cache);
    expect(cache.updateService(service({ global: true }))).toBe('unchanged');
    expect(cache.updateEndpoints(slice('a-1', ['10.0.0.1']))).toBe('unchanged');
    expect(cache.mergeExternalServiceUpdate(offer('east', ['10.9.0.1']))).toBe('unchanged');
    expect(told).toHaveLength(1);
  });

  it('a backend that moves from one slice to another is no event', () => {
    const cache = cacheOf();
    cache.updateService(service());
    cache.updateEndpoints(slice('a-1', ['10.0.0.1']));
    const told = transcript(cache);
    cache.updateEndpoints(slice('a-2', ['10.0.0.1']));
    cache.updateEndpoints(slice('a-1', []));
    expect(told).toHaveLength(1);
  });

  it('a recount that changes no backend does not affect the next change', () => {
    const cache = cacheOf();
    cache.updateEndpoints(slice('a-1', ['10.0.0.1']));
    cache.updateService(service());
    cache.updateService(service({ publishNotReady: true }));
    const told = transcript(cache);
    cache.updateEndpoints(slice('a-2', []));
    expect(told).toHaveLength(1);
  });

  it('affinity keeps traffic flowing: the other side serves while the preferred one has no active backend', () => {
    const cache = cacheOf();
    cache.updateService(service({ global: true, affinity: 'local' }));
    cache.mergeExternalServiceUpdate(offer('east', ['10.9.0.1']));
    cache.updateEndpoints(slice('a-1', { '10.0.0.1': { state: 'terminating' } }));
    const addresses = (): readonly string[] => [...(cache.get(SHOP)?.endpoints.backends.keys() ?? [])].sort();
    expect(addresses()).toEqual(['10.0.0.1', '10.9.0.1']);
    cache.updateEndpoints(slice('a-1', { '10.0.0.1': {} }));
    expect(addresses()).toEqual(['10.0.0.1']);
    cache.updateService(service({ global: true, affinity: 'remote' }));
    expect(addresses()).toEqual(['10.9.0.1']);
  });
});

it('an offer with the addresses of many slices checks few of them (regression: all slices for each address)', () => {
  const cache = cacheOf();
  cache.updateService(service({ global: true }));
  const addresses = Array.from({ length: 1_000 }, (_, i) => `10.${i >> 8}.${i & 255}.1`);
  let reads = 0;
  for (const [i, address] of addresses.entries()) {
    const { backends, ...rest } = slice(`s-${i}`, [address]);
    const counted = Object.assign(backends, {
      get: (key: string) => {
        reads++;
        return key === address ? backends.first() : undefined;
      },
    });
    cache.updateEndpoints({ ...rest, backends: counted });
  }
  reads = 0;
  cache.mergeExternalServiceUpdate(offer('east', addresses));
  expect(reads).toBeLessThan(2_000);
  const claims = cache.explain(SHOP)?.backends.filter(({ verdict }) => verdict !== undefined);
  expect(claims?.length).toBe(2_000);
  cache.mergeExternalServiceDelete(offer('east', []));
  expect(cache.get(SHOP)?.endpoints.backends.size).toBe(1_000);
});

it('an address that moves to another slice reads few other backends (regression: those of all slices were indexed)', () => {
  const cache = cacheOf();
  cache.updateService(service());
  let reads = 0;
  for (let i = 0; i < 300; i++) {
    const addresses = Array.from({ length: 20 }, (_, k) => `10.${i >> 8}.${i & 255}.${k}`);
    const { backends, ...rest } = slice(`s-${i}`, addresses);
    const values = backends.values.bind(backends);
    const counted = Object.assign(backends, {
      values: () => {
        reads++;
        return values();
      },
    });
    cache.updateEndpoints({ ...rest, backends: counted });
  }
  reads = 0;
  cache.updateEndpoints(slice('new', ['10.0.9.1']));
  expect(reads).toBeLessThan(20);
  cache.updateEndpoints(slice('s-9', []));
  expect(cache.get(SHOP)?.endpoints.backends.get('10.0.9.1')).toBeDefined();
});

it('ports of an address in two slices are merged (regression: only those of the first slice were served)', () => {
  const cache = new ServiceCache({ clusterName: 'own' });
  const id = { namespace: 'ns', name: 'web' };
  cache.updateService(createService({ id, addressing: 'assigned', global: true }));
  const slice = (name: string, ...ports: readonly (readonly [string, number])[]): unknown =>
    cache.updateEndpoints(
      createEndpointSlice({
        service: id,
        name,
        backends: [
          createBackend({
            address: '10.0.0.1',
            ports: ports.map(([port, number]) => [port, { port: number, protocol: 6 }] as const),
          }),
        ],
      }),
    );
  const ports = (): unknown =>
    cache
      .get(id)
      ?.endpoints.backends.get('10.0.0.1')
      ?.ports.map(({ port }) => port)
      .toJS();
  slice('b', ['https', 8443], ['http', 81]);
  slice('a', ['http', 80]);
  expect(ports()).toEqual({ http: 80, https: 8443 });
  slice('b', ['https', 9443]);
  expect(ports()).toEqual({ http: 80, https: 9443 });
  expect(cache.explain(id)?.backends.map(({ slice: name, verdict }) => [name, verdict])).toEqual([
    ['a', 'effective'],
    ['b', 'merged'],
  ]);
  cache.deleteEndpoints(id, 'a');
  expect(ports()).toEqual({ https: 9443 });
});

it('explain searches no backend in its own slice (regression: each of them, and sorted all by address and origin)', () => {
  const cache = cacheOf();
  cache.updateService(service());
  const { backends, ...rest } = slice('a-1', ['10.0.0.1', '10.0.0.2']);
  const search = vi.spyOn(backends, 'get');
  cache.updateEndpoints({ ...rest, backends });
  search.mockClear();
  expect(cache.explain(SHOP)?.backends).toHaveLength(2);
  expect(search).not.toHaveBeenCalled();
});
