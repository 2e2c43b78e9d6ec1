import { Set as ImmutableSet } from 'immutable';
import { describe, expect, it, vi } from 'vitest';
import { type Backend, createBackend, filterBackends, NO_BACKENDS } from '../../src/servicecache/backend.ts';
import type { FrontendKind } from '../../src/servicecache/frontends.ts';
import { selectBackends } from '../../src/servicecache/selection.ts';
import type { Service } from '../../src/servicecache/service.ts';
import { cacheOf, offer, SHOP, service, slice } from './support/scene.ts';

const HERE = { nodeName: 'n1', zone: 'z1' };

function selected(
  fields: Partial<Service>,
  backends: Readonly<Record<string, Partial<Backend>>>,
  frontend: FrontendKind = 'cluster-ip',
  place = HERE,
): readonly string[] {
  const context = { service: service(fields), frontend, ...place };
  return [...selectBackends(slice('s', backends).backends, context).keys()].sort();
}

const zones = (...names: string[]): Pick<Backend, 'forZones'> => ({ forZones: ImmutableSet(names) });

describe('traffic policy', () => {
  const backends = { '10.0.0.1': { nodeName: 'n1' }, '10.0.0.2': { nodeName: 'n2' }, '10.0.0.3': {} };

  it('Cluster selects all', () => {
    expect(selected({}, backends)).toHaveLength(3);
  });

  it('Local selects those on this node, for the frontends to which it applies', () => {
    const external = { externalTrafficPolicy: 'Local' } as const;
    expect(selected(external, backends)).toHaveLength(3);
    for (const kind of ['node-port', 'external-ip', 'ingress-ip'] as const) {
      expect(selected(external, backends, kind)).toEqual(['10.0.0.1']);
    }
    const internal = { internalTrafficPolicy: 'Local' } as const;
    expect(selected(internal, backends)).toEqual(['10.0.0.1']);
    expect(selected(internal, backends, 'node-port')).toHaveLength(3);
  });

  it('externalTrafficPolicy: Local applies to clients outside the cluster only (regression: pods got local backends only)', () => {
    const context = {
      service: service({ externalTrafficPolicy: 'Local' }),
      frontend: 'node-port',
      ...HERE,
    } as const;
    const all = slice('s', backends).backends;
    expect(selectBackends(all, { ...context, client: 'inside' }).size).toBe(3);
    expect(selectBackends(all, { ...context, client: 'outside' }).size).toBe(1);
  });

  it('Local with no backend on this node selects none: traffic is dropped', () => {
    expect(selected({ internalTrafficPolicy: 'Local' }, { '10.0.0.2': { nodeName: 'n2' } })).toEqual([]);
    expect(
      selected({ internalTrafficPolicy: 'Local' }, { '10.0.0.3': {} }, 'cluster-ip', {
        nodeName: '',
        zone: '',
      }),
    ).toEqual([]);
  });
});

describe('terminating backends', () => {
  it('serve only if no other backend does', () => {
    const leaving = { state: 'terminating' } as const;
    expect(selected({}, { '10.0.0.1': leaving, '10.0.0.2': {} })).toEqual(['10.0.0.2']);
    expect(selected({}, { '10.0.0.1': leaving })).toEqual(['10.0.0.1']);
  });

  it('serve on this node under policy Local even while others are active elsewhere', () => {
    const backends = {
      '10.0.0.1': { state: 'terminating', nodeName: 'n1' },
      '10.0.0.2': { nodeName: 'n2' },
    } as const;
    expect(selected({ internalTrafficPolicy: 'Local' }, backends)).toEqual(['10.0.0.1']);
  });
});

describe('weights', () => {
  const drained = createBackend({ address: '10.0.0.1', ports: [], weight: 0, nodeName: 'n1' });

  it('0 is maintenance: never selected, not even as the last one or under policy Local', () => {
    expect(drained.state).toBe('maintenance');
    expect(createBackend({ ...drained, state: 'terminating' }).state).toBe('maintenance');
    expect(selected({}, { '10.0.0.1': drained, '10.0.0.2': {} })).toEqual(['10.0.0.2']);
    expect(selected({}, { '10.0.0.1': drained, '10.0.0.2': { state: 'terminating' } })).toEqual(['10.0.0.2']);
    expect(selected({}, { '10.0.0.1': drained })).toEqual([]);
    expect(selected({ internalTrafficPolicy: 'Local' }, { '10.0.0.1': drained })).toEqual([]);
  });

  it('other than 0 change nothing', () => {
    const weighted = { '10.0.0.1': { weight: 1 }, '10.0.0.2': { weight: 65_535 }, '10.0.0.3': {} };
    expect(selected({}, weighted)).toHaveLength(3);
  });

  it('0 of all preferred backends lifts the affinity', () => {
    const cache = cacheOf();
    cache.updateService(service({ global: true, affinity: 'local' }));
    cache.mergeExternalServiceUpdate(offer('east', ['10.1.0.1']));
    cache.updateEndpoints(slice('s', ['10.0.0.1']));
    const used = () => [...(cache.select(SHOP, 'cluster-ip')?.keys() ?? [])];
    expect(used()).toEqual(['10.0.0.1']);
    cache.updateEndpoints(slice('s', { '10.0.0.1': { weight: 0 } }));
    expect(used()).toEqual(['10.1.0.1']);
    expect(cache.explain(SHOP)?.backends.map(({ verdict }) => verdict)).toEqual(['maintenance', 'effective']);
  });
});

