import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { ExportedPort, ServiceExport } from '../../../src/model/service-export.ts';
import { type ConflictReason, mergeExports } from '../../../src/operator/mcs/merge.ts';
import { growthPerItem } from '../../base/support/cpu-time.ts';

const NAME = { namespace: 'shop', name: 'cart' };

/** Returns the export of a cluster; clusters later in the alphabet have younger ones. */
function exported(cluster: string, change: Partial<ServiceExport> = {}): ServiceExport {
  return {
    cluster,
    ...NAME,
    annotations: new Map(),
    labels: new Map(),
    createdAt: cluster.charCodeAt(0),
    ports: [],
    type: 'ClusterSetIP',
    ipFamilies: [],
    ...change,
  };
}

const port = (number: number, name = '', more: Partial<ExportedPort> = {}): ExportedPort => ({
  name,
  port: number,
  protocol: 6,
  ...more,
});

/**
 * The merge as a fold: each export, in the order of age, changes the result. Shares no code with the other.
 */
function fold(exports: readonly ServiceExport[]): object | undefined {
  const age = ({ createdAt, cluster }: ServiceExport): string =>
    `${String(createdAt).padStart(5, '0')} ${cluster}`;
  const oldestFirst = [...exports].sort((a, b) => age(a).localeCompare(age(b)));
  const reasons = new Set<string>();
  let merged: Record<string, unknown> | undefined;
  let ports: ExportedPort[] = [];
  let families: readonly string[] = [];
  for (const one of oldestFirst) {
    const { cluster, namespace, name, createdAt, ports: more, ipFamilies, ...rest } = one;
    merged ??= { ...rest, clusters: [] };
    (merged['clusters'] as string[]).push(cluster);
    for (const wanted of more) {
      const byName = ports.find((known) => known.name === wanted.name);
      const byNumber = ports.find(
        (known) => known.port === wanted.port && known.protocol === wanted.protocol,
      );
      if (byName !== undefined && byName !== byNumber) reasons.add('PortConflict');
      else if (byNumber === undefined) ports = [...ports, wanted];
      else if (JSON.stringify(byNumber) !== JSON.stringify(wanted)) reasons.add('PortConflict');
    }
    const common = families.filter((family) => (ipFamilies as readonly string[]).includes(family));
    if (families.length === 0) families = ipFamilies;
    else if (common.length > 0) families = common;
    else if (ipFamilies.length > 0) reasons.add('IPFamilyConflict');
    const differ = (property: keyof ServiceExport, reason: ConflictReason, absent?: string): void => {
      const text = (value: unknown): string =>
        JSON.stringify(value instanceof Map ? [...value].sort() : (value ?? absent ?? null));
      if (text(merged?.[property]) !== text(one[property])) reasons.add(reason);
    };
    differ('type', 'TypeConflict');
    differ('sessionAffinity', 'SessionAffinityConflict', 'None');
    differ('sessionAffinitySeconds', 'SessionAffinityConfigConflict');
    differ('annotations', 'AnnotationsConflict');
    differ('labels', 'LabelsConflict');
    differ('internalTrafficPolicy', 'InternalTrafficPolicyConflict', 'Cluster');
    differ('trafficDistribution', 'TrafficDistributionConflict');
  }
  if (merged === undefined) return undefined;
  const isUnion = oldestFirst.every((one) => JSON.stringify(one.ports) === JSON.stringify(ports));
  if (!isUnion) reasons.add('PortConflict');
  const reason = ORDER.find((known) => reasons.has(known));
  return { ...merged, ports, ipFamilies: families, reason };
}

const ORDER: readonly ConflictReason[] = [
  ...(['PortConflict', 'IPFamilyConflict', 'TypeConflict', 'SessionAffinityConflict'] as const),
  ...(['SessionAffinityConfigConflict', 'AnnotationsConflict', 'LabelsConflict'] as const),
  ...(['InternalTrafficPolicyConflict', 'TrafficDistributionConflict'] as const),
];

const maybe = <T>(...values: readonly T[]): fc.Arbitrary<T | undefined> =>
  fc.constantFrom(undefined, ...values);
