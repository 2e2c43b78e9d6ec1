import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { bytesOfText, textOfBytes } from '../../../src/kvstore/codec/bytes.ts';
import { parseKvstoreKey, serviceExportKey } from '../../../src/kvstore/codec/keys.ts';
import { decodeServiceExport, encodeServiceExport } from '../../../src/kvstore/codec/service-export.ts';
import type { ServiceExport } from '../../../src/model/service-export.ts';
import type { Decoded } from '../../../src/net/fields.ts';

const KEY = { cluster: 'cluster1', namespace: 'default', name: 'basic' };
const AT = serviceExportKey({ cluster: 'cluster1', namespace: 'default', name: 'basic' });

/** The value of clustermesh-apiserver/clustermesh/testdata/serviceexports.txtar (1.20). */
const BASIC = {
  cluster: 'cluster1',
  name: 'basic',
  namespace: 'default',
  annotations: { 'my-annotation': 'foo' },
  labels: { 'my-label': 'test' },
  exportCreationTimestamp: '2026-01-01T00:00:00Z',
  ports: [{ name: 'my-port-1', protocol: 'TCP', port: 80 }],
  type: 'ClusterSetIP',
  sessionAffinity: 'ClientIP',
  sessionAffinityConfig: { clientIP: { timeoutSeconds: 42 } },
};

const decode = (change: object): Decoded<ServiceExport> =>
  decodeServiceExport(KEY, bytesOfText(JSON.stringify({ ...BASIC, ...change })), AT);

function accepted(change: object): ServiceExport {
  const decoded = decode(change);
  if (!decoded.ok) throw new Error(decoded.rejection.message);
  return decoded.value;
}

/** Decodes and encodes again. */
const again = (change: object): unknown =>
  JSON.parse(textOfBytes(encodeServiceExport(accepted(change))) ?? '');

