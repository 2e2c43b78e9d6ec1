import fc from 'fast-check';
import { type ClusterEndpointSlice, SERVICE_NAME_LABEL } from '../../../src/model/cluster-endpoint-slice.ts';
import type { ClusterService, ClusterServiceKey } from '../../../src/model/cluster-service.ts';
import type { PortProtocol } from '../../../src/net/port.ts';
import {
  type Backend,
  type Backends,
  createBackend,
  type EndpointSlice,
  type Ports,
} from '../../../src/servicecache/backend.ts';
import { createService, type Service, type ServicePort } from '../../../src/servicecache/service.ts';
import type { RemoteSliceID, ServiceCache } from '../../../src/servicecache/service-cache.ts';
import type { ServiceID } from '../../../src/servicecache/service-id.ts';
import { anotherCopy } from './another-copy.ts';
import type { NaiveServiceCache } from './naive-service-cache.ts';

const { Map: ImmutableMap, Set: ImmutableSet, List } = anotherCopy;

/**
 * Few names and addresses, so that everything collides: two services, two slices, two clusters, four
 * addresses.
 */
export const OWN_CLUSTER = 'own';
export const CLUSTERS = ['east', 'west'] as const;
export const IDS: readonly ServiceID[] = ['a', 'b'].map((name) => ({ namespace: 'ns', name }));
const SLICES = ['s1', 's2', 's3'] as const;
const ADDRESSES = ['10.0.0.1', '10.0.0.2', '10.0.0.3', 'fd00::1'] as const;

const TCP = 6;
const UDP = 17;
const HTTP: Ports = ImmutableMap<string, PortProtocol>({ http: { port: 8080, protocol: TCP } });
const HTTP_DNS: Ports = ImmutableMap<string, PortProtocol>({
  http: { port: 8081, protocol: TCP },
  dns: { port: 53, protocol: UDP },
});

/** One call on a cache. */
export type Operation =
  | { readonly op: 'updateService'; readonly service: Service }
  | { readonly op: 'deleteService'; readonly id: ServiceID }
  | { readonly op: 'updateEndpoints'; readonly slice: EndpointSlice }
  | { readonly op: 'deleteEndpoints'; readonly id: ServiceID; readonly slice: string }
  | { readonly op: 'merge'; readonly offer: ClusterService }
  | { readonly op: 'unmerge'; readonly offer: ClusterServiceKey }
  | { readonly op: 'mergeSlice'; readonly slice: ClusterEndpointSlice }
  | { readonly op: 'unmergeSlice'; readonly slice: RemoteSliceID }
  | { readonly op: 'withdrawCluster'; readonly cluster: string }
  | { readonly op: 'markSynced' };

const id = fc.constantFrom(...IDS);
const ports = fc.constantFrom(HTTP, HTTP_DNS);
const clusters = fc.constantFrom(...CLUSTERS);

const backend = (
  state: fc.Arbitrary<Backend['state']>,
): fc.Arbitrary<Pick<Backend, 'ports' | 'nodeName' | 'zone' | 'state'>> =>
  fc.record({
    ports,
    nodeName: fc.constantFrom('', 'n1'),
    zone: fc.constantFrom('', 'z1'),
    state,
  });

const backends = (state: fc.Arbitrary<Backend['state']>): fc.Arbitrary<Backends> =>
  fc
    .uniqueArray(fc.tuple(fc.constantFrom(...ADDRESSES), backend(state)), {
      selector: ([ip]) => ip,
      maxLength: 3,
    })
    .map((entries) =>
      ImmutableMap(entries.map(([address, rest]) => [address, createBackend({ ...rest, address })])),
    );

/** Any slice of these names. */
export const slices: fc.Arbitrary<EndpointSlice> = fc
  .record({
    service: id,
    name: fc.constantFrom(...SLICES),
    backends: backends(fc.constantFrom('active', 'active', 'terminating')),
    notReady: fc.oneof(
      { weight: 2, arbitrary: fc.constant(ImmutableMap<string, Backend>()) },
      backends(fc.constant('not-ready')),
    ),
  })
  .map((slice) => ({
    ...slice,
    notReady: slice.notReady.filterNot((_, address) => slice.backends.has(address)),
  }));

/** Any service of these names; one in ten is not served. */
export const services: fc.Arbitrary<Service> = fc
  .record({
    id,
    type: fc.constantFrom<Service['type'][]>(
      'ClusterIP',
      'ClusterIP',
      'ClusterIP',
      'NodePort',
      'ExternalName',
    ),
    addressing: fc.constantFrom<Service['addressing'][]>(
      'assigned',
      'assigned',
      'assigned',
      'headless',
      'unassigned',
    ),
    externalIPs: fc.constantFrom(ImmutableSet<string>(), ImmutableSet(['1.2.3.4'])),
    global: fc.boolean(),
    shared: fc.boolean(),
    publishNotReady: fc.boolean(),
    affinity: fc.constantFrom<Service['affinity'][]>('none', 'none', 'local', 'remote'),
    labels: fc.constantFrom(ImmutableMap<string, string>(), ImmutableMap<string, string>({ v: '1' })),
  })
  .map((fields) =>
    createService({
      ...fields,
      clusterIPs: fields.addressing === 'assigned' ? List(['172.16.0.1']) : List<string>(),
      ports: ImmutableMap<string, ServicePort>({ http: { port: 80, protocol: TCP, nodePort: 30080 } }),
    }),
  );

