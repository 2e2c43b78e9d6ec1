import { describe, expect, it } from 'vitest';
import type { Rejection } from '../../src/base/rejection.ts';
import { ServicePartReader, servicePartRecords } from '../../src/restore/service-codec.ts';
import type { ServicePart } from '../../src/servicecache/service-parts.ts';

const HEAD = { namespace: 'shop', name: 'web' };

const SERVICE = {
  type: 'NodePort',
  addressing: 'headless',
  externalTrafficPolicy: 'Local',
  internalTrafficPolicy: 'Local',
  healthCheckNodePort: 65_535,
  sessionAffinitySeconds: 90,
  publishNotReady: true,
  global: true,
  shared: true,
  affinity: 'remote',
  trafficDistribution: 'prefer-same-zone',
  nodeSelector: 'a in (b)',
  nodeLabel: 'beefy',
  exposedType: 'LoadBalancer',
  clusterIPs: ['10.9.0.1'],
  ports: [{ name: 'http', port: 80, protocol: 6, nodePort: 30_080 }],
  externalIPs: ['203.0.113.1'],
  ingressIPs: ['203.0.113.2'],
  sourceRanges: ['192.0.2.0/24'],
  sourceRangesPolicy: 'deny',
  labels: [['app', 'web']],
  selector: [['tier', 'a']],
};

const BACKEND = {
  address: '10.0.0.1',
  ports: [{ name: 'http', port: 8080, protocol: 17 }],
  nodeName: 'n',
  zone: 'z',
  hostname: 'h',
  state: 'terminating',
  weight: 7,
  forZones: ['y'],
};

/** Returns the parts that a reader gets from records, and the reason and field of rejected ones. */
function readAll(records: readonly unknown[]): {
  readonly parts: readonly ServicePart[];
  readonly why: readonly string[];
} {
  const why: string[] = [];
  const reader = new ServicePartReader(({ reason, field }: Rejection) => why.push(`${reason} ${field}`));
  return { parts: records.flatMap((record) => reader.read(JSON.parse(JSON.stringify(record))) ?? []), why };
}

/** Returns the records that are written for the parts that were read. */
function rewritten(records: readonly unknown[]): unknown {
  const { parts, why } = readAll(records);
  expect(why).toEqual([]);
  return JSON.parse(JSON.stringify(parts.flatMap((part) => [...servicePartRecords(part)])));
}

describe('a service in a checkpoint', () => {
  it('is read back unchanged, each field', () => {
    const record = { kind: 'service', ...HEAD, service: SERVICE };
    expect(rewritten([record])).toEqual([record]);
    for (const type of ['ClusterIP', 'NodePort', 'LoadBalancer'])
      expect(rewritten([{ ...record, service: { ...SERVICE, type } }])).toMatchObject([
        { service: { type } },
      ]);
  });

  it.each([
    ['addressing', ['assigned', 'headless', 'unassigned']],
    ['externalTrafficPolicy', ['Cluster', 'Local']],
    ['internalTrafficPolicy', ['Cluster', 'Local']],
    ['affinity', ['none', 'local', 'remote']],
    ['trafficDistribution', ['none', 'prefer-close', 'prefer-same-zone', 'prefer-same-node']],
    ['publishNotReady', [true, false]],
    ['global', [true, false]],
    ['shared', [true, false]],
  ] as const)('has every %s there is', (field, values) => {
    for (const value of values) {
      const record = { kind: 'service', ...HEAD, service: { ...SERVICE, [field]: value } };
      expect(rewritten([record])).toMatchObject([{ service: { [field]: value } }]);
    }
  });

  it('has default values for absent fields, and no source ranges if there are none', () => {
    expect(rewritten([{ kind: 'service', ...HEAD, service: {} }])).toEqual([
      {
        kind: 'service',
        ...HEAD,
        service: {
          type: 'ClusterIP',
          addressing: 'unassigned',
          externalTrafficPolicy: 'Cluster',
          internalTrafficPolicy: 'Cluster',
          healthCheckNodePort: 0,
          sessionAffinitySeconds: 0,
          publishNotReady: false,
          global: false,
          shared: false,
          affinity: 'none',
          trafficDistribution: 'none',
          clusterIPs: [],
          ports: [],
          externalIPs: [],
          ingressIPs: [],
          sourceRangesPolicy: 'allow',
          labels: [],
          selector: [],
        },
      },
    ]);
    const none = { kind: 'service', ...HEAD, service: { sourceRanges: [] } };
    expect(rewritten([none])).toMatchObject([{ service: { sourceRanges: [] } }]);
  });

  it.each([
    [{ ...HEAD, service: {} }, 'missing-field kind'],
    [{ kind: 'x', ...HEAD }, 'unknown-value kind'],
    [{ kind: 'service', name: 'web', service: {} }, 'missing-field namespace'],
    [{ kind: 'service', ...HEAD }, 'wrong-type service'],
    [{ kind: 'service', ...HEAD, service: { labels: [['a']] } }, 'wrong-type service.labels[0]'],
    [{ kind: 'service', ...HEAD, service: { labels: [['a', 1]] } }, 'wrong-type service.labels[0]'],
    [{ kind: 'service', ...HEAD, service: { labels: [[1, 'a']] } }, 'wrong-type service.labels[0]'],
    [{ kind: 'service', ...HEAD, service: { selector: ['ab'] } }, 'wrong-type service.selector[0]'],
    [
      { kind: 'service', ...HEAD, service: { ports: [{ nodePort: -1 }] } },
      'out-of-range service.ports[0].nodePort',
    ],
    [
      { kind: 'service', ...HEAD, service: { healthCheckNodePort: 65_536 } },
      'out-of-range service.healthCheckNodePort',
    ],
    [{ kind: 'offer', ...HEAD }, 'missing-field of'],
    [{ kind: 'offer', ...HEAD, of: 'c', backends: [{}] }, 'missing-field backends[0].address'],
    [
      { kind: 'slice', ...HEAD, of: 's', notReady: [{ address: 'x' }] },
      'invalid-address notReady[0].address',
    ],
    [7, 'wrong-type record'],
  ])('%j is rejected: %s', (record, why) => {
    expect(readAll([record])).toEqual({ parts: [], why: [why] });
  });
});

