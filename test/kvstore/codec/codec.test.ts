import { readFileSync } from 'node:fs';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { bytesOfText, textOfBytes } from '../../../src/kvstore/codec/bytes.ts';
import { decodeClusterConfig, encodeClusterConfig } from '../../../src/kvstore/codec/cluster-config.ts';
import { decodeClusterService, encodeClusterService } from '../../../src/kvstore/codec/cluster-service.ts';
import {
  decodeIdentity,
  decodeIdentityNumber,
  encodeIdentity,
  encodeIdentityNumber,
} from '../../../src/kvstore/codec/identity.ts';
import { decodeIPIdentityPair, encodeIPIdentityPair } from '../../../src/kvstore/codec/ip-identity-pair.ts';
import { parseKvstoreKey } from '../../../src/kvstore/codec/keys.ts';
import { decodeNode, encodeNode } from '../../../src/kvstore/codec/node.ts';
import { decodeTimestamp, encodeTimestamp } from '../../../src/kvstore/codec/timestamp.ts';
import type { Decoded } from '../../../src/net/fields.ts';

interface Recorded {
  readonly store: string;
  readonly key: string;
  readonly value: string;
}

const recorded: readonly Recorded[] = readFileSync('examples/mesh.jsonl', 'utf8')
  .trim()
  .split('\n')
  .map((line) => JSON.parse(line));

function proved<T>(decoded: Decoded<T>): T {
  if (!decoded.ok) throw new Error(decoded.rejection.message);
  return decoded.value;
}

/** Decodes a recorded value and encodes it again. */
function rewrite({ key, value }: Recorded): Uint8Array {
  const bytes = bytesOfText(value);
  const parsed = parseKvstoreKey(key);
  switch (parsed?.kind) {
    case 'node':
      return encodeNode(proved(decodeNode(parsed, bytes, key)));
    case 'service':
      return encodeClusterService(proved(decodeClusterService(parsed, bytes, key)));
    case 'ip':
      return encodeIPIdentityPair(proved(decodeIPIdentityPair(parsed.prefix, bytes, key)));
    case 'identity':
      return encodeIdentity(proved(decodeIdentity(parsed.id, bytes, key)).labels);
    case 'identity-value':
      return encodeIdentityNumber(proved(decodeIdentityNumber(bytes, key)));
    case 'cluster-config':
      return encodeClusterConfig(proved(decodeClusterConfig(bytes, key)));
    case 'heartbeat':
    case 'synced':
      return encodeTimestamp(proved(decodeTimestamp(bytes, key)));
    default:
      throw new Error(`no codec for ${key}`);
  }
}

describe('recorded values', () => {
  it('are written byte for byte as the original wrote them', () => {
    expect(recorded.length).toBeGreaterThan(300);
    for (const line of recorded) expect(textOfBytes(rewrite(line))).toBe(line.value);
  });
});

/** Returns the reason and the field of a rejection; `undefined` if the value is accepted. */
function rejectionOf(decoded: Decoded<unknown>): string | undefined {
  return decoded.ok ? undefined : `${decoded.rejection.reason} ${decoded.rejection.field}`;
}

const decodePair = (name: string, json: unknown): Decoded<unknown> =>
  decodeIPIdentityPair(
    name,
    bytesOfText(typeof json === 'string' ? json : JSON.stringify(json)),
    `ip/${name}`,
  );

