import { describe, expect, it } from 'vitest';
import { bytesOfText, textOfBytes } from '../../../src/kvstore/codec/bytes.ts';
import { decodeClusterConfig, encodeClusterConfig } from '../../../src/kvstore/codec/cluster-config.ts';
import { decodeClusterService, encodeClusterService } from '../../../src/kvstore/codec/cluster-service.ts';
import { jsonMap, jsonString } from '../../../src/kvstore/codec/go-json.ts';
import { decodeIdentity } from '../../../src/kvstore/codec/identity.ts';
import { decodeIPIdentityPair, encodeIPIdentityPair } from '../../../src/kvstore/codec/ip-identity-pair.ts';
import { decodeNode, encodeNode } from '../../../src/kvstore/codec/node.ts';
import { decodeTimestamp } from '../../../src/kvstore/codec/timestamp.ts';
import { decodeInPieces, VALUE_LIMITS } from '../../../src/kvstore/codec/value.ts';
import type { Decoded } from '../../../src/net/fields.ts';
import { outcomeOf } from './support/outcome.ts';

const bytesOf = (json: unknown): Uint8Array => bytesOfText(JSON.stringify(json));
const jsonOf = (bytes: Uint8Array): unknown => JSON.parse(textOfBytes(bytes) ?? '');

function proved<T>(decoded: Decoded<T>): T {
  if (!decoded.ok) throw new Error(decoded.rejection.message);
  return decoded.value;
}