describe('backends in a checkpoint', () => {
  it('are read back unchanged, each field', () => {
    const slice = { kind: 'slice', ...HEAD, of: 's', backends: [BACKEND], notReady: [], more: false };
    const bare = { address: '10.0.0.2', ports: [] };
    expect(rewritten([slice])).toEqual([slice]);
    const notReady = [{ ...bare, address: '10.0.0.3', state: 'not-ready' }];
    expect(rewritten([{ ...slice, backends: [bare], notReady }])).toEqual([
      { ...slice, backends: [bare], notReady },
    ]);
    const offer = { kind: 'offer', ...HEAD, of: 'east', backends: [BACKEND], notReady: [], more: false };
    expect(rewritten([offer])).toEqual([offer]);
    expect(readAll([offer]).parts).toMatchObject([{ cluster: 'east', backends: [{ cluster: 'east' }] }]);
  });

  it('in several records are joined, unless another part is in between', () => {
    const slice = { kind: 'slice', ...HEAD, of: 's', backends: [], notReady: [] };
    const of = (address: string): object => ({ address, ports: [] });
    const first = { ...slice, backends: [of('10.0.0.1')], more: true };
    const last = {
      ...slice,
      backends: [of('10.0.0.2')],
      notReady: [{ ...of('10.0.0.3'), state: 'not-ready' }],
    };
    const addresses = (records: readonly unknown[]): unknown =>
      readAll(records).parts.map((part) =>
        part.kind === 'slice'
          ? [...part.slice.backends.keys(), ...part.slice.notReady.keys()].sort()
          : part.kind,
      );
    expect(addresses([first, last])).toEqual([['10.0.0.1', '10.0.0.2', '10.0.0.3']]);
    expect(addresses([first])).toEqual([]);
    for (const other of [{ of: 't' }, { name: 'x' }, { namespace: 'x' }])
      expect(addresses([first, { ...last, ...other }])).toEqual([['10.0.0.2', '10.0.0.3']]);
    expect(addresses([first, 7, last])).toEqual([['10.0.0.2', '10.0.0.3']]);
  });

  it('is dropped as a whole if one of its records is invalid (regression: the later records became a part)', () => {
    const slice = { kind: 'slice', ...HEAD, of: 's', notReady: [] };
    const backend = { address: '10.0.0.1', ports: [] };
    const record = { ...slice, backends: [backend], more: true };
    const invalid = { ...record, backends: [{ ...backend, state: 'unknown' }] };
    const last = { ...record, more: false };
    const next = { ...last, of: 't' };
    for (const records of [
      [invalid, last],
      [record, invalid, record, last],
      [record, { ...invalid, more: false }],
    ]) {
      const { parts, why } = readAll([...records, next]);
      expect(parts).toMatchObject([{ slice: { name: 't' } }]);
      expect(why).toHaveLength(1);
    }
  });

  it('may be 130,000 in one record (regression: passed all of them as arguments of one call, and threw)', () => {
    const backends = Array.from({ length: 130_000 }, (_, i) => ({
      address: `10.${i >> 16}.${(i >> 8) & 255}.${i & 255}`,
      ports: [],
    }));
    const { parts, why } = readAll([
      { kind: 'offer', ...HEAD, of: 'c', backends, notReady: [], more: false },
    ]);
    expect(why).toEqual([]);
    expect(parts.map((part) => part.kind === 'offer' && part.backends.length)).toEqual([130_000]);
  });

  it('are limited in a record so that it stays small, the ready ones first', () => {
    const long = 'x'.repeat(2_000);
    const address = (i: number): string => `10.0.${i >> 8}.${i & 255}`;
    const backends = Array.from({ length: 300 }, (_, i) => ({
      address: address(i),
      nodeName: long,
      zone: long,
      hostname: long,
      forZones: [long],
      ports: [{ name: long, port: i, protocol: 6 }],
    }));
    const slice = { kind: 'slice', ...HEAD, of: 's', backends, notReady: [], more: false };
    const [part] = readAll([slice]).parts;
    if (part === undefined) throw new Error('it was refused');
    const records = [...servicePartRecords(part)].map((record) => JSON.stringify(record));
    expect(records.length).toBeGreaterThan(3);
    for (const record of records) expect(record.length).toBeLessThan(50_000);
    for (const record of records.slice(0, -1)) expect(record.length).toBeGreaterThan(32_768);
    const again = readAll(records.map((record) => JSON.parse(record))).parts;
    expect(again).toHaveLength(1);
    expect([...servicePartRecords(again[0] ?? part)].map((record) => JSON.stringify(record))).toEqual(
      records,
    );
  });
});
