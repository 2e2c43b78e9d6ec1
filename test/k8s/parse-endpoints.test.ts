import { describe, expect, it } from 'vitest';
import { showValue } from '../../src/base/show-value.ts';
import { parseEndpointSlice, parseEndpointSliceID } from '../../src/k8s/parse-endpoint-slice.ts';
import { parseEndpoints } from '../../src/k8s/parse-endpoints.ts';
import type { Backend, EndpointSlice } from '../../src/servicecache/backend.ts';

const METADATA = { name: 'checkout', namespace: 'shop' };
const SLICE_METADATA = {
  name: 'checkout-x7k',
  namespace: 'shop',
  labels: { 'kubernetes.io/service-name': 'checkout' },
};
const HTTP = [{ name: 'http', port: 8080, protocol: 'TCP' }];

/** Returns backends as short text: `10.0.0.1@n1 http=8080/6`. */
function texts(
  slice: EndpointSlice | undefined,
  which: 'backends' | 'notReady' = 'backends',
): readonly string[] {
  const one = ({ address, nodeName, state, ports }: Backend): string => {
    const named = [...ports].map(([name, { port, protocol }]) => ` ${name}=${port}/${protocol}`).sort();
    return `${address}@${nodeName} ${state}${named.join('')}`;
  };
  return [...(slice?.[which].values() ?? [])].map(one).sort();
}

function endpoints(subsets: unknown): EndpointSlice | undefined {
  return parseEndpoints({ metadata: METADATA, subsets }).value;
}

function sliceOf(list: unknown, fields: object = {}): EndpointSlice | undefined {
  return parseEndpointSlice({
    metadata: SLICE_METADATA,
    addressType: 'IPv4',
    endpoints: list,
    ports: HTTP,
    ...fields,
  }).value;
}

describe('an Endpoints object', () => {
  it('is one slice under its own name', () => {
    const slice = endpoints([
      { addresses: [{ ip: '10.0.0.1', nodeName: 'n1' }, { ip: '10.0.0.2' }], ports: HTTP },
    ]);
    expect([slice?.service, slice?.name]).toEqual([{ namespace: 'shop', name: 'checkout' }, 'checkout']);
    expect(texts(slice)).toEqual(['10.0.0.1@n1 active http=8080/6', '10.0.0.2@ active http=8080/6']);
  });

  it('may be empty', () => {
    for (const subsets of [null, undefined, []]) expect(endpoints(subsets)?.backends.size).toBe(0);
  });

  it('merges the ports of an address over its subsets; the last named node counts', () => {
    const slice = endpoints([
      { addresses: [{ ip: '10.0.0.1', nodeName: 'n1' }], ports: HTTP },
      {
        addresses: [{ ip: '10.0.0.1', nodeName: 'n2' }],
        ports: [{ name: 'dns', port: 53, protocol: 'UDP' }],
      },
      { addresses: [{ ip: '10.0.0.1' }], ports: [{ name: 'http', port: 9090 }] },
    ]);
    expect(texts(slice)).toEqual(['10.0.0.1@n2 active dns=53/17 http=9090/6']);
  });

  it('has the host names of its subsets; the last one counts', () => {
    const slice = endpoints([
      { addresses: [{ ip: '10.0.0.1', hostname: 'a' }, { ip: '10.0.0.2' }] },
      { addresses: [{ ip: '10.0.0.1', hostname: 'b' }] },
      { addresses: [{ ip: '10.0.0.1' }] },
    ]);
    const hostnames = [...(slice?.backends.values() ?? [])].map(({ hostname }) => hostname);
    expect(hostnames.sort()).toEqual(['', 'b']);
  });

  it('treats two spellings of one address as one', () => {
    expect(
      texts(endpoints([{ addresses: [{ ip: 'fd00::1' }, { ip: 'FD00:0::1' }], ports: HTTP }])),
    ).toHaveLength(1);
  });

  it('keeps addresses that are not ready separately, unless they are ready in another subset', () => {
    const slice = endpoints([
      { addresses: [{ ip: '10.0.0.1' }], notReadyAddresses: [{ ip: '10.0.0.2' }], ports: HTTP },
      { notReadyAddresses: [{ ip: '10.0.0.1' }], ports: HTTP },
    ]);
    expect(texts(slice)).toEqual(['10.0.0.1@ active http=8080/6']);
    expect(texts(slice, 'notReady')).toEqual(['10.0.0.2@ not-ready http=8080/6']);
  });

  it('has no backend for the placeholder of an ingress (regression: connections were sent to a public address)', () => {
    const ports = [{ port: 9999 }];
    const addresses = [{ ip: '192.192.192.192' }];
    expect(texts(endpoints([{ addresses, ports }]))).toEqual([]);
    expect(texts(endpoints([{ addresses, ports: HTTP }]))).toHaveLength(1);
  });

  it('loses only an invalid address', () => {
    const parsed = parseEndpoints({
      metadata: METADATA,
      subsets: [
        { addresses: [{ ip: 'not-an-ip' }, { ip: '10.0.0.2', nodeName: 7 }, 9], ports: [...HTTP, 'x'] },
        8,
      ],
    });
    expect(texts(parsed.value)).toEqual(['10.0.0.2@ active http=8080/6']);
    expect(parsed.rejections[0]?.message).toContain('Endpoints shop/checkout: subsets[0].ports[1] ');
    expect(parsed.rejections.map(({ field }) => field)).toEqual([
      'subsets[0].ports[1]',
      'subsets[1]',
      'subsets[0].addresses[0].ip',
      'subsets[0].addresses[1].nodeName',
      'subsets[0].addresses[2]',
    ]);
  });
});