describe('a node, field by field', () => {
  const name = { cluster: 'c', name: 'n' };
  const mask = (bytes: readonly number[]): string => Buffer.from(bytes).toString('base64');
  const SIX = mask([255, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0, 0, 0, 0, 0, 0]);
  const WRITTEN = {
    Name: 'n',
    Cluster: 'c',
    IPAddresses: [{ Type: 'InternalIP', IP: '10.0.0.1' }],
    IPv4AllocCIDR: { IP: '10.1.0.0', Mask: mask([255, 255, 255, 0]) },
    IPv4SecondaryAllocCIDRs: [{ IP: '10.2.0.0', Mask: mask([255, 255, 0, 0]) }],
    IPv6AllocCIDR: { IP: 'fd00:1::', Mask: SIX },
    IPv6SecondaryAllocCIDRs: [{ IP: 'fd00:2::', Mask: SIX }],
    IPv4HealthIP: '10.1.0.2',
    IPv6HealthIP: 'fd00:1::2',
    IPv4IngressIP: '10.1.0.3',
    IPv6IngressIP: 'fd00:1::3',
    ClusterID: 511,
    Source: 'local',
    EncryptionKey: 255,
    Labels: { zone: 'a', app: '<b>' },
    Annotations: { note: '&' },
    NodeIdentity: 4_294_967_295,
    WireguardPubKey: 'key',
    BootID: 'boot',
  };
  const YOUNGER = ['IPv4SecondaryAllocCIDRs', 'IPv6SecondaryAllocCIDRs', 'IPv4IngressIP', 'IPv6IngressIP'];
  const YOUNGEST = ['Annotations', 'NodeIdentity', 'WireguardPubKey', 'BootID'];

  it('is read as it was written, and written as it was read', () => {
    const node = proved(decodeNode(name, bytesOf(WRITTEN), 'k'));
    expect(node).toEqual({
      cluster: 'c',
      name: 'n',
      clusterID: 511,
      encryptionKey: 255,
      nodeIdentity: 4_294_967_295,
      addresses: [{ type: 'InternalIP', ip: '10.0.0.1' }],
      ipv4AllocCIDR: '10.1.0.0/24',
      ipv4SecondaryAllocCIDRs: ['10.2.0.0/16'],
      ipv6AllocCIDR: 'fd00:1::/64',
      ipv6SecondaryAllocCIDRs: ['fd00:2::/64'],
      ipv4HealthIP: '10.1.0.2',
      ipv6HealthIP: 'fd00:1::2',
      ipv4IngressIP: '10.1.0.3',
      ipv6IngressIP: 'fd00:1::3',
      labels: new Map([
        ['zone', 'a'],
        ['app', '<b>'],
      ]),
      annotations: new Map([['note', '&']]),
      wireguardPubKey: 'key',
      bootID: 'boot',
    });
    expect(jsonOf(encodeNode(node))).toEqual(WRITTEN);
    const old = Object.entries(WRITTEN).filter(([field]) => ![...YOUNGER, ...YOUNGEST].includes(field));
    expect(jsonOf(encodeNode(node, { version: '1.8' }))).toEqual(Object.fromEntries(old));
    const byOperator = { ...WRITTEN, Source: 'custom-resource' };
    expect(jsonOf(encodeNode(node, { source: 'custom-resource' }))).toEqual(byOperator);
  });

  it('reads CIDRs as text, which readers of 1.21 accept and 1.22 is to write', () => {
    const texts = {
      IPv4AllocCIDR: '10.1.0.9/24',
      IPv4SecondaryAllocCIDRs: ['10.2.0.0/16', WRITTEN.IPv4SecondaryAllocCIDRs[0]],
      IPv6AllocCIDR: 'FD00:1::/64',
      IPv6SecondaryAllocCIDRs: ['fd00:2::/64'],
    };
    expect(outcomeOf(decodeNode(name, bytesOf({ ...WRITTEN, ...texts }), 'k'))).toMatchObject({
      ipv4AllocCIDR: '10.1.0.0/24',
      ipv4SecondaryAllocCIDRs: ['10.2.0.0/16', '10.2.0.0/16'],
      ipv6AllocCIDR: 'fd00:1::/64',
      ipv6SecondaryAllocCIDRs: ['fd00:2::/64'],
    });
  });

  it('has zero values for absent fields, and writes those of Go', () => {
    const node = proved(decodeNode(name, bytesOf({ Name: 'n', Cluster: 'c' }), 'k'));
    expect(node).toMatchObject({ wireguardPubKey: '', bootID: '', clusterID: 0, addresses: [] });
    const zero = {
      Name: 'n',
      Cluster: 'c',
      IPAddresses: null,
      IPv4AllocCIDR: null,
      IPv6AllocCIDR: null,
      IPv4SecondaryAllocCIDRs: null,
      IPv6SecondaryAllocCIDRs: null,
      IPv4HealthIP: '',
      IPv6HealthIP: '',
      IPv4IngressIP: '',
      IPv6IngressIP: '',
      ClusterID: 0,
      Source: 'local',
      EncryptionKey: 0,
      Labels: {},
      Annotations: null,
      NodeIdentity: 0,
      WireguardPubKey: '',
      BootID: '',
    };
    expect(jsonOf(encodeNode(node))).toEqual(zero);
    expect(jsonOf(encodeNode(node, { source: 'custom-resource' }))).toEqual({
      ...zero,
      Source: 'custom-resource',
      Labels: null,
    });
  });

  it.each(['Hostname', 'InternalDNS', 'ExternalDNS'])('a %s without an address is none', (Type) => {
    const json = { Name: 'n', Cluster: 'c', IPAddresses: [{ Type, IP: '' }] };
    expect(outcomeOf(decodeNode(name, bytesOf(json), 'k'))).toMatchObject({ addresses: [] });
  });

  it.each([
    [{ IPv4AllocCIDR: { Mask: mask([255, 0, 0, 0]) } }, 'invalid-address IPv4AllocCIDR.IP'],
    [{ IPv6AllocCIDR: { IP: 'fd00::' } }, 'invalid-mask IPv6AllocCIDR.Mask'],
    [
      { IPv6SecondaryAllocCIDRs: [{ IP: '10.0.0.0', Mask: SIX }] },
      'wrong-family IPv6SecondaryAllocCIDRs[0].IP',
    ],
    [{ IPv4AllocCIDR: '10.1.0.0' }, 'invalid-cidr IPv4AllocCIDR'],
    [{ IPv4AllocCIDR: '10.1.0.0/24@5' }, 'invalid-cidr IPv4AllocCIDR'],
    [{ IPv4AllocCIDR: '' }, 'invalid-cidr IPv4AllocCIDR'],
    [{ IPv6AllocCIDR: '10.1.0.0/24' }, 'wrong-family IPv6AllocCIDR'],
    [{ IPv4SecondaryAllocCIDRs: ['fd00:2::/64'] }, 'wrong-family IPv4SecondaryAllocCIDRs[0]'],
    [{ IPv6HealthIP: '10.0.0.1' }, 'wrong-family IPv6HealthIP'],
    [{ IPv4IngressIP: 'fd00::1' }, 'wrong-family IPv4IngressIP'],
    [{ IPv6IngressIP: '10.0.0.1' }, 'wrong-family IPv6IngressIP'],
    [{ NodeIdentity: 2 ** 32 }, 'out-of-range NodeIdentity'],
    [{ WireguardPubKey: 1 }, 'wrong-type WireguardPubKey'],
    [{ BootID: 1 }, 'wrong-type BootID'],
    [{ Annotations: { a: 1 } }, 'wrong-type Annotations.a'],
  ])('%j is rejected: %s', (json, why) => {
    expect(outcomeOf(decodeNode(name, bytesOf({ Name: 'n', Cluster: 'c', ...json }), 'k'))).toBe(why);
  });
});