describe('an IPIdentityPair', () => {
  const pair = { IP: '10.0.0.1', Mask: null, HostIP: '192.168.0.1', ID: 1000, Key: 3 };

  it('is decoded with its fields', () => {
    const ports = [{ Name: 'dns', Port: 53, Protocol: 'UDP' }];
    const whole = { ...pair, K8sNamespace: 'kube-system', K8sPodName: 'coredns', NamedPorts: ports, New: {} };
    expect(decodePair('10.0.0.1', whole)).toEqual({
      ok: true,
      value: {
        key: '10.0.0.1',
        identity: 1000,
        hostIP: '192.168.0.1',
        encryptKey: 3,
        k8s: {
          namespace: 'kube-system',
          podName: 'coredns',
          namedPorts: new Map([['dns', { port: 53, protocol: 17 }]]),
        },
      },
    });
  });

  it('has zero values for missing fields and null', () => {
    expect(decodePair('10.0.0.1', { IP: '10.0.0.1', HostIP: null, NamedPorts: null })).toEqual({
      ok: true,
      value: { key: '10.0.0.1', identity: 0, encryptKey: 0 },
    });
  });

  it('accepts a mask of 4 or 16 bytes for IPv4, of 16 for IPv6', () => {
    const sixteen = Buffer.from([...Array(12).fill(255), 255, 255, 0, 0]).toString('base64');
    expect(decodePair('10.1.0.0/16', { IP: '10.1.0.0', Mask: '//8AAA==' })).toMatchObject({ ok: true });
    expect(decodePair('10.1.0.0/16', { IP: '10.1.0.0', Mask: sixteen })).toMatchObject({ ok: true });
    expect(decodePair('fd00::/112', { IP: 'fd00::', Mask: sixteen })).toMatchObject({ ok: true });
    expect(rejectionOf(decodePair('fd00::/16', { IP: 'fd00::', Mask: '//8AAA==' }))).toBe(
      'invalid-mask Mask',
    );
  });

  it.each([
    ['10.0.0.1', '{', 'invalid-json value'],
    ['10.0.0.1', '[]', 'wrong-type value'],
    ['10.0.0.1', 'null', 'wrong-type value'],
    ['10.0.0.1', { ...pair, IP: '10.0.0.2' }, 'key-mismatch IP'],
    ['10.0.0.1', { ...pair, Mask: '//8AAA==' }, 'key-mismatch IP'],
    ['10.0.0.1@5', { ...pair, IP: '10.0.0.2' }, 'key-mismatch IP'],
    ['10.0.0.1@5', { ...pair, IP: '10.0.0.1@6' }, 'invalid-address IP'],
    // Regression: an IP that equals the name was accepted, although it is no address.
    ['10.0.0.1@5', { ...pair, IP: '10.0.0.1@5' }, 'invalid-address IP'],
    ['10.0.0.0/16', { ...pair, IP: '10.0.0.0/16' }, 'invalid-address IP'],
    ['10.0.0.1@05', pair, 'invalid-key key'],
    ['10.0.0.1@0', pair, 'invalid-key key'],
    ['10.0.0.1@512', pair, 'invalid-key key'],
    ['10.0.0.1', { ...pair, IP: 'ten' }, 'invalid-address IP'],
    ['10.0.0.1', { ...pair, IP: '' }, 'invalid-address IP'],
    ['10.0.0.1', { ...pair, Mask: '/wD/AA==' }, 'invalid-mask Mask'],
    ['10.0.0.1', { ...pair, Mask: 'no base64' }, 'invalid-mask Mask'],
    ['10.0.0.1', { ...pair, HostIP: '10.0.0' }, 'invalid-address HostIP'],
    ['10.0.0.1', { ...pair, HostIP: 7 }, 'wrong-type HostIP'],
    ['10.0.0.1', { ...pair, ID: -1 }, 'out-of-range ID'],
    ['10.0.0.1', { ...pair, ID: 2 ** 32 }, 'out-of-range ID'],
    ['10.0.0.1', { ...pair, ID: 1.5 }, 'out-of-range ID'],
    ['10.0.0.1', { ...pair, ID: '5' }, 'wrong-type ID'],
    ['10.0.0.1', { ...pair, Key: 256 }, 'out-of-range Key'],
    ['10.0.0.1', { ...pair, NamedPorts: {} }, 'wrong-type NamedPorts'],
    ['10.0.0.1', { ...pair, NamedPorts: [1] }, 'wrong-type NamedPorts[0]'],
    [
      '10.0.0.1',
      { ...pair, NamedPorts: [{ Name: 'a', Port: 65536, Protocol: 'TCP' }] },
      'out-of-range NamedPorts[0].Port',
    ],
    ['10.0.0', pair, 'invalid-key key'],
    ['::ffff:10.0.0.1', pair, 'invalid-key key'],
    ['10.0.0.1/8', { IP: '10.0.0.1', Mask: '/wAAAA==' }, 'invalid-key key'],
    ['FD00::1', { IP: 'fd00::1' }, 'invalid-key key'],
  ])('%s %j is rejected: %s', (name, json, expected) => {
    expect(rejectionOf(decodePair(name, json))).toBe(expected);
  });

  it('is rejected if it is not UTF-8', () => {
    expect(rejectionOf(decodeIPIdentityPair('10.0.0.1', Uint8Array.of(0x7b, 0xff, 0x7d), ''))).toBe(
      'invalid-utf8 value',
    );
  });

  it('names the kvstore key in the rejection', () => {
    const decoded = decodePair('10.0.0.1', { ...pair, ID: -1 });
    expect(decoded).toMatchObject({ ok: false, rejection: { at: 'ip/10.0.0.1', value: '-1' } });
  });
});

