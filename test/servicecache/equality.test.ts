import fc from 'fast-check';
import { hash, Map as ImmutableMap, Set as ImmutableSet, List, OrderedMap } from 'immutable';
import { describe, expect, it } from 'vitest';
import type { ClusterService } from '../../src/model/cluster-service.ts';
import { samePorts } from '../../src/net/port.ts';
import { announcedPart, changeBetween, shareAnnounced } from '../../src/servicecache/announcement.ts';
import {
  type Backend,
  type Backends,
  backendComparison,
  createBackend,
  createEndpointSlice,
  equalBackends,
  type Ports,
} from '../../src/servicecache/backend.ts';
import { equalBackendMaps, everyDifference, shareSlice } from '../../src/servicecache/offer-difference.ts';
import { remoteBackends } from '../../src/servicecache/remote-backends.ts';
import {
  createService,
  equalServices,
  type Service,
  withoutExternalFrontends,
} from '../../src/servicecache/service.ts';
import {
  emptyState,
  type ServiceState,
  withAnnounced,
  withService,
  withSlice,
  withWholeOffer,
} from '../../src/servicecache/service-state.ts';
import { leastCpuTime } from '../base/support/cpu-time.ts';
import { made, nearPairs, oneOf } from '../base/support/near-pairs.ts';
import { anotherCopy } from './support/another-copy.ts';
import { CLUSTERS, IDS, offers, services, slices } from './support/operations.ts';
import { text } from './support/plain.ts';

type Port = readonly [string, { readonly port: number; readonly protocol: number }];
const HTTP: Port = ['http', { port: 80, protocol: 6 }];
const PORTS: readonly (readonly Port[])[] = [
  [],
  [HTTP],
  [['http', { port: 81, protocol: 6 }]],
  [['http', { port: 80, protocol: 17 }]],
  [['web', { port: 80, protocol: 6 }]],
  [HTTP, ['dns', { port: 53, protocol: 17 }]],
  [['dns', { port: 53, protocol: 17 }], HTTP],
  [['dns', { port: 54, protocol: 17 }], HTTP],
];

const ports = fc.constantFrom(...PORTS).map((entries) => (): Ports => ImmutableMap(entries));
const names = made(
  () => ImmutableSet<string>(),
  () => ImmutableSet(['a']),
  () => ImmutableSet(['b']),
  () => ImmutableSet(['a', 'b']),
  () => ImmutableSet(['b', 'a']),
  () => ImmutableSet(['a', 'c']),
);
const texts = made(
  () => ImmutableMap<string, string>(),
  () => ImmutableMap({ a: '1' }),
  () => ImmutableMap({ a: '2' }),
  () => ImmutableMap({ b: '1' }),
  () => ImmutableMap({ a: '1', b: '1' }),
  () => ImmutableMap({ a: '1', b: '2' }),
);
const flag = oneOf(false, true);

const backendFields = {
  address: oneOf('10.0.0.1', '10.0.0.2'),
  ports,
  nodeName: oneOf('', 'n'),
  zone: oneOf('', 'z'),
  hostname: oneOf('', 'h'),
  state: oneOf<Backend['state']>('active', 'terminating', 'not-ready', 'maintenance'),
  weight: oneOf(0, 7, 100),
  forZones: names,
  cluster: oneOf('', 'east'),
};

/** Each run uses every field. */
const EACH_FIELD = { numRuns: 100 };

