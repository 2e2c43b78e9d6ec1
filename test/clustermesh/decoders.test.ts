import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  ClusterDecoders,
  type ClusterLimits,
  clusterLimits,
  NO_LIMITS,
  splitServiceName,
} from '../../src/clustermesh/decoders.ts';
import { bytesOfText } from '../../src/kvstore/codec/bytes.ts';
import { encodeIPIdentityPair } from '../../src/kvstore/codec/ip-identity-pair.ts';
import { VALUE_LIMITS, type ValueDecoder } from '../../src/kvstore/codec/value.ts';
import { rawZstdFrame } from '../../src/kvstore/codec/zstd/zstd-frame.ts';
import type { ClusterEndpointSlice } from '../../src/model/cluster-endpoint-slice.ts';
import { protoBytes } from '../kvstore/codec/support/slice-proto.ts';

const LIMITS = clusterLimits(2);
const AT = 'cilium/state/…';

function decodersOf(limits: ClusterLimits): ClusterDecoders {
  return new ClusterDecoders({ cluster: 'a', limits: () => limits });
}

/** Returns the reason and the field of a rejection; `ok` if the value is accepted. */
function verdict(decode: ValueDecoder<unknown>, name: string, value: unknown): string {
  const text = typeof value === 'string' ? value : JSON.stringify(value);
  const decoded = decode(name, value instanceof Uint8Array ? value : bytesOfText(text), AT);
  if (decoded.ok) return 'ok';
  expect(decoded.rejection.at).toBe(AT);
  return `${decoded.rejection.reason} ${decoded.rejection.field}`;
}

describe('the scanner of IPs', () => {
  const ids = [1, 255, 256, 0x2_00ff, 0x2_0100, 0x2_ffff, 0x3_0000];
  const names = [
    '10.0.0.1',
    '10.0.0.0/8',
    '10.0.0.1@2',
    '10.0.0.1@3',
    '10.0.0.0/8@2',
    'fd00::1',
    'fd00::1@3',
  ];

  it.each([
    ['of a cluster', LIMITS],
    ['without limits', NO_LIMITS],
  ])('reads exactly what the decoder accepts, and leaves address spaces to it: %s', (_, limits) => {
    const decoders = decodersOf(limits);
    for (const key of names) {
      for (const identity of ids) {
        const value = encodeIPIdentityPair({ key, identity, encryptKey: 0 });
        const message = Buffer.concat([Buffer.from('before'), value, Buffer.from('behind')]);
        const scanned = decoders.scanIP(key, message, 6, 6 + value.length);
        const decoded = decoders.ip(key, value, AT);
        const expected = decoded.ok && !key.includes('@') ? decoded.value : undefined;
        expect([key, identity, scanned]).toEqual([key, identity, expected]);
      }
    }
  });

  it.each([
    ['of a cluster', LIMITS],
    ['without limits', NO_LIMITS],
  ])('checks a pair as it reads the value: %s', (_, limits) => {
    const valueLimits = { ...VALUE_LIMITS, bytes: 300 };
    const decoders = new ClusterDecoders({ cluster: 'a', limits: () => limits, valueLimits });
    const text = fc.oneof(
      fc.constantFrom('', 'a', '"', '<', '\u00e9', '\ud800', 'x'.repeat(200)),
      fc.string(),
    );
    const address = fc.constantFrom(
      '',
      '10.0.0.1',
      '010.0.0.1',
      'fd00::1',
      'FD00::1',
      '::ffff:10.0.0.1',
      'x',
    );
    const port = { port: 80, protocol: 6 };
    const anyPair = fc.record({
      key: fc.oneof(fc.constantFrom(...names, '10.0.0.1/8', 'FD00::1', ''), address),
      identity: fc.oneof(fc.constantFrom(...ids, 0, -1, 0.5, 2 ** 32, Number.NaN), fc.nat()),
      hostIP: fc.option(address, { nil: undefined }),
      encryptKey: fc.constantFrom(0, 1, 255, 256, 0.5),
      k8s: fc.option(
        fc.record({
          namespace: text,
          podName: text,
          serviceAccount: text,
          namedPorts: fc.constantFrom(undefined, new Map([['http', port]]), new Map([['', port]])),
        }),
        { nil: undefined },
      ),
    });
    let checked = 0;
    fc.assert(
      fc.property(anyPair, (pair) => {
        const value = Buffer.from(encodeIPIdentityPair(pair));
        const isRead = decoders.scanIP(pair.key, value, 0, value.length) !== undefined;
        expect(decoders.checkIP(pair, value)).toBe(isRead);
        if (isRead) checked++;
      }),
      { numRuns: 1000 },
    );
    expect(checked).toBeGreaterThan(5);
  });
});