describe('names of properties of every JavaScript object (trap: keys such as `__proto__`)', () => {
  const hostile = '{"__proto__":{"x":1},"constructor":{"prototype":1}';

  it('are ordinary names of labels', () => {
    const json = `${hostile},"Name":"n","Cluster":"c","Labels":{"__proto__":"a","constructor":"b"}}`;
    const node = proved(decodeNode({ cluster: 'c', name: 'n' }, bytesOfText(json), ''));
    expect([...node.labels]).toEqual([
      ['__proto__', 'a'],
      ['constructor', 'b'],
    ]);
    expect(textOfBytes(encodeNode(node))).toContain('"Labels":{"__proto__":"a","constructor":"b"}');
    expect(Object.keys(Object.prototype)).toEqual([]);
  });

  it('are ordinary names of ports', () => {
    const json = `${hostile},"cluster":"c","namespace":"s","name":"n","backends":{"10.0.0.1":{"__proto__":{"Port":1,"Protocol":"TCP"}}}}`;
    const service = proved(
      decodeClusterService({ cluster: 'c', namespace: 's', name: 'n' }, bytesOfText(json), ''),
    );
    expect([...(service.backends.get('10.0.0.1')?.keys() ?? [])]).toEqual(['__proto__']);
  });

  it('do not replace a missing field', () => {
    const json = '{"__proto__":{"Name":"n","Cluster":"c"}}';
    expect(rejectionOf(decodeNode({ cluster: 'c', name: 'n' }, bytesOfText(json), ''))).toBe(
      'missing-field Name',
    );
  });
});

describe('a Node', () => {
  const key = { cluster: 'c', name: 'n' };
  const node = { Name: 'n', Cluster: 'c' };
  const decode = (json: unknown): Decoded<unknown> => decodeNode(key, bytesOfText(JSON.stringify(json)), 'k');

  it('is canonical', () => {
    const json = {
      ...node,
      IPAddresses: [
        { Type: 'InternalIP', IP: '::ffff:10.0.0.1' },
        { Type: 'Hostname', IP: '' },
      ],
      IPv6AllocCIDR: { IP: 'FD00:0::1', Mask: '//////////8AAAAAAAAAAA==' },
      IPv6HealthIP: 'FD00::2',
    };
    expect(decode(json)).toMatchObject({
      ok: true,
      value: {
        addresses: [{ type: 'InternalIP', ip: '10.0.0.1' }],
        ipv6AllocCIDR: 'fd00::/64',
        ipv6HealthIP: 'fd00::2',
      },
    });
  });

  it.each([
    [{ ...node, Name: '' }, 'missing-field Name'],
    [{ ...node, Name: 'm' }, 'key-mismatch Name'],
    [{ ...node, Cluster: 'other' }, 'key-mismatch Cluster'],
    [{ ...node, ClusterID: 512 }, 'out-of-range ClusterID'],
    [{ ...node, EncryptionKey: 256 }, 'out-of-range EncryptionKey'],
    [{ ...node, IPAddresses: [{ Type: 'InternalIP', IP: '' }] }, 'invalid-address IPAddresses[0].IP'],
    [{ ...node, IPAddresses: [{ IP: '10.0.0.1' }] }, 'missing-field IPAddresses[0].Type'],
    [{ ...node, IPv4AllocCIDR: { IP: '10.0.0.0', Mask: '' } }, 'invalid-mask IPv4AllocCIDR.Mask'],
    [{ ...node, IPv4AllocCIDR: { IP: 'fd00::', Mask: '//8AAA==' } }, 'wrong-family IPv4AllocCIDR.IP'],
    [{ ...node, IPv4HealthIP: 'fd00::1' }, 'wrong-family IPv4HealthIP'],
    [{ ...node, Labels: { a: 1 } }, 'wrong-type Labels.a'],
    [{ ...node, Labels: [] }, 'wrong-type Labels'],
  ])('%j is rejected: %s', (json, expected) => {
    expect(rejectionOf(decode(json))).toBe(expected);
  });
});