describe('equality of values', () => {
  it('of backends', () => {
    fc.assert(
      fc.property(nearPairs<Backend>(backendFields), (pairs) => {
        for (const [a, b] of pairs) {
          expect(equalBackends(a, b)).toBe(text(a) === text(b));
          expect(equalBackends(a, a)).toBe(true);
          expect(samePorts(a.ports, b.ports)).toBe(text(a.ports) === text(b.ports));
        }
      }),
      EACH_FIELD,
    );
  });

  it('of many backends that share their ports, one pair after the other', () => {
    const sameAddress = nearPairs<Backend>({ ...backendFields, address: oneOf('10.0.0.1') });
    fc.assert(
      fc.property(sameAddress, (all) => {
        const equal = backendComparison();
        const shared = all.flatMap(([a, b]) => [
          [a, b] as const,
          [createBackend({ ...a, nodeName: 'other' }), createBackend({ ...b, nodeName: 'other' })] as const,
          [a, a] as const,
          [b, a] as const,
        ]);
        expect(shared.map(([a, b]) => equal(a, b))).toEqual(shared.map(([a, b]) => text(a) === text(b)));
      }),
      EACH_FIELD,
    );
  });

  it('of services', () => {
    const servicePorts = made<Service['ports']>(
      ...PORTS.map(
        (entries) => () => ImmutableMap(entries.map(([name, port]) => [name, { ...port, nodePort: 0 }])),
      ),
      () => ImmutableMap([[HTTP[0], { ...HTTP[1], nodePort: 30_080 }]]),
    );
    const policy = oneOf<Service['externalTrafficPolicy']>('Cluster', 'Local');
    const pairOfServices = nearPairs<Service>({
      id: made(
        () => ({ namespace: 'ns', name: 'a' }),
        () => ({ namespace: 'ns', name: 'b' }),
        () => ({ namespace: 'other', name: 'a' }),
      ),
      nodeSelector: oneOf<string | undefined>(undefined, '', 'a'),
      nodeLabel: oneOf<string | undefined>(undefined, '', 'a'),
      exposedType: oneOf<Service['exposedType']>(undefined, 'ClusterIP', 'NodePort'),
      sourceRangesPolicy: oneOf<Service['sourceRangesPolicy']>('allow', 'deny'),
      type: oneOf<Service['type']>('ClusterIP', 'NodePort', 'LoadBalancer'),
      addressing: oneOf<Service['addressing']>('assigned', 'headless'),
      clusterIPs: made(
        () => List<string>(),
        () => List(['1.1.1.1']),
        () => List(['1.1.1.1', '1.1.1.2']),
        () => List(['1.1.1.2', '1.1.1.1']),
      ),
      ports: servicePorts,
      externalIPs: names,
      ingressIPs: names,
      sourceRanges: made<Service['sourceRanges']>(
        () => undefined,
        () => ImmutableSet(),
        () => ImmutableSet(['10.0.0.0/8']),
        () => ImmutableSet(['11.0.0.0/8']),
      ),
      externalTrafficPolicy: policy,
      internalTrafficPolicy: policy,
      healthCheckNodePort: oneOf(0, 1),
      sessionAffinitySeconds: oneOf(0, 1),
      publishNotReady: flag,
      global: flag,
      shared: flag,
      affinity: oneOf<Service['affinity']>('none', 'local', 'remote'),
      trafficDistribution: oneOf<Service['trafficDistribution']>('none', 'prefer-close'),
      labels: texts,
      selector: texts,
    });
    fc.assert(
      fc.property(pairOfServices, (pairs) => {
        for (const [a, b] of pairs) {
          expect(equalServices(a, b)).toBe(text(a) === text(b));
          expect(equalServices(a, a)).toBe(true);
          const internal = withoutExternalFrontends(a);
          const noNodePorts = a.ports.map((port) => ({ ...port, nodePort: 0 }));
          const bare = { ...a, type: 'ClusterIP', ports: noNodePorts, externalIPs: [], ingressIPs: [] };
          expect(text(internal)).toBe(text(bare));
          expect(internal === a).toBe(text(a) === text(bare));
        }
      }),
      EACH_FIELD,
    );
  });
});