const texts = fc.array(fc.tuple(fc.constantFrom('a', 'b'), fc.constantFrom('1', '2')), { maxLength: 2 });
const anyPort = fc.record({
  name: fc.constantFrom('', 'x', 'y'),
  port: fc.constantFrom(80, 81),
  protocol: fc.constantFrom(6, 17),
  appProtocol: maybe('h2c'),
});
const anyExport = fc.record({
  createdAt: fc.integer({ min: 1, max: 3 }),
  ports: fc.uniqueArray(anyPort, { maxLength: 3, selector: ({ name }) => name }),
  type: fc.constantFrom('ClusterSetIP' as const, 'Headless' as const),
  sessionAffinity: maybe('ClientIP' as const, 'None' as const),
  sessionAffinitySeconds: maybe(10, 20),
  ipFamilies: fc.constantFrom([], ['IPv4'], ['IPv6'], ['IPv4', 'IPv6'], ['IPv6', 'IPv4']),
  internalTrafficPolicy: maybe('Cluster' as const, 'Local' as const),
  trafficDistribution: maybe('PreferClose' as const, 'PreferSameZone' as const),
  annotations: texts.map((entries) => new Map(entries)),
  labels: texts.map((entries) => new Map(entries)),
});
/** Up to four exports; most properties are equal, so that each kind of conflict occurs alone. */
const anyExports = fc
  .tuple(
    anyExport,
    fc.array(fc.tuple(anyExport, fc.subarray(Object.keys({ ...exported('a') }))), { maxLength: 3 }),
  )
  .map(([first, others]) =>
    [first, ...others.map(([other, fields]) => ({ ...first, ...pick(other, fields) }))].map(
      (one, at): ServiceExport => exported('abcd'.charAt(at), one as Partial<ServiceExport>),
    ),
  );

function pick(from: object, fields: readonly string[]): object {
  return Object.fromEntries(Object.entries(from).filter(([name]) => fields.includes(name)));
}