describe('a service export', () => {
  it('of upstream is read, and written with the same bytes', () => {
    const value = accepted({});
    expect(value).toEqual({
      ...KEY,
      annotations: new Map([['my-annotation', 'foo']]),
      labels: new Map([['my-label', 'test']]),
      createdAt: Date.UTC(2026, 0, 1),
      ports: [{ name: 'my-port-1', port: 80, protocol: 6, appProtocol: undefined }],
      type: 'ClusterSetIP',
      sessionAffinity: 'ClientIP',
      sessionAffinitySeconds: 42,
      ipFamilies: [],
      internalTrafficPolicy: undefined,
      trafficDistribution: undefined,
    });
    expect(textOfBytes(encodeServiceExport(value))).toBe(JSON.stringify(BASIC));
  });

  it('has TCP ports if the protocol is empty or absent', () => {
    for (const protocol of ['', undefined])
      expect(accepted({ ports: [{ name: 'web', protocol, port: 80 }] }).ports).toMatchObject([
        { protocol: 6 },
      ]);
  });

  it('keeps the fields of later versions in the order of upstream', () => {
    const { sessionAffinityConfig, ...rest } = BASIC;
    const value = {
      ...rest,
      ports: [{ protocol: 'UDP', appProtocol: 'kubernetes.io/h2c', port: 53 }],
      sessionAffinity: 'None',
      ipFamilies: ['IPv6', 'IPv4'],
      internalTrafficPolicy: 'Local',
      trafficDistribution: 'PreferSameNode',
    };
    const decoded = decodeServiceExport(KEY, bytesOfText(JSON.stringify(value)), AT);
    expect(decoded.ok && textOfBytes(encodeServiceExport(decoded.value))).toBe(JSON.stringify(value));
    expect(sessionAffinityConfig).toBeDefined();
  });

  it('is written with the session affinity `None` if it has none (regression: with an empty text, which Cilium rejects)', () => {
    expect(again({ sessionAffinity: '' })).toMatchObject({ sessionAffinity: 'None' });
  });

  it('is read with the names of the fields in the source if the others are empty', () => {
    const old = { Labels: { a: '1' }, Annotations: { b: '2' } };
    expect(accepted({ labels: {}, annotations: undefined, ...old })).toMatchObject({
      labels: new Map([['a', '1']]),
      annotations: new Map([['b', '2']]),
    });
    expect(accepted(old).labels).toEqual(new Map([['my-label', 'test']]));
  });

  it.each([
    [{ cluster: '' }, 'missing-field cluster'],
    [{ cluster: 'other' }, 'key-mismatch cluster'],
    [{ namespace: undefined }, 'missing-field namespace'],
    [{ name: 'other' }, 'key-mismatch name'],
    [{ exportCreationTimestamp: null }, 'missing-field exportCreationTimestamp'],
    [{ exportCreationTimestamp: 'yesterday' }, 'invalid-time exportCreationTimestamp'],
    [{ exportCreationTimestamp: '2026-13-01T00:00:00Z' }, 'invalid-time exportCreationTimestamp'],
    [{ type: undefined }, 'missing-field type'],
    [{ type: 'ExternalName' }, 'unknown-value type'],
    [{ sessionAffinity: 'Cookie' }, 'unknown-value sessionAffinity'],
    [{ internalTrafficPolicy: 'Zone' }, 'unknown-value internalTrafficPolicy'],
    [{ trafficDistribution: 'PreferFar' }, 'unknown-value trafficDistribution'],
    [{ ipFamilies: ['IPv5'] }, 'unknown-value ipFamilies[0]'],
    [{ ipFamilies: ['IPv4', 'IPv6', 'IPv4'] }, 'too-many ipFamilies'],
    [{ ports: 'http' }, 'wrong-type ports'],
    [{ ports: Array.from({ length: 20_001 }, () => ({ port: 1 })) }, 'too-many ports'],
    [{ labels: { a: 1 } }, 'wrong-type labels.a'],
    [
      { sessionAffinityConfig: { clientIP: { timeoutSeconds: 0 } } },
      'out-of-range sessionAffinityConfig.clientIP.timeoutSeconds',
    ],
  ])('with %j is rejected: %s', (change, expected) => {
    const decoded = decode(change);
    expect(decoded.ok || `${decoded.rejection.reason} ${decoded.rejection.field}`).toBe(expected);
  });

  it('with a name that no Service can have is rejected', () => {
    const name = '../kube-system';
    const value = bytesOfText(JSON.stringify({ ...BASIC, name }));
    expect(decodeServiceExport({ ...KEY, name }, value, AT)).toMatchObject({
      rejection: { reason: 'invalid-name', field: 'name' },
    });
  });

  it('loses only the ports that a Service cannot have', () => {
    const ports = [
      { port: 0 },
      { port: 65_536 },
      { port: '80' },
      { port: 80, protocol: 'ICMP' },
      { port: 81 },
    ];
    const decoded = decode({ ports });
    expect(decoded).toMatchObject({ ok: true, value: { ports: [{ name: '', port: 81, protocol: 6 }] } });
    expect(decoded.ok && decoded.dropped?.map(({ reason, field }) => `${reason} ${field}`)).toEqual([
      'out-of-range ports[0].port',
      'out-of-range ports[1].port',
      'out-of-range ports[2].port',
      'unknown-protocol ports[3].protocol',
    ]);
  });

  it('loses only names and texts that no object can have (regression: the API server rejected the import of all clusters)', () => {
    const long = 'x'.repeat(64);
    const decoded = decode({
      labels: { 'a b': '', '/a': '', [long]: '', ok: '', 'x.io/OK_1.a': 'V', v: 'a b', w: long, x: '-a' },
      annotations: {
        'a b': 'x'.repeat(300_000),
        'x.io/ok': 'any text',
        big: 'x'.repeat(260_000),
        other: 'x'.repeat(2000),
      },
      ports: [
        { name: 'HTTP', port: 1 },
        { name: long, port: 2 },
        { name: 'a', port: 3, appProtocol: 'a b' },
        { name: 'http-1', port: 4, appProtocol: 'kubernetes.io/h2c' },
      ],
    });
    expect(decoded).toMatchObject({
      value: {
        labels: new Map([
          ['ok', ''],
          ['x.io/OK_1.a', 'V'],
        ]),
        annotations: new Map([
          ['x.io/ok', 'any text'],
          ['big', expect.anything()],
        ]),
        ports: [{ name: 'http-1', port: 4, appProtocol: 'kubernetes.io/h2c' }],
      },
    });
    expect(decoded.ok && decoded.dropped?.map(({ reason, field }) => `${reason} ${field}`)).toEqual([
      'invalid-name annotations.a b',
      'too-large annotations.other',
      'invalid-name labels.a b',
      'invalid-name labels./a',
      `invalid-name labels.${long}`,
      'invalid-value labels.v',
      'invalid-value labels.w',
      'invalid-value labels.x',
      'invalid-name ports[0].name',
      'invalid-name ports[1].name',
      'invalid-name ports[2].appProtocol',
    ]);
  });

  it('loses a label whose prefix is no DNS subdomain (regression: the API server rejected the import of all clusters)', () => {
    const decoded = decode({
      labels: { 'X.io/a': '', '-x.io/b': '', 'x..io/c': '', 'x.io/d': '' },
      annotations: { 'X.io/a': '', '.x.io/b': '' },
      ports: [
        { name: 'a', port: 1, appProtocol: 'X.io/a' },
        { name: 'b', port: 2, appProtocol: 'x.io/b' },
      ],
    });
    expect(decoded).toMatchObject({
      value: {
        labels: new Map([['x.io/d', '']]),
        annotations: new Map([['X.io/a', '']]), // the API server ignores the case of the names of annotations
        ports: [{ name: 'b', port: 2, appProtocol: 'x.io/b' }],
      },
    });
    expect(decoded.ok && decoded.dropped).toHaveLength(5);
  });

  it('of any JSON is read or rejected, and never throws', () => {
    fc.assert(
      fc.property(fc.jsonValue(), fc.constantFrom(...Object.keys(BASIC), 'ipFamilies'), (value, field) => {
        const decoded = decode({ [field]: value });
        if (decoded.ok) expect(again({ [field]: value })).toMatchObject(KEY);
      }),
    );
  });

  it('has a key that can be parsed', () => {
    expect(AT).toBe('cilium/state/serviceexports/v1/cluster1/default/basic');
    expect(parseKvstoreKey(AT)).toEqual({ kind: 'serviceexport', layout: 'state', ...KEY });
    expect(parseKvstoreKey('cilium/cache/serviceexports/v1/c/ns/s/more')).toBeUndefined();
  });
});