/** Offers over the same few addresses, with all possible fields. */
const offer: fc.Arbitrary<ClusterService> = fc
  .uniqueArray(
    fc.record({
      address: fc.constantFrom('10.0.0.1', '10.0.0.2', '10.0.0.3', 'fd00::1'),
      ports: fc.constantFrom(...PORTS.slice(0, 6)),
      hostname: fc.constantFrom(undefined, '', 'h'),
      zone: fc.constantFrom(undefined, { zone: '' }, { zone: 'z' }),
      forZones: fc.constantFrom(undefined, [], ['a'], ['a', 'b'], ['b', 'a']),
    }),
    { selector: ({ address }) => address, maxLength: 4 },
  )
  .map((all) => ({
    namespace: 'ns',
    name: 'a',
    cluster: 'east',
    clusterID: 2,
    includeExternal: true,
    shared: true,
    frontends: new Map(),
    labels: new Map(),
    selector: new Map(),
    backends: new Map(all.map((each) => [each.address, new Map(each.ports)])),
    hostnames: new Map(
      all.flatMap(({ address, hostname }) => (hostname === undefined ? [] : [[address, hostname]])),
    ),
    zones: new Map(
      all.flatMap(({ address, zone, forZones }) =>
        zone === undefined ? [] : [[address, forZones === undefined ? zone : { ...zone, forZones }]],
      ),
    ),
  }));

/** Another offer, or the same with a part of the other, or in another order. */
const offerPairs = fc
  .tuple(offer, offer, fc.constantFrom('other', 'mixed', 'reversed', 'hostnames', 'zones'))
  .map(([a, b, how]) => {
    if (how === 'other') return [a, b] as const;
    if (how === 'hostnames' || how === 'zones') return [a, { ...a, [how]: b[how] }] as const;
    if (how === 'reversed') return [a, { ...a, backends: new Map([...a.backends].reverse()) }] as const;
    const [mixed] = [...b.backends];
    return [
      a,
      { ...a, backends: new Map([...a.backends, ...(mixed === undefined ? [] : [mixed])]) },
    ] as const;
  });

const byAddress = (backends: Iterable<Backend>): ImmutableMap<string, Backend> =>
  ImmutableMap(Array.from(backends, (backend) => [backend.address, backend]));

describe('an offer of a remote cluster', () => {
  it('becomes its backends; unchanged ones keep their objects', () => {
    fc.assert(
      fc.property(offerPairs, ([before, after]) => {
        const known = remoteBackends(before);
        const whole = remoteBackends(after);
        const again = remoteBackends(after, known);
        expect(text(byAddress(again))).toBe(text(byAddress(whole)));
        for (const backend of again) {
          const was = known.find(({ address }) => address === backend.address);
          expect(backend === was).toBe(was !== undefined && text(was) === text(backend));
        }
        expect(again === known).toBe(text(byAddress(known)) === text(byAddress(whole)));
      }),
    );
  });

  it('sets the fields of each backend that the offer has for its address', () => {
    fc.assert(
      fc.property(offer, (offered) => {
        const expected = Array.from(offered.backends, ([address, offeredPorts]) => ({
          address,
          nodeName: '',
          state: 'active',
          weight: 100,
          cluster: 'east',
          ports: offeredPorts,
          hostname: offered.hostnames?.get(address) ?? '',
          zone: offered.zones?.get(address)?.zone ?? '',
          forZones: new Set(offered.zones?.get(address)?.forZones),
        }));
        expect(text(remoteBackends(offered))).toBe(text(expected));
        const shared = remoteBackends(offered).map((backend) => backend.ports);
        for (const [i, each] of shared.entries()) {
          const last = shared[i - 1];
          if (last !== undefined) expect(each === last).toBe(text(each) === text(last));
        }
      }),
    );
  });

  it('differs from another in exactly the addresses with different fields', () => {
    fc.assert(
      fc.property(offerPairs, fc.nat(5), ([before, after], most) => {
        const [a, b] = [remoteBackends(before), remoteBackends(after)];
        const [was, is] = [byAddress(a), byAddress(b)];
        const differ = [...new Set([...was.keys(), ...is.keys()])].filter(
          (address) => text(was.get(address)) !== text(is.get(address)),
        );
        const visited: string[] = [];
        const went = everyDifference(a, b, (old, next) => {
          const address = old?.address ?? next?.address ?? '';
          expect([old, next]).toEqual([was.get(address), is.get(address)]);
          visited.push(address);
          return visited.length < most;
        });
        const isCut = most <= differ.length && differ.length > 0;
        expect(went).toBe(!isCut);
        expect(visited).toHaveLength(isCut ? Math.max(most, 1) : differ.length);
        expect([...differ].sort()).toEqual(expect.arrayContaining([...visited].sort()));
        expect(new Set(visited).size).toBe(visited.length);
        expect(equalBackendMaps(was, is)).toBe(differ.length === 0);
      }),
    );
  });
});