describe('a merge', () => {
  it('is a fold over the exports from the oldest, whatever their order', () => {
    fc.assert(
      fc.property(anyExports, fc.infiniteStream(fc.nat()), (exports, ranks) => {
        const shuffled = exports.map((one) => [ranks.next().value ?? 0, one] as const);
        const merged = mergeExports(shuffled.sort(([a], [b]) => a - b).map(([, one]) => one));
        const { conflict, ...rest } = merged ?? { conflict: undefined };
        expect({ ...rest, reason: conflict?.reason }).toEqual(fold(exports));
      }),
    );
  });

  it('has at most 1000 ports, those of the oldest exports (regression: any number, more than an object can hold)', () => {
    const ports = (from: number, to: number): readonly ExportedPort[] =>
      Array.from({ length: to - from }, (_, at) => port(from + at, `p${from + at}`));
    const merged = mergeExports([
      exported('a', { ports: ports(1, 400) }),
      exported('b', { ports: ports(300, 900) }),
      exported('c', { ports: [...ports(1, 50), ...ports(900, 1200)] }),
    ]);
    expect(merged?.ports).toEqual(ports(1, 1001));
    expect(merged?.conflict).toEqual({
      reason: 'PortConflict',
      message:
        'Too many ports. Using the 1000 ports from the oldest service exports, without "p1001 1001/TCP" from cluster "c".',
    });
  });

  it('of 20,000 ports reads no more ports than it can use (regression: 5 million of 255 clusters in one turn)', () => {
    let read = 0;
    const ports = Array.from({ length: 20_000 }, (_, at) => ({
      ...port(0, `p${at}`),
      get port() {
        read++;
        return at + 1;
      },
    }));
    const clusters = Array.from({ length: 255 }, (_, at) =>
      exported(String.fromCharCode(1000 + at), { ports }),
    );
    expect(mergeExports(clusters)?.ports).toHaveLength(1000);
    expect(read).toBeLessThan(10_000);
  });

  it('of no exports is none', () => {
    expect(mergeExports([])).toBeUndefined();
    expect(fold([])).toBeUndefined();
  });

  it.each<[string, Partial<ServiceExport>, Partial<ServiceExport>, string]>([
    [
      'a port name for another number',
      { ports: [port(80, 'web')] },
      { ports: [port(81, 'web')] },
      'PortConflict: Duplicated port name "web". Using port definition "web 80/TCP" from oldest service export in cluster "a".',
    ],
    [
      'another name of a port',
      { ports: [port(80, 'web')] },
      { ports: [port(80, 'http')] },
      'PortConflict: Conflicting port name on "http 80/TCP". Using the port name "web" from oldest service export in cluster "a".',
    ],
    [
      'another appProtocol',
      { ports: [port(80, '', { appProtocol: 'h2c' })] },
      { ports: [port(80)] },
      'PortConflict: Conflicting appProtocol on "80/TCP". Using the appProtocol "h2c" from oldest service export in cluster "a".',
    ],
    [
      'ports that only one has',
      { ports: [port(80, 'web')] },
      { ports: [port(80, 'web'), port(81, 'admin')] },
      'PortConflict: Ports from cluster "a" does not match ports of oldest service export in cluster "a".',
    ],
    [
      'families that are not common',
      { ipFamilies: ['IPv4'] },
      { ipFamilies: ['IPv6'] },
      "IPFamilyConflict: IPFamilies conflict. Cluster 'b' has no IPFamilies in common.",
    ],
    ['types', {}, { type: 'Headless' }, conflict('Type', 'type', 'ClusterSetIP')],
    [
      'affinities',
      { sessionAffinity: 'ClientIP' },
      {},
      conflict('SessionAffinity', 'sessionAffinity', 'ClientIP'),
    ],
    [
      'timeouts',
      { sessionAffinitySeconds: 10 },
      { sessionAffinitySeconds: 20 },
      conflict('SessionAffinityConfig', 'sessionAffinityConfig.clientIP', '10'),
    ],
    [
      'annotations',
      { annotations: new Map([['x', '1']]) },
      {},
      conflict('Annotations', 'annotations', 'map[x:1]'),
    ],
    ['labels', {}, { labels: new Map([['x', '1']]) }, conflict('Labels', 'labels', 'map[]')],
    [
      'internal traffic policies',
      {},
      { internalTrafficPolicy: 'Local' },
      conflict('InternalTrafficPolicy', 'internalTrafficPolicy', 'Cluster'),
    ],
    [
      'traffic distributions',
      { trafficDistribution: 'PreferClose' },
      {},
      conflict('TrafficDistribution', 'trafficDistribution', 'PreferClose'),
    ],
  ])('reports different %s, and the oldest wins', (_what, oldest, youngest, expected) => {
    const merged = mergeExports([exported('b', youngest), exported('a', oldest)]);
    expect(merged?.conflict && `${merged.conflict.reason}: ${merged.conflict.message}`).toBe(expected);
    const { ports, ...properties } = exported('a', oldest);
    for (const [name, value] of Object.entries(properties))
      if (!['cluster', 'namespace', 'name', 'createdAt'].includes(name))
        expect(merged).toHaveProperty(name, value);
    expect(merged?.ports.slice(0, 1)).toEqual(ports);
  });

  it('has no conflict if absent values mean the same', () => {
    const absent = exported('a');
    const present = exported('b', { sessionAffinity: 'None', internalTrafficPolicy: 'Cluster' });
    expect(mergeExports([absent, present])?.conflict).toBeUndefined();
  });

  it('ignores the families of clusters that do not know them', () => {
    const merged = mergeExports([
      exported('a'),
      exported('b', { ipFamilies: ['IPv6', 'IPv4'] }),
      exported('c', { ipFamilies: ['IPv4'] }),
    ]);
    expect(merged).toMatchObject({ ipFamilies: ['IPv4'], conflict: undefined });
  });

  it.each([
    ['ports', 50],
    ['clusters', 250],
  ])('costs time linear in the number of %s', async (of, other) => {
    const growth = await growthPerItem(30, (count) => {
      const [portCount, clusters] = of === 'ports' ? [count, other] : [other, count];
      const ports = Array.from({ length: portCount }, (_, at) => port(at + 1, `p${at}`));
      const exports = Array.from({ length: clusters }, (_, at) =>
        exported('a', { cluster: `c${at}`, ports }),
      );
      expect(mergeExports(exports)?.ports.length).toBe(portCount);
    });
    expect(growth).toBeLessThan(6);
  });
});

function conflict(reason: string, property: string, wanted: string): string {
  return `${reason}Conflict: Conflicting ${property}. 1/2 clusters disagree. Using "${wanted}" from oldest service export in cluster "a".`;
}