/** Any offer of these clusters. */
export const offers = (cluster: fc.Arbitrary<string>): fc.Arbitrary<ClusterService> =>
  fc
    .record({
      id,
      cluster,
      shared: fc.constantFrom(true, true, true, true, false),
      backends: fc.uniqueArray(fc.tuple(fc.constantFrom(...ADDRESSES), ports), {
        selector: ([ip]) => ip,
        maxLength: 3,
      }),
      zone: fc.constantFrom('', 'z2'),
    })
    .map(({ id: { namespace, name }, backends: entries, zone, ...rest }) => ({
      ...rest,
      namespace,
      name,
      frontends: new Map(),
      backends: new Map(entries.map(([ip, offered]) => [ip, new Map(offered)])),
      zones: zone === '' ? undefined : new Map(entries.map(([ip]) => [ip, { zone, forZones: [zone] }])),
      labels: new Map(),
      selector: new Map(),
      includeExternal: true,
      clusterID: 2,
    }));

const flag = fc.constantFrom(undefined, true, true, false);

/** Any slice of these clusters. */
export const remoteSlices = (cluster: fc.Arbitrary<string>): fc.Arbitrary<ClusterEndpointSlice> =>
  fc
    .record({
      service: id,
      cluster,
      name: fc.constantFrom(...SLICES),
      endpoints: fc.array(
        fc.record({
          addresses: fc.array(fc.constantFrom(...ADDRESSES), { maxLength: 2 }),
          conditions: fc.record({
            ready: flag,
            serving: flag,
            terminating: fc.constantFrom(undefined, false, true),
          }),
          nodeName: fc.constantFrom(undefined, 'n1'),
          zone: fc.constantFrom(undefined, 'z1'),
          hostname: fc.constantFrom(undefined, 'h1'),
          forZones: fc.constantFrom([], ['z1']),
          deprecatedTopology: fc.constant(new Map()),
        }),
        { maxLength: 3 },
      ),
      ports: ports.map((all) => Array.from(all, ([name, port]) => ({ name, ...port }))),
    })
    .map(({ service, ...rest }) => ({
      ...rest,
      namespace: service.namespace,
      clusterID: 2,
      labels: new Map([[SERVICE_NAME_LABEL, service.name]]),
      annotations: new Map(),
      addressType: 'IPv4' as const,
    }));

/** Any one operation; rarely one that names the local cluster as a remote one. */
export const operation: fc.Arbitrary<Operation> = fc.oneof(
  { weight: 8, arbitrary: services.map((service) => ({ op: 'updateService', service }) as const) },
  { weight: 1, arbitrary: id.map((each) => ({ op: 'deleteService', id: each }) as const) },
  { weight: 8, arbitrary: slices.map((slice) => ({ op: 'updateEndpoints', slice }) as const) },
  {
    weight: 3,
    arbitrary: fc
      .record({ id, slice: fc.constantFrom(...SLICES) })
      .map((which) => ({ op: 'deleteEndpoints', ...which }) as const),
  },
  {
    weight: 8,
    arbitrary: offers(fc.constantFrom(...CLUSTERS, ...CLUSTERS, OWN_CLUSTER)).map(
      (offer) => ({ op: 'merge', offer }) as const,
    ),
  },
  {
    weight: 3,
    arbitrary: fc
      .record({ id, cluster: clusters })
      .map(({ id: each, cluster }) => ({ op: 'unmerge', offer: { ...each, cluster } }) as const),
  },
  {
    weight: 8,
    arbitrary: remoteSlices(fc.constantFrom(...CLUSTERS, ...CLUSTERS, OWN_CLUSTER)).map(
      (slice) => ({ op: 'mergeSlice', slice }) as const,
    ),
  },
  {
    weight: 3,
    arbitrary: fc
      .record({ id, cluster: clusters, name: fc.constantFrom(...SLICES) })
      .map((slice) => ({ op: 'unmergeSlice', slice }) as const),
  },
  { weight: 1, arbitrary: clusters.map((cluster) => ({ op: 'withdrawCluster', cluster }) as const) },
  { weight: 1, arbitrary: fc.constant({ op: 'markSynced' } as const) },
);

/** A sequence of calls on the cache. */
export const history: fc.Arbitrary<Operation[]> = fc.array(operation, { maxLength: 24, size: 'max' });

type Target = Pick<ServiceCache, keyof NaiveServiceCache & keyof ServiceCache>;

/** Applies an operation to the cache or to the model, which have the same methods. Returns its result. */
export function apply(target: Target | NaiveServiceCache, operation: Operation): unknown {
  switch (operation.op) {
    case 'updateService':
      return target.updateService(operation.service);
    case 'deleteService':
      return target.deleteService(operation.id);
    case 'updateEndpoints':
      return target.updateEndpoints(operation.slice);
    case 'deleteEndpoints':
      return target.deleteEndpoints(operation.id, operation.slice);
    case 'merge':
      return target.mergeExternalServiceUpdate(operation.offer);
    case 'unmerge':
      return target.mergeExternalServiceDelete(operation.offer);
    case 'mergeSlice':
      return target.mergeExternalSliceUpdate(operation.slice);
    case 'unmergeSlice':
      return target.mergeExternalSliceDelete(operation.slice);
    case 'withdrawCluster':
      return target.withdrawCluster(operation.cluster);
    case 'markSynced':
      return target.markSynced();
  }
}