describe('a service, field by field', () => {
  const key = { cluster: 'c', namespace: 's', name: 'n' };
  const WRITTEN = {
    ...key,
    frontends: { '10.9.0.1': { http: { Protocol: 'TCP', Port: 80 } } },
    backends: { '10.1.0.1': { http: { Protocol: 'TCP', Port: 8080 }, dns: { Protocol: 'UDP', Port: 53 } } },
    hostnames: { '10.1.0.1': 'web-0' },
    zones: {
      '10.1.0.1': { zone: 'z', forZones: [{ name: 'y' }, { name: 'x' }] },
      '10.1.0.2': { zone: '', forZones: [] },
    },
    labels: { app: 'web' },
    selector: { tier: 'a' },
    includeExternal: true,
    shared: false,
    clusterID: 511,
  };
  const decode = (json: object, most = 100): unknown =>
    outcomeOf(decodeClusterService(key, bytesOf(json), 'k', { ...VALUE_LIMITS, serviceEntries: most }));

  it('is written as it was read; for readers of 1.8 without unknown fields', () => {
    const service = proved(decodeClusterService(key, bytesOf(WRITTEN), 'k'));
    expect(service.zones?.get('10.1.0.1')).toEqual({ zone: 'z', forZones: ['y', 'x'] });
    expect(service.zones?.get('10.1.0.2')).toEqual({ zone: '', forZones: [] });
    expect(jsonOf(encodeClusterService(service))).toEqual(WRITTEN);
    const { hostnames, zones, includeExternal, shared, clusterID, ...old } = WRITTEN;
    expect(jsonOf(encodeClusterService(service, '1.8'))).toEqual(old);
    const unzoned = { ...service, zones: new Map([['10.1.0.1', { zone: 'z' }]]) };
    expect(jsonOf(encodeClusterService(unzoned))).toMatchObject({
      zones: { '10.1.0.1': { zone: 'z', forZones: [] } },
    });
  });

  it('may have exactly the maximum number of addresses, ports, host names and zones in total', () => {
    // 1 frontend and its port, 1 backend and its 2 ports, 1 host name, 2 zones with 2 hints
    expect(decode(WRITTEN, 10)).toMatchObject({ clusterID: 511 });
    expect(decode(WRITTEN, 9)).toBe('too-many zones.10.1.0.1.forZones');
    expect(decode(WRITTEN, 0)).toBe('too-many frontends');
  });

  it.each([
    [{ hostnames: { '10.0.0.1': null } }, 'wrong-type hostnames.10.0.0.1'],
    [{ zones: { '10.0.0.1': { forZones: ['z'] } } }, 'wrong-type zones.10.0.0.1.forZones[0]'],
    [{ zones: { '10.0.0.1': { forZones: [{ name: 1 }] } } }, 'wrong-type zones.10.0.0.1.forZones[0].name'],
    [{ includeExternal: 1 }, 'wrong-type includeExternal'],
    [{ labels: { a: 1 } }, 'wrong-type labels.a'],
    [{ selector: { a: 1 } }, 'wrong-type selector.a'],
  ])('%j is rejected: %s', (json, why) => {
    expect(decode({ ...key, ...json })).toBe(why);
  });
});