describe('traffic distribution', () => {
  const hinted = { '10.0.0.1': zones('z1'), '10.0.0.2': zones('z2'), '10.0.0.3': zones('z1', 'z2') };

  it('none ignores hints', () => {
    expect(selected({}, hinted)).toHaveLength(3);
  });

  it.each(['prefer-close', 'prefer-same-zone', 'prefer-same-node'] as const)(
    '%s follows the hints',
    (way) => {
      expect(selected({ trafficDistribution: way }, hinted)).toEqual(['10.0.0.1', '10.0.0.3']);
    },
  );

  it('uses all if one has no hint, if none names the local zone, or if the zone is unknown', () => {
    const way = { trafficDistribution: 'prefer-close' } as const;
    expect(selected(way, { ...hinted, '10.0.0.4': {} })).toHaveLength(4);
    expect(selected(way, hinted, 'cluster-ip', { nodeName: 'n1', zone: 'z9' })).toHaveLength(3);
    expect(selected(way, hinted, 'cluster-ip', { nodeName: 'n1', zone: '' })).toHaveLength(3);
  });

  it('a terminating backend does not invalidate the hints of the others', () => {
    const way = { trafficDistribution: 'prefer-close' } as const;
    expect(selected(way, { ...hinted, '10.0.0.4': { state: 'terminating' } })).toEqual([
      '10.0.0.1',
      '10.0.0.3',
    ]);
  });

  it('only prefer-same-node checks the node, and only backends of this cluster', () => {
    const backends = { '10.0.0.1': { nodeName: 'n1' }, '10.0.0.2': { nodeName: 'n2' } };
    for (const way of ['none', 'prefer-close', 'prefer-same-zone'] as const) {
      expect(selected({ trafficDistribution: way }, backends)).toHaveLength(2);
    }
    expect(selected({ trafficDistribution: 'prefer-same-node' }, backends)).toEqual(['10.0.0.1']);
    const elsewhere = { '10.0.0.1': { nodeName: 'n1', cluster: 'east' }, '10.0.0.2': {} };
    expect(selected({ trafficDistribution: 'prefer-same-node' }, elsewhere)).toHaveLength(2);
    expect(selected({ internalTrafficPolicy: 'Local' }, elsewhere)).toEqual([]);
  });

  it('prefer-same-node selects those on this node first', () => {
    const backends = { '10.0.0.1': { nodeName: 'n1', ...zones('z1') }, '10.0.0.2': zones('z1') };
    expect(selected({ trafficDistribution: 'prefer-same-node' }, backends)).toEqual(['10.0.0.1']);
  });
});

describe('a cache', () => {
  it('selects for its own node and zone, by default', () => {
    const cache = cacheOf(HERE);
    expect(cache.select(SHOP, 'cluster-ip')).toBeUndefined();
    cache.updateService(service({ internalTrafficPolicy: 'Local' }));
    cache.updateEndpoints(slice('s', { '10.0.0.1': { nodeName: 'n1' }, '10.0.0.2': { nodeName: 'n2' } }));
    expect([...(cache.select(SHOP, 'cluster-ip')?.keys() ?? [])]).toEqual(['10.0.0.1']);
    expect(cache.select(SHOP, 'node-port')?.size).toBe(2);
  });

  it('without a location has no node and no zone', () => {
    const cache = cacheOf();
    cache.updateService(service({ trafficDistribution: 'prefer-same-node' }));
    cache.updateEndpoints(
      slice('s', { '10.0.0.1': zones(''), '10.0.0.2': { nodeName: 'n2', ...zones('z') } }),
    );
    expect(cache.select(SHOP, 'cluster-ip')?.size).toBe(2);
  });

  it('passes the absent location to the selection', () => {
    const places: unknown[] = [];
    const cache = cacheOf({
      selection: (backends, { nodeName, zone }) => {
        places.push([nodeName, zone]);
        return backends;
      },
    });
    cache.updateService(service());
    cache.updateEndpoints(slice('s', []));
    cache.select(SHOP, 'cluster-ip');
    expect(places).toEqual([['', '']]);
  });

  it('selects with the given function', () => {
    const cache = cacheOf({
      selection: (backends) => backends.filter((_, address) => address.endsWith('2')),
    });
    cache.updateService(service());
    cache.updateEndpoints(slice('s', ['10.0.0.1', '10.0.0.2']));
    expect([...(cache.select(SHOP, 'cluster-ip')?.keys() ?? [])]).toEqual(['10.0.0.2']);
  });
});

it('the usable backends of one version are selected once (regression: for each frontend, at each read)', () => {
  const { backends } = slice('a-1', ['10.0.0.1', '10.0.0.2']);
  const pass = vi.spyOn(backends, 'forEach');
  const select = (frontend: 'cluster-ip' | 'node-port') =>
    selectBackends(backends, { service: service(), frontend, nodeName: '', zone: '' });
  expect(select('node-port')).toBe(select('cluster-ip'));
  expect(pass).toHaveBeenCalledTimes(1);
});

describe('filtered backends', () => {
  const many = slice(
    's',
    Array.from({ length: 100 }, (_, at) => `10.0.0.${at}`),
  ).backends;

  it.each([0, 1, 50, 51, 99, 100])('are those of a naive filter if %i of 100 are kept', (count) => {
    const keep = ({ address }: Backend): boolean => Number(address.split('.')[3]) < count;
    expect(filterBackends(many, keep).equals(many.filter(keep))).toBe(true);
  });

  it('share the map, so that versions compare fast (regression: a change of the affinity copied all backends)', () => {
    expect(filterBackends(many, () => true)).toBe(many);
    expect(filterBackends(many, () => false)).toBe(NO_BACKENDS);
  });
});