describe('two maps', () => {
  const address = (index: number): string => `10.0.${index >> 8}.${index & 255}`;
  const backendAt = (index: number, nodeName: string): Backend =>
    createBackend({ address: address(index), ports: [], nodeName });
  const mapOf = (indexes: readonly number[]): Backends =>
    ImmutableMap(indexes.map((index) => [address(index), backendAt(index, 'a')]));
  /** Shapes of the tries: leaves, sparse and dense nodes, and addresses with one hash. */
  const sizes = fc.constantFrom(0, 1, 8, 9, 33, 700).map((size) => Array.from({ length: size }, (_, i) => i));
  const colliding = ['10.10.156.242', '10.20.109.10'] as const;
  expect(hash(colliding[0])).toBe(hash(colliding[1]));
  const sameHash = colliding.map((ip) => createBackend({ address: ip, ports: [], nodeName: 'a' }));
  const edits = fc.array(
    fc.record({ at: fc.nat(750), do: fc.constantFrom('a', 'b', 'delete', 'same hash', 'other hash') }),
    { maxLength: 60 },
  );

  it('differ in exactly the addresses with different backends, however they were created', () => {
    fc.assert(
      fc.property(sizes, edits, fc.boolean(), (start, changes, isRebuilt) => {
        const before = mapOf(start);
        const changed = changes.reduce((map, { at, do: change }) => {
          if (change === 'delete') return map.delete(address(at));
          if (change === 'same hash') return map.merge(sameHash.map((one) => [one.address, one]));
          if (change === 'other hash') return map.deleteAll(sameHash.slice(1).map((one) => one.address));
          return map.set(address(at), backendAt(at, change));
        }, before);
        const after = isRebuilt ? ImmutableMap([...changed].reverse()) : changed;
        for (const [from, to] of [
          [before, after],
          [after, before],
          [before, anotherCopy.Map(after)],
          [before, OrderedMap(after)],
        ] as const) {
          const differ = [...new Set([...from.keys(), ...to.keys()])].filter(
            (at) => from.get(at)?.nodeName !== to.get(at)?.nodeName,
          );
          const visited: string[] = [];
          everyDifference(from, to, (old, next) => {
            const at = old?.address ?? next?.address ?? '';
            expect([old, next]).toEqual([from.get(at), to.get(at)]);
            return visited.push(at) > 0;
          });
          expect(visited.sort()).toEqual(differ.sort());
          expect(everyDifference(from, to, () => false)).toBe(differ.length === 0);
        }
      }),
      EACH_FIELD,
    );
  });

  it('have the nodes that the comparison knows, in the sizes of that test', () => {
    const kindsIn = (node: unknown): readonly string[] => {
      if (typeof node !== 'object' || node === null) return [];
      const nodes: unknown = Reflect.get(node, 'nodes');
      const kind = ['bitmap', 'count', 'nodes', 'keyHash', 'entry', 'entries'].filter(
        (field) => field in node,
      );
      return [kind.join(' '), ...(Array.isArray(nodes) ? nodes.flatMap(kindsIn) : [])];
    };
    const collision = mapOf([...Array(20).keys()]).merge(sameHash.map((one) => [one.address, one]));
    const maps = [mapOf([0]), mapOf([...Array(700).keys()]), collision];
    expect([...new Set(maps.flatMap((map) => kindsIn(Reflect.get(map, '_root'))))].sort()).toEqual([
      'bitmap nodes',
      'count nodes',
      'entries',
      'keyHash entries',
      'keyHash entry',
    ]);
  });

  it('of 100,000 backends are compared at the cost of their differences (regression: one pass over both)', async () => {
    const one = backendAt(0, 'a');
    const all = Array.from({ length: 100_000 }, (_, index) => ({ ...one, address: address(index) }));
    const before: Backends = ImmutableMap(all.map((each) => [each.address, each]));
    const after = before.set(address(7), backendAt(7, 'b')).delete(address(9));
    const copy = new Map(after);
    const costOf = (other: Backends | Map<string, Backend>): Promise<number> =>
      leastCpuTime(() => {
        let differences = 0;
        everyDifference(before, other, () => ++differences > 0);
        expect(differences).toBe(2);
      });
    expect(20 * (await costOf(after))).toBeLessThan(await costOf(copy));
  });
});

