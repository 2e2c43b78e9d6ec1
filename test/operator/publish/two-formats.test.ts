import fc from 'fast-check';
import { expect, it } from 'vitest';
import { parseEndpointSlice } from '../../../src/k8s/parse-endpoint-slice.ts';
import { parseObject } from '../../../src/k8s/parse-object.ts';
import { parseService } from '../../../src/k8s/parse-service.ts';
import { readSharedSlice } from '../../../src/k8s/parse-shared-slice.ts';
import {
  decodeClusterEndpointSlice,
  encodeClusterEndpointSlice,
} from '../../../src/kvstore/codec/cluster-endpoint-slice.ts';
import { decodeClusterService } from '../../../src/kvstore/codec/cluster-service.ts';
import type { Decoded } from '../../../src/net/fields.ts';
import { serviceValue } from '../../../src/operator/publish/service-value.ts';
import type { Backend, Backends } from '../../../src/servicecache/backend.ts';
import { ServiceCache } from '../../../src/servicecache/service-cache.ts';

const ID = { namespace: 'shop', name: 'web' };
const EAST = { cluster: 'east', clusterID: 2 } as const;
const OFFERED = { clusterName: EAST.cluster, clusterID: EAST.clusterID };

const maybe = <T>(value: fc.Arbitrary<T>): fc.Arbitrary<T | undefined> =>
  fc.option(value, { nil: undefined });
const flag = maybe(fc.boolean());
const address = {
  IPv4: fc.integer({ min: 1, max: 5 }).map((n) => `10.0.0.${n}`),
  IPv6: fc.integer({ min: 1, max: 5 }).map((n) => `fd00::${n}`),
};

/** An EndpointSlice of the service as an API server sends it. Some addresses are in several slices. */
const slice = fc.constantFrom('IPv4', 'IPv6').chain((addressType) =>
  fc.record({
    metadata: fc
      .tuple(fc.constantFrom('web-1', 'web-2', 'web-3', 'a'), fc.constantFrom(undefined, undefined, '0', '7'))
      .map(([name, weight]) => ({
        namespace: ID.namespace,
        name: `${name}-${addressType}`,
        labels: { 'kubernetes.io/service-name': ID.name },
        annotations: weight === undefined ? {} : { 'service.cilium.io/weight': weight },
      })),
    addressType: fc.constant(addressType),
    endpoints: fc.array(
      fc.record({
        addresses: fc.array(address[addressType], { minLength: 1, maxLength: 2 }),
        conditions: fc.record({ ready: flag, serving: flag, terminating: flag }),
        hostname: maybe(fc.constantFrom('web-0', 'web-1')),
        nodeName: maybe(fc.constantFrom('n1', 'n2')),
        zone: maybe(fc.constantFrom('z1', 'z2')),
        hints: maybe(fc.constantFrom({ forZones: [{ name: 'z1' }] })),
      }),
      { maxLength: 4 },
    ),
    ports: fc.uniqueArray(
      fc.record({
        name: fc.constantFrom('', 'http', 'dns'),
        protocol: maybe(fc.constantFrom('TCP', 'UDP')),
        port: fc.integer({ min: 80, max: 82 }),
      }),
      { selector: ({ name }) => name, maxLength: 3 },
    ),
  }),
);

const slices = fc.uniqueArray(slice, { selector: ({ metadata }) => metadata.name, maxLength: 4 });

const service = parseService({
  metadata: { ...ID, annotations: { 'service.cilium.io/global': 'true' } },
  spec: { type: 'ClusterIP', clusterIP: '172.16.0.1', ports: [{ name: 'http', port: 80 }] },
}).value;

function accepted<T>(decoded: Decoded<T>): T {
  if (!decoded.ok) throw new Error(decoded.rejection.message);
  expect(decoded.dropped ?? []).toEqual([]);
  return decoded.value;
}

function cacheOf(clusterName: string): ServiceCache {
  const cache = new ServiceCache({ clusterName });
  cache.updateService(service ?? expect.fail());
  cache.markSynced();
  return cache;
}

const backendsOf = (cache: ServiceCache): Backends => cache.get(ID)?.endpoints.backends ?? expect.fail();

/**
 * Returns the common content of both formats for backends that accept new connections: ports and hostname by
 * address.
 */