describe('an IPIdentityPair, field by field', () => {
  const pair = { IP: '10.0.0.1', Mask: null, HostIP: '', ID: 7, Key: 0, Metadata: '' };
  const decode = (json: object): unknown =>
    outcomeOf(decodeIPIdentityPair('10.0.0.1', bytesOf({ ...pair, ...json }), 'k'));

  it.each([
    [{}, undefined],
    [{ NamedPorts: [] }, undefined],
    [{ K8sNamespace: 'a' }, { namespace: 'a', podName: '' }],
    [{ K8sPodName: 'b' }, { namespace: '', podName: 'b' }],
    [
      { NamedPorts: [{ Port: 1, Protocol: 'TCP' }] },
      { namespace: '', podName: '', namedPorts: new Map([['', { port: 1, protocol: 6 }]]) },
    ],
    [
      { K8sNamespace: 'a', K8sPodName: 'b', NamedPorts: [] },
      { namespace: 'a', podName: 'b' },
    ],
    [
      { K8sNamespace: 'a', K8sPodName: 'b', K8sServiceAccount: 'c' },
      { namespace: 'a', podName: 'b', serviceAccount: 'c' },
    ],
    [
      { K8sNamespace: 'a', K8sServiceAccount: '' },
      { namespace: 'a', podName: '' },
    ],
    [{ K8sServiceAccount: 'c' }, { namespace: '', podName: '', serviceAccount: 'c' }],
    [
      { K8sServiceAccount: 'c', NamedPorts: [{ Name: 'p', Port: 1, Protocol: 'TCP' }] },
      {
        namespace: '',
        podName: '',
        serviceAccount: 'c',
        namedPorts: new Map([['p', { port: 1, protocol: 6 }]]),
      },
    ],
  ])('of %j is the pod %j', (json, k8s) => {
    const expected = { key: '10.0.0.1', identity: 7, encryptKey: 0 };
    expect(decode(json)).toEqual(k8s === undefined ? expected : { ...expected, k8s });
    if (k8s === undefined) expect(decode(json)).not.toHaveProperty('k8s');
    expect(decode(json)).not.toHaveProperty('hostIP');
  });

  it('is written without empty fields', () => {
    const k8s = { namespace: '', podName: '', serviceAccount: '', namedPorts: new Map() };
    const written = encodeIPIdentityPair({ key: '10.0.0.1', identity: 7, encryptKey: 0, k8s });
    expect(jsonOf(written)).toEqual(pair);
  });

  it('is written with the service account of 1.19 after the name of the pod', () => {
    const namedPorts = new Map([['http', { port: 80, protocol: 6 }]]);
    const k8s = { namespace: 'don', podName: 'cep-001', serviceAccount: 'default', namedPorts };
    const written = encodeIPIdentityPair({ key: '10.244.1.79', identity: 199_472, encryptKey: 0, k8s });
    expect(textOfBytes(written)).toBe(
      '{"IP":"10.244.1.79","Mask":null,"HostIP":"","ID":199472,"Key":0,"Metadata":"","K8sNamespace":"don","K8sPodName":"cep-001","K8sServiceAccount":"default","NamedPorts":[{"Name":"http","Port":80,"Protocol":"TCP"}]}',
    );
    expect(decode({ K8sServiceAccount: 7 })).toBe('wrong-type K8sServiceAccount');
  });

  it('is decoded the same after thousands of other hosts, whatever is cached', () => {
    for (let i = 0; i < 4100; i++) {
      const text = `FD00::${i.toString(16)}`;
      expect(decode({ HostIP: text })).toMatchObject({
        hostIP: text.toLowerCase() === 'fd00::0' ? 'fd00::' : text.toLowerCase(),
      });
    }
  });

  it('may contain its own key in another spelling', () => {
    expect(decode({ IP: '::ffff:10.0.0.1' })).toMatchObject({ key: '10.0.0.1' });
    expect(decode({ Mask: '' })).toMatchObject({ key: '10.0.0.1' });
    expect(decode({ IP: null, Mask: '/////w==' })).toBe('invalid-address IP');
  });

  it('may have a mapped address before a mask of IPv4 (regression: was the prefix of that length of IPv6)', () => {
    const mapped = new TextEncoder().encode('{"IP":"::ffff:10.1.0.0","Mask":"//8AAA==","ID":7}');
    expect(decodeIPIdentityPair('10.1.0.0/16', mapped, '')).toMatchObject({ ok: true });
    expect(decodeIPIdentityPair('::/16', mapped, '')).toMatchObject({
      ok: false,
      rejection: { reason: 'key-mismatch', field: 'IP' },
    });
  });
});