describe('a slice', () => {
  it('keeps the equal parts of the previous one', () => {
    fc.assert(
      fc.property(slices, slices, fc.boolean(), fc.boolean(), (one, other, likeBackends, likeNotReady) => {
        const copy = (backends: Iterable<Backend>) => byAddress(Array.from(backends, createBackend));
        const next = {
          ...one,
          backends: copy((likeBackends ? one : other).backends.values()),
          notReady: copy((likeNotReady ? one : other).notReady.values()),
        };
        const shared = shareSlice(one, next);
        expect(text(shared)).toBe(text(next));
        const same = (part: 'backends' | 'notReady'): boolean => text(one[part]) === text(next[part]);
        expect(shared.backends === one.backends).toBe(same('backends'));
        expect(shared.notReady === one.notReady).toBe(same('notReady'));
        expect(shared === one).toBe(same('backends') && same('notReady'));
        expect([shareSlice(undefined, next), shareSlice(next, next)]).toEqual([next, next]);
      }),
    );
  });

  it('consists of backends by address, the first of equal ones, ready ones first', () => {
    const [a, b, c] = [
      createBackend({ ports: [], address: '10.0.0.1', nodeName: 'first' }),
      createBackend({ ports: [], address: '10.0.0.1', nodeName: 'second' }),
      createBackend({ ports: [], address: '10.0.0.2', state: 'not-ready' }),
    ];
    const notReady = { ...a, state: 'not-ready' } as const;
    const [id] = IDS;
    if (id === undefined) throw new Error('ids');
    const slice = createEndpointSlice({ service: id, backends: [notReady, a, b, c] });
    expect(slice.name).toBe('a');
    expect([...slice.backends.values()]).toEqual([a]);
    expect([...slice.notReady.values()]).toEqual([c]);
    expect(createEndpointSlice({ service: id, name: 's', backends: [] })).toMatchObject({ name: 's' });
    expect(createEndpointSlice({ service: id, backends: [] }).notReady.size).toBe(0);
  });
});

it('omitted fields of a backend or service have the usual values', () => {
  expect(text(createBackend({ address: '10.0.0.1', ports: [] }))).toBe(
    text({
      address: '10.0.0.1',
      ports: {},
      nodeName: '',
      zone: '',
      hostname: '',
      state: 'active',
      weight: 100,
      forZones: [],
      cluster: '',
    }),
  );
  expect(text(createService({ id: { namespace: 'ns', name: 'a' } }))).toBe(
    text({
      id: { namespace: 'ns', name: 'a' },
      type: 'ClusterIP',
      addressing: 'unassigned',
      clusterIPs: [],
      ports: {},
      externalIPs: [],
      ingressIPs: [],
      sourceRangesPolicy: 'allow',
      externalTrafficPolicy: 'Cluster',
      internalTrafficPolicy: 'Cluster',
      healthCheckNodePort: 0,
      sessionAffinitySeconds: 0,
      publishNotReady: false,
      global: false,
      shared: false,
      affinity: 'none',
      trafficDistribution: 'none',
      labels: {},
      selector: {},
    }),
  );
});