describe('a ClusterService', () => {
  const key = { cluster: 'c', namespace: 's', name: 'n' };
  const decode = (json: unknown): Decoded<unknown> =>
    decodeClusterService(key, bytesOfText(JSON.stringify(json)), 'k');

  it('of a writer without `shared` is shared', () => {
    expect(decode({ ...key, frontends: null })).toEqual({
      ok: true,
      value: {
        ...key,
        frontends: new Map(),
        backends: new Map(),
        labels: new Map(),
        selector: new Map(),
        includeExternal: false,
        shared: true,
        clusterID: 0,
      },
    });
  });

  it('keeps host names and zones by backend', () => {
    const json = {
      ...key,
      hostnames: { 'FD00::1': 'a' },
      zones: { '10.0.0.1': { zone: 'z', forZones: [{ name: 'z' }] } },
    };
    expect(decode(json)).toMatchObject({
      value: {
        hostnames: new Map([['fd00::1', 'a']]),
        zones: new Map([['10.0.0.1', { zone: 'z', forZones: ['z'] }]]),
      },
    });
  });

  it.each([
    [{ ...key, namespace: '' }, 'missing-field namespace'],
    [{ ...key, cluster: 'd' }, 'key-mismatch cluster'],
    [{ ...key, backends: { 'fd00::1': {}, 'FD00::1': {} } }, 'duplicate-address backends.FD00::1'],
    [{ ...key, backends: { '10.0.0.1': { a: null } } }, 'wrong-type backends.10.0.0.1.a'],
    [{ ...key, shared: 'true' }, 'wrong-type shared'],
    [{ ...key, clusterID: 512 }, 'out-of-range clusterID'],
  ])('%j is rejected: %s', (json, expected) => {
    expect(rejectionOf(decode(json))).toBe(expected);
  });
});

describe('identities, configuration and times', () => {
  it.each(['', '01', '-1', '4294967296', '1e3', ' 1', '1.0'])('%j is no identity', (text) => {
    expect(rejectionOf(decodeIdentity(text, bytesOfText('k8s:a=b;'), 'k'))).toBe('invalid-key key');
    expect(rejectionOf(decodeIdentityNumber(bytesOfText(text), 'k'))).toBe('out-of-range value');
  });

  it('a cluster config is decoded with its fields', () => {
    const decode = (text: string): Decoded<unknown> => decodeClusterConfig(bytesOfText(text), 'k');
    expect(decode('{}')).toEqual({
      ok: true,
      value: { id: 0, capabilities: { syncedCanaries: false, cached: false } },
    });
    expect(rejectionOf(decode('{"id":512}'))).toBe('out-of-range id');
    expect(rejectionOf(decode('{"capabilities":{"maxConnectedClusters":300}}'))).toBe(
      'out-of-range capabilities.maxConnectedClusters',
    );
  });

  it('an invalid time is rejected', () => {
    // Without a zone, the text would be a local time.
    for (const text of ['yesterday', '2026-13-40T00:00:00Z', '2026-11-20T12:00:00', '2026-11-20T12:00:00Z '])
      expect(rejectionOf(decodeTimestamp(bytesOfText(text), 'k'))).toBe('invalid-time value');
  });
});

describe('any bytes', () => {
  const decoders = [
    (bytes: Uint8Array) => decodeIPIdentityPair('10.0.0.1', bytes, 'k'),
    (bytes: Uint8Array) => decodeNode({ cluster: 'c', name: 'n' }, bytes, 'k'),
    (bytes: Uint8Array) => decodeClusterService({ cluster: 'c', namespace: 's', name: 'n' }, bytes, 'k'),
    (bytes: Uint8Array) => decodeClusterConfig(bytes, 'k'),
    (bytes: Uint8Array) => decodeIdentity('1', bytes, 'k'),
  ];

  it('result in a value or a rejection, never an exception', () => {
    const names = fc.constantFrom(
      'IP',
      'Mask',
      'Name',
      'Cluster',
      'cluster',
      'backends',
      'id',
      '__proto__',
      'Labels',
    );
    const json = fc.dictionary(names, fc.jsonValue()).map((value) => bytesOfText(JSON.stringify(value)));
    fc.assert(
      fc.property(fc.oneof(fc.uint8Array(), json), (bytes) => {
        for (const decode of decoders) expect(decode(bytes).ok).toBeTypeOf('boolean');
      }),
    );
  });
});