describe('the identities that a value of a cluster may contain', () => {
  const pair = (ID: number): object => ({ IP: '10.0.0.1', Mask: null, HostIP: '192.0.2.1', ID, Key: 0 });
  // Regression: the first 256 numbers of the cluster were rejected.
  const taken = [1, 255, 0x2_0000, 0x2_00ff, 0x2_0100, 0x2_ffff];
  const foreign = [256, 0x1_ffff, 0x3_0000, 0x102_0100];

  it('are reserved, or in the range of the cluster, for an IP', () => {
    const decode = decodersOf(LIMITS).ip;
    for (const id of taken) expect([id, verdict(decode, '10.0.0.1', pair(id))]).toEqual([id, 'ok']);
    for (const id of foreign)
      expect([id, verdict(decode, '10.0.0.1', pair(id))]).toEqual([id, 'identity-out-of-range ID']);
    expect(verdict(decode, '10.0.0.2', pair(1))).not.toBe('ok');
  });

  it('are reserved, or in the range of the cluster, for a key', () => {
    const decode = decodersOf(LIMITS).identities;
    for (const id of taken) expect([id, verdict(decode, String(id), 'k8s:a=b;')]).toEqual([id, 'ok']);
    for (const id of foreign)
      expect([id, verdict(decode, String(id), 'k8s:a=b;')]).toEqual([id, 'identity-out-of-range key']);
    expect(verdict(decode, 'x', 'k8s:a=b;')).toBe('invalid-key key');
  });

  it('are unrestricted while the range is unknown', () => {
    for (const id of [...taken, ...foreign]) {
      expect(verdict(decodersOf(NO_LIMITS).ip, '10.0.0.1', pair(id))).toBe('ok');
      expect(verdict(decodersOf(NO_LIMITS).identities, String(id), 'k8s:a=b;')).toBe('ok');
    }
  });
});

describe('the cluster in the labels of an identity', () => {
  const CLUSTER = 'io.cilium.k8s.policy.cluster';
  const decode = decodersOf(LIMITS).identities;

  it.each([
    [`k8s:${CLUSTER}=b;`, 'cluster-name-mismatch value'],
    [`k8s:${CLUSTER}=;`, 'cluster-name-mismatch value'],
    [`k8s:app=web;k8s:${CLUSTER}=ab;`, 'cluster-name-mismatch value'],
    [`any:${CLUSTER}=a;`, 'cluster-name-mismatch value'],
    [`k8s:${CLUSTER}=a;`, 'ok'],
    [`k8s:app=b;k8s:${CLUSTER}=a;`, 'ok'],
    ['k8s:app=b;', 'ok'],
  ])(
    'must be its own, or absent (regression: a cluster could impersonate another): %s',
    (labels, expected) => {
      expect(verdict(decode, String(0x2_0100), labels)).toBe(expected);
    },
  );

  it('is unrestricted in the local kvstore', () => {
    const own = new ClusterDecoders({ cluster: 'a', limits: () => NO_LIMITS, anyLabels: true }).identities;
    expect(verdict(own, '256', `k8s:${CLUSTER}=b;`)).toBe('ok');
  });
});