/** Makes another state of a service. */
const step: fc.Arbitrary<(state: ServiceState) => ServiceState> = fc.oneof(
  services.map((service) => (state: ServiceState) => withService(state, { ...service, id: state.id })),
  slices.map((slice) => (state: ServiceState) => withSlice(state, slice.name, slice)),
  slices.map((slice) => (state: ServiceState) => withSlice(state, slice.name, undefined)),
  offers(fc.constantFrom(...CLUSTERS)).map(
    (offered) => (state: ServiceState) =>
      withWholeOffer(
        state,
        offered.cluster,
        remoteBackends(offered, state.remotes.get(offered.cluster)?.whole),
      ),
  ),
  fc
    .constantFrom(...CLUSTERS)
    .map((cluster) => (state: ServiceState) => withWholeOffer(state, cluster, undefined)),
  fc.constant((state: ServiceState) => withService(state, undefined)),
);
const steps = fc.array(step, { maxLength: 5 });

describe('a service that was changed several times, and is announced once,', () => {
  const [id] = IDS;
  if (id === undefined) throw new Error('ids');
  const changed = (
    from: ServiceState,
    changes: readonly ((state: ServiceState) => ServiceState)[],
  ): ServiceState => changes.reduce((state, change) => change(state), from);

  const expectShared = (old: ServiceState, next: ServiceState): void => {
    const shared = shareAnnounced(old, next);
    expect(text(announcedPart(shared))).toBe(text(announcedPart(next)));
    expect(shared.slices).toBe(next.slices);
    const [before, now] = [announcedPart(old), announcedPart(shared)];
    if (before === undefined || now === undefined) {
      expect(shared).toBe(next);
      return;
    }
    expect(now.service === before.service).toBe(text(now.service) === text(before.service));
    expect(now.endpoints === before.endpoints).toBe(text(now.endpoints) === text(before.endpoints));
    expect(changeBetween(old, shared) === undefined).toBe(text(now) === text(before));
  };

  it('keeps the objects of listeners if they are equal, and no others', () => {
    fc.assert(
      fc.property(steps, steps, steps, fc.boolean(), fc.boolean(), (setup, there, more, was, is) => {
        const old = withAnnounced(changed(emptyState(id), setup), was);
        // The same inputs often return as other objects.
        expectShared(old, withAnnounced(changed(changed(old, there), [...setup, ...more]), is));
      }),
    );
  });

  it('keeps them over each change of one input, and its reversal', () => {
    const setups = fc.tuple(services, fc.array(step, { minLength: 2, maxLength: 5 }));
    const changes = fc.array(step, { minLength: 12, maxLength: 12 });
    fc.assert(
      fc.property(setups, changes, ([service, inputs], each) => {
        const setup = [...inputs, (state: ServiceState) => withService(state, { ...service, id })];
        const old = withAnnounced(changed(emptyState(id), setup), true);
        for (const [i, change] of each.entries()) {
          const other = withAnnounced(change(old), true);
          expectShared(old, other);
          expectShared(old, withAnnounced((each[i - 1] ?? change)(other), true));
          expectShared(old, withAnnounced(changed(other, setup), true));
        }
      }),
      EACH_FIELD,
    );
  });

  it('is reported with its old and new state', () => {
    fc.assert(
      fc.property(steps, steps, fc.boolean(), fc.boolean(), (setup, changes, was, is) => {
        const old = withAnnounced(changed(emptyState(id), setup), was);
        const next = withAnnounced(changed(old, changes), is);
        const [before, now] = [announcedPart(old), announcedPart(next)];
        const event = changeBetween(old, next);
        if (before === undefined && now === undefined) expect(event).toBeUndefined();
        if (now !== undefined && event !== undefined) {
          expect(event).toEqual({
            action: 'update',
            id,
            ...now,
            oldService: before?.service,
            oldEndpoints: before?.endpoints,
          });
        }
        if (before !== undefined && now === undefined) {
          const { service, endpoints } = before;
          const gone = { service, oldService: service, endpoints, oldEndpoints: endpoints };
          expect(event).toEqual({ action: 'delete', id, ...gone });
          expect(changeBetween(old, undefined)).toEqual(event);
        }
      }),
    );
    expect(changeBetween(undefined, undefined)).toBeUndefined();
  });
});