describe('a cluster config, field by field', () => {
  it.each([
    [
      {
        id: 511,
        capabilities: {
          syncedCanaries: true,
          cached: true,
          maxConnectedClusters: 511,
          serviceExportsEnabled: false,
        },
      },
    ],
    [{ id: 1, capabilities: { maxConnectedClusters: 255, serviceExportsEnabled: true } }],
    [{ capabilities: {} }],
  ])('%j is written as it was read', (json) => {
    const config = proved(decodeClusterConfig(bytesOf(json), 'k'));
    expect(config.capabilities).toEqual({ syncedCanaries: false, cached: false, ...json.capabilities });
    expect(jsonOf(encodeClusterConfig(config))).toEqual(json);
  });

  it.each([
    [{ capabilities: { maxConnectedClusters: 65_536 } }, 'out-of-range capabilities.maxConnectedClusters'],
    [{ capabilities: { serviceExportsEnabled: 1 } }, 'wrong-type capabilities.serviceExportsEnabled'],
    [{ capabilities: { cached: 1 } }, 'wrong-type capabilities.cached'],
    [{ capabilities: [] }, 'wrong-type capabilities'],
  ])('%j is rejected: %s', (json, why) => {
    expect(outcomeOf(decodeClusterConfig(bytesOf(json), 'k'))).toBe(why);
  });

  it('without a maximum number of clusters has none', () => {
    const { capabilities } = proved(
      decodeClusterConfig(bytesOf({ capabilities: { maxConnectedClusters: 0 } }), 'k'),
    );
    expect(capabilities).not.toHaveProperty('maxConnectedClusters');
  });
});

it('JSON is escaped and ordered as by Go: for HTML, by bytes', () => {
  expect(jsonString('<a>&\u2028\u2029"é')).toBe('"\\u003ca\\u003e\\u0026\\u2028\\u2029\\"é"');
  const map = new Map(['b', '\u{1f600}', '\ue000', 'a'].map((key) => [key, key]));
  expect(Object.keys(JSON.parse(jsonMap(map, jsonString)))).toEqual(['a', 'b', '\ue000', '\u{1f600}']);
});

describe('an identity', () => {
  const decode = (text: string, labels: number): unknown =>
    outcomeOf(decodeIdentity('300', bytesOfText(text), 'k', { ...VALUE_LIMITS, labels }));

  it('may have exactly the maximum number of labels', () => {
    expect(decode(';k8s:a=1;k8s:b=2;', 2)).toBe('too-many value');
    expect(decode('k8s:a=1;k8s:b=2;', 2)).toMatchObject({ id: 300 });
    expect(decode('k8s:a=1;k8s:b=2;', 1)).toBe('too-many value');
    expect(decode('=;', 2)).toBe('invalid-labels value');
  });
});

it('a time starts with its year', () => {
  expect(outcomeOf(decodeTimestamp(bytesOfText('x2026-11-22T00:00:00Z'), 'k'))).toBe('invalid-time value');
});

describe('a value that is decoded in turns', () => {
  const LARGE = 32 * 1024;
  const json = (bytes: number): Uint8Array => bytesOfText(`{${' '.repeat(bytes - 2)}}`);
  const decode = decodeInPieces((_, value, at) => decodeNode({ cluster: 'c', name: 'n' }, value, at), {
    ...VALUE_LIMITS,
    bytes: 2 * LARGE,
  });
  const inTurns = (value: Uint8Array): boolean => decode('n', value, 'k') !== undefined;

  it('is a large JSON object or list of an allowed size (regression: not after white space, and no list)', () => {
    expect([LARGE, LARGE + 1, 2 * LARGE, 2 * LARGE + 1].map((size) => inTurns(json(size)))).toEqual([
      ...[false, true, true, false],
    ]);
    const large = textOfBytes(json(LARGE + 1));
    const starts = [' \n', '[', 'k8s:a=b;'].map((start) => inTurns(bytesOfText(`${start}${large}`)));
    expect(starts).toEqual([true, true, false]);
  });

  const outcome = (value: Uint8Array): unknown => {
    const steps = decode('n', value, 'k');
    for (let step = steps?.next(); step !== undefined; step = steps?.next())
      if (step.done === true) return step.value.ok ? 'ok' : step.value.rejection;
    return 'at once';
  };

  it('is rejected if it is not text or not JSON', () => {
    const spoilt = json(LARGE + 1);
    spoilt[7] = 0xff;
    expect(outcome(spoilt)).toMatchObject({ reason: 'invalid-utf8', value: `"${LARGE + 1} bytes"` });
    spoilt[7] = 0x5d;
    expect(outcome(spoilt)).toMatchObject({ reason: 'invalid-json', value: '"a large value"' });
    expect(outcome(json(LARGE + 1))).toMatchObject({ reason: 'missing-field', field: 'Name' });
  });

  it('is not used for codecs of text', () => {
    expect(outcomeOf(decodeIdentity('300', { json: {} }, 'k'))).toBe('wrong-type value');
  });
});