describe('an EndpointSlice', () => {
  it('of v1 contains node, zone and hints', () => {
    const slice = sliceOf([
      {
        addresses: ['10.0.0.1'],
        nodeName: 'n1',
        zone: 'z1',
        hostname: 'checkout-0',
        conditions: { ready: true },
        hints: { forZones: [{ name: 'z1' }, { name: 'z2' }] },
      },
    ]);
    expect([slice?.service, slice?.name]).toEqual([{ namespace: 'shop', name: 'checkout' }, 'checkout-x7k']);
    const backend = slice?.backends.get('10.0.0.1');
    expect(backend).toMatchObject({
      nodeName: 'n1',
      zone: 'z1',
      hostname: 'checkout-0',
      state: 'active',
      cluster: '',
    });
    expect([...(backend?.forZones ?? [])]).toEqual(['z1', 'z2']);
  });

  it('has no backend for the placeholder of an ingress', () => {
    const list = [{ addresses: ['192.192.192.192'] }, { addresses: ['192.192.192.193'] }];
    expect(texts(sliceOf(list, { ports: [{ port: 9999 }] }))).toEqual(['192.192.192.193@ active =9999/6']);
    expect(texts(sliceOf(list, { ports: [{ port: 9999 }, { name: 'b', port: 80 }] }))).toHaveLength(2);
    expect(texts(sliceOf(list, { ports: [] }))).toHaveLength(2);
  });

  it('contains no node, zone and hints if they are absent', () => {
    const bare = { nodeName: '', zone: '', hostname: '' };
    const [none, empty] =
      sliceOf([
        { addresses: ['10.0.0.1'] },
        { addresses: ['10.0.0.2'], topology: {}, hints: { forZones: [] } },
      ])?.backends.values() ?? [];
    for (const backend of [none, empty]) {
      expect(backend).toMatchObject(bare);
      expect(backend?.forZones.size).toBe(0);
    }
  });

  it('loses only an invalid hint', () => {
    const hints = { forZones: [null, { name: 'z1' }, { name: 7 }] };
    const slice = sliceOf([{ addresses: ['10.0.0.1'], hints }]);
    expect([...(slice?.backends.get('10.0.0.1')?.forZones ?? [])]).toEqual(['z1']);
  });

  it('of v1 keeps fields of v1beta1 as deprecated topology', () => {
    const deprecatedTopology = { 'kubernetes.io/hostname': 'n1', 'topology.kubernetes.io/zone': 'z1' };
    const backend = sliceOf([{ addresses: ['10.0.0.1'], deprecatedTopology }])?.backends.get('10.0.0.1');
    expect(backend).toMatchObject({ nodeName: 'n1', zone: 'z1' });
  });

  it('of v1beta1 has node and zone in its topology', () => {
    const topology = { 'kubernetes.io/hostname': 'n1', 'topology.kubernetes.io/zone': 'z1' };
    expect(sliceOf([{ addresses: ['10.0.0.1'], topology }])?.backends.get('10.0.0.1')).toMatchObject({
      nodeName: 'n1',
      zone: 'z1',
    });
  });

  it.each([
    [{}, 'active'],
    [{ ready: true }, 'active'],
    [{ ready: false }, 'not-ready'],
    [{ ready: null }, 'active'],
    [{ ready: false, serving: true, terminating: true }, 'terminating'],
    [{ ready: false, serving: false, terminating: true }, 'not-ready'],
    [{ ready: true, serving: true, terminating: true }, 'active'],
    [{ ready: false, terminating: true }, 'terminating'],
    [{ ready: false, serving: true, terminating: false }, 'not-ready'],
  ])('with conditions %j is %s', (conditions, state) => {
    const slice = sliceOf([{ addresses: ['10.0.0.1'], conditions }]);
    const backend = slice?.backends.get('10.0.0.1') ?? slice?.notReady.get('10.0.0.1');
    expect(backend?.state).toBe(state);
  });

  const WEIGHT = 'service.cilium.io/weight';

  it.each([
    ['0', 0, 'maintenance'],
    ['1', 1, 'active'],
    ['042', 42, 'active'],
    ['65535', 65_535, 'active'],
  ])('with the annotation weight %j weighs %i and is %s', (weight, expected, state) => {
    const slice = sliceOf(
      [{ addresses: ['10.0.0.1'] }, { addresses: ['10.0.0.2'], conditions: { ready: false } }],
      { metadata: { ...SLICE_METADATA, annotations: { [WEIGHT]: weight } } },
    );
    const [first] = slice?.backends.values() ?? [];
    expect([first?.weight, first?.state]).toEqual([expected, state]);
    expect([...(slice?.notReady.keys() ?? [])]).toEqual(weight === '0' ? [] : ['10.0.0.2']);
  });

  it.each(['', '-1', '65536', '1.5', '1e2', ' 5', 'heavy'])('loses only the invalid weight %j', (weight) => {
    const { value, rejections } = parseEndpointSlice({
      metadata: { ...SLICE_METADATA, annotations: { [WEIGHT]: weight } },
      addressType: 'IPv4',
      endpoints: [{ addresses: ['10.0.0.1'] }],
      ports: HTTP,
    });
    expect(value?.backends.get('10.0.0.1')).toMatchObject({ weight: 100, state: 'active' });
    expect(rejections).toMatchObject([
      { field: `metadata.annotations.${WEIGHT}`, reason: 'invalid-weight', value: JSON.stringify(weight) },
    ]);
  });

  it('has every protocol, TCP by default', () => {
    const ports = [
      { name: 's', port: 1, protocol: 'SCTP' },
      { port: 53, protocol: 'UDP' },
      { name: 'd', port: 7 },
    ];
    expect(texts(sliceOf([{ addresses: ['10.0.0.1'] }], { ports }))).toEqual([
      '10.0.0.1@ active =53/17 d=7/6 s=1/132',
    ]);
  });

  it('trap: several names for one port are all kept', () => {
    const ports = [...HTTP, { name: 'grpc', port: 8080, protocol: 'TCP' }];
    expect(texts(sliceOf([{ addresses: ['10.0.0.1'] }], { ports }))).toEqual([
      '10.0.0.1@ active grpc=8080/6 http=8080/6',
    ]);
  });

  it('uses the first entry of an address that is ready', () => {
    const slice = sliceOf([
      { addresses: ['10.0.0.1'], conditions: { ready: false }, nodeName: 'n0' },
      { addresses: ['10.0.0.1'], nodeName: 'n1' },
      { addresses: ['10.0.0.1', '10.0.0.5'], nodeName: 'n2' },
    ]);
    expect(texts(slice)).toEqual(['10.0.0.1@n1 active http=8080/6', '10.0.0.5@n2 active http=8080/6']);
    expect(slice?.notReady.size).toBe(0);
  });

  it('shares one set of ports among its backends', () => {
    const [first, second] = sliceOf([{ addresses: ['10.0.0.1', '10.0.0.2'] }])?.backends.values() ?? [];
    expect(first?.ports).toBe(second?.ports);
  });

  it('loses only invalid endpoints, addresses, ports and conditions', () => {
    const parsed = parseEndpointSlice({
      metadata: SLICE_METADATA,
      addressType: 'IPv4',
      endpoints: [
        7,
        { addresses: ['x', '10.0.0.2'], conditions: { ready: 'yes' } },
        { addresses: '10.0.0.3' },
      ],
      ports: [{ name: 'noport' }, ...HTTP],
    });
    expect(texts(parsed.value)).toEqual(['10.0.0.2@ active http=8080/6']);
    expect(parsed.rejections.map(({ field }) => field)).toEqual([
      'ports[0].port',
      'endpoints[0]',
      'endpoints[1].conditions.ready',
      'endpoints[1].addresses[0]',
      'endpoints[2].addresses',
    ]);
  });

  it.each<[string, object]>([
    ['no service label', { metadata: { name: 'x', namespace: 'shop' } }],
    ['no name', { metadata: { ...SLICE_METADATA, name: undefined } }],
    ['names instead of addresses', { addressType: 'FQDN' }],
  ])('with %s is rejected completely', (_what, fields) => {
    const object = { metadata: SLICE_METADATA, endpoints: [], ...fields };
    const parsed = parseEndpointSlice(object);
    expect(parsed.value).toBeUndefined();
    expect(parsed.rejections).toHaveLength(1);
  });

  it.each([
    [{}, 'missing', undefined],
    [{ 'kubernetes.io/service-name': '' }, 'missing', ''],
    [{ 'kubernetes.io/service-name': 7 }, 'wrong-type', 7],
  ])('with the labels %j is rejected with one reason', (labels, reason, value) => {
    const object = { metadata: { ...SLICE_METADATA, labels }, endpoints: [] };
    for (const parse of [parseEndpointSlice, parseEndpointSliceID]) {
      const { rejections } = parse(object);
      expect(rejections.map((each) => [each.reason, each.value])).toEqual([[reason, showValue(value)]]);
      expect(rejections[0]?.message).toContain('EndpointSlice shop/checkout-x7k: metadata.labels.');
    }
  });

  it('is named by its metadata, which a delete must contain', () => {
    expect(parseEndpointSliceID({ metadata: SLICE_METADATA }).value).toEqual({
      service: { namespace: 'shop', name: 'checkout' },
      name: 'checkout-x7k',
    });
  });
});