function commonOf(backends: Backends): unknown {
  const inState = (wanted: string): readonly Backend[] =>
    [...backends.values()].filter(({ state }) => state === wanted);
  const active = inState('active');
  return (active.length > 0 ? active : inState('terminating'))
    .map(({ address: at, hostname, cluster, ports }) => ({
      at,
      hostname,
      cluster,
      ports: [...ports].map(([name, { port, protocol }]) => [name, port, protocol]).sort(),
    }))
    .sort((a, b) => (a.at < b.at ? -1 : 1));
}

it('a cluster has the same backends in both formats, except for what services/v1 cannot express', () => {
  let [compared, more, zoned] = [0, 0, 0];
  fc.assert(
    fc.property(slices, (objects) => {
      const writer = cacheOf(EAST.cluster);
      for (const object of objects)
        writer.updateEndpoints(parseEndpointSlice(object).value ?? expect.fail('an invalid slice'));
      const value = serviceValue(service ?? expect.fail(), backendsOf(writer), OFFERED, '1.17');
      const first = cacheOf('west');
      const key = { cluster: EAST.cluster, ...ID };
      first.mergeExternalServiceUpdate(accepted(decodeClusterService(key, value ?? expect.fail(), 'v1')));

      const second = cacheOf('west');
      for (const object of objects) {
        const { value: shared, rejections } = parseObject('EndpointSlice', object, {}, readSharedSlice);
        expect(rejections).toEqual([]);
        const named = { ...EAST, ...(shared ?? expect.fail('an invalid slice')) };
        const decoded = decodeClusterEndpointSlice(named, encodeClusterEndpointSlice(named), 'v2');
        expect(second.mergeExternalSliceUpdate(accepted(decoded))).toBe('applied');
      }

      expect(commonOf(backendsOf(second))).toEqual(commonOf(backendsOf(first)));
      // services/v1 has no conditions and nodes: all backends are active, without node. No hints without a zone.
      for (const [at, { state, nodeName, zone, forZones }] of backendsOf(first)) {
        const written = backendsOf(writer).get(at) ?? expect.fail(at);
        const hints = written.zone === '' ? [] : [...written.forZones];
        expect([state, nodeName, zone, [...forZones]]).toEqual(['active', '', written.zone, hints]);
        zoned += hints.length;
      }
      for (const [at, { cluster, ...backend }] of backendsOf(second)) {
        const { cluster: _, ...written } = backendsOf(writer).get(at) ?? expect.fail(at);
        expect(JSON.stringify(backend)).toBe(JSON.stringify(written));
        expect(cluster).toBe(EAST.cluster);
      }
      expect(backendsOf(second).size).toBe(backendsOf(writer).size);
      compared += backendsOf(first).size;
      more += backendsOf(second).size - backendsOf(first).size;
    }),
  );
  // Both kinds of backends were compared.
  expect(compared).toBeGreaterThan(100);
  expect(more).toBeGreaterThan(10);
  expect(zoned).toBeGreaterThan(10);
});

it('services/v1 has the terminating backends that still serve if no other backend is left (regression: none)', () => {
  const leaving = { conditions: { ready: false, serving: true, terminating: true } };
  const gone = { conditions: { ready: false, serving: false, terminating: true } };
  const published = (endpoints: readonly object[]): unknown => {
    const writer = cacheOf(EAST.cluster);
    const metadata = { ...ID, labels: { 'kubernetes.io/service-name': ID.name } };
    const object = { metadata, addressType: 'IPv4', ports: [{ name: 'http', port: 80 }], endpoints };
    writer.updateEndpoints(parseEndpointSlice(object).value ?? expect.fail());
    const value = serviceValue(service ?? expect.fail(), backendsOf(writer), OFFERED, '1.17');
    const key = { cluster: EAST.cluster, ...ID };
    return [...accepted(decodeClusterService(key, value ?? expect.fail(), 'v1')).backends.keys()];
  };
  const [first, second] = [{ addresses: ['10.0.0.1'] }, { addresses: ['10.0.0.2'] }];
  expect(published([{ ...first, ...leaving }, second])).toEqual(['10.0.0.2']);
  expect(
    published([
      { ...first, ...leaving },
      { ...second, ...gone },
    ]),
  ).toEqual(['10.0.0.1']);
});