describe('the cluster id in a value', () => {
  const node = (ClusterID: number): object => ({ Name: 'n1', Cluster: 'a', ClusterID });
  const slice = (clusterID: number, size: number): Uint8Array => {
    const endpoint = { addresses: ['10.0.0.1'], nodeName: 'n'.repeat(63) };
    const value = { cluster: 'a', namespace: 'ns', name: 'web', clusterID, addressType: 'IPv4' };
    const labels = { 'kubernetes.io/service-name': 'web' };
    return rawZstdFrame(protoBytes({ ...value, labels, endpoints: Array(size).fill(endpoint) }));
  };
  const service = (clusterID: number): object => ({ cluster: 'a', namespace: 'ns', name: 'web', clusterID });

  it('must be that of its cluster, or 0', () => {
    const { nodes: decodeNode, services: decodeService } = decodersOf(LIMITS);
    expect([0, 2, 3].map((id) => verdict(decodeNode, 'n1', node(id)))).toEqual([
      ...['ok', 'ok', 'cluster-id-mismatch ClusterID'],
    ]);
    expect([0, 2, 3].map((id) => verdict(decodeService, 'ns/web', service(id)))).toEqual([
      ...['ok', 'ok', 'cluster-id-mismatch clusterID'],
    ]);
  });

  it('is the only address space that an IP may name', () => {
    const decode = decodersOf(LIMITS).ip;
    const names = ['10.0.0.1', '10.0.0.1@2', '10.0.0.1@3'];
    expect(names.map((name) => verdict(decode, name, { IP: '10.0.0.1' }))).toEqual([
      ...['ok', 'ok', 'cluster-id-mismatch key'],
    ]);
    expect(verdict(decodersOf(NO_LIMITS).ip, '10.0.0.1@3', { IP: '10.0.0.1' })).toBe('ok');
  });

  it('is unrestricted while the id of the cluster is unknown, under the limits at that time', () => {
    let limits = NO_LIMITS;
    const decode = new ClusterDecoders({ cluster: 'a', limits: () => limits }).nodes;
    expect(verdict(decode, 'n1', node(3))).toBe('ok');
    limits = LIMITS;
    expect(verdict(decode, 'n1', node(3))).toBe('cluster-id-mismatch ClusterID');
  });

  it('must be that of its cluster in a slice of any size, because a slice always has an id', () => {
    const { endpointslices: decode, largeSlices: decodeLarge } = decodersOf(LIMITS);
    const inSteps: ValueDecoder<ClusterEndpointSlice> = (name, value, at) => {
      const steps = value instanceof Uint8Array ? decodeLarge(name, value, at) : undefined;
      for (let step = steps?.next(); step !== undefined; step = steps?.next())
        if (step.done) return step.value;
      return decode(name, value, at);
    };
    for (const size of [1, 1000]) {
      const slices = [0, 2, 3].map((clusterID) => slice(clusterID, size));
      const expected = ['cluster-id-mismatch clusterID', 'ok', 'cluster-id-mismatch clusterID'];
      for (const each of [decode, inSteps]) {
        expect(slices.map((value) => verdict(each, 'ns/web', value))).toEqual(expected);
        expect(verdict(each, 'web', slice(2, size))).toBe('invalid-key key');
      }
      expect(decodeLarge('ns/web', slice(2, size), AT) !== undefined).toBe(size > 1);
    }
  });

  it('is checked only in a valid value', () => {
    expect(verdict(decodersOf(LIMITS).nodes, 'n2', node(3))).not.toMatch(/^ok|cluster-id/);
    const decode = decodersOf(LIMITS).services;
    expect(verdict(decode, 'ns/other', service(3))).not.toMatch(/^ok|cluster-id/);
    expect(verdict(decode, 'web', service(2))).toBe('invalid-key key');
    expect(verdict(decodersOf(LIMITS).serviceexports, 'web', service(2))).toBe('invalid-key key');
  });
});

it.each([
  ['ns/web', { namespace: 'ns', name: 'web' }],
  ['', undefined],
  ['ns', undefined],
  ['ns/', undefined],
  ['/web', undefined],
  ['ns/web/', undefined],
  ['ns/web/more', undefined],
])('the name of a service in %j is found', (text, parts) => {
  expect(splitServiceName(text)).toEqual(parts);
});
