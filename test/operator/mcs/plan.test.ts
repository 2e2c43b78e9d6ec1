import { describe, expect, it } from 'vitest';
import type { KubernetesObject } from '../../../src/k8s/resource.ts';
import type { SliceAddressType } from '../../../src/model/cluster-endpoint-slice.ts';
import type { ServiceExport } from '../../../src/model/service-export.ts';
import { field, items } from '../../../src/operator/collect/field.ts';
import { derivedName, MCS_VERSIONS, mcsKind } from '../../../src/operator/mcs/names.ts';
import { type McsState, planWrites } from '../../../src/operator/mcs/plan.ts';
import type { McsPart, PlannedWrite } from '../../../src/operator/mcs/planned-write.ts';

type Fields = Readonly<Record<string, unknown>>;

const DERIVED = derivedName('shop', 'cart');
const DERIVED_ANNOTATION = 'multicluster.kubernetes.io/derived-service';
const FAMILIES_ANNOTATION = 'clustermesh.cilium.io/supported-ip-families';

const EXPORT: ServiceExport = {
  cluster: 'baltic',
  namespace: 'shop',
  name: 'cart',
  createdAt: 1,
  annotations: new Map([['note', 'n']]),
  labels: new Map([['tier', 't']]),
  ports: [{ name: 'http', port: 80, protocol: 6 }],
  type: 'ClusterSetIP',
  ipFamilies: ['IPv4'],
};
const SPEC = {
  ports: [{ name: 'http', protocol: 'TCP', port: 80 }],
  type: 'ClusterSetIP',
  sessionAffinity: 'None',
  ipFamilies: ['IPv4'],
};

function objectOf(
  name: string,
  { metadata = {}, ...fields }: Fields & { metadata?: object },
): KubernetesObject {
  return { metadata: { name, namespace: 'shop', uid: 'u', resourceVersion: '7', ...metadata }, ...fields };
}

function derivedOf(...clusterIPs: readonly string[]): KubernetesObject {
  return objectOf(DERIVED, { spec: { clusterIP: clusterIPs[0], clusterIPs } });
}

function writesOf(service: Partial<ServiceExport>, state: Partial<McsState>): readonly PlannedWrite[] {
  const { writes } = planWrites({
    namespace: 'shop',
    name: 'cart',
    version: 'v1beta1',
    cluster: 'own',
    families: ['IPv4'],
    isGlobal: true,
    hasSliceSync: false,
    rejectedDistributions: new Set(),
    remote: [{ ...EXPORT, ...service }],
    isIncomplete: () => false,
    firstIncomplete: () => undefined,
    serviceExport: undefined,
    local: undefined,
    service: undefined,
    serviceImport: undefined,
    derived: undefined,
    now: 'NOW',
    ...state,
  });
  return writes;
}

/** Returns the object or the operations of each write, by part. */
function plan(
  service: Partial<ServiceExport>,
  state: Partial<McsState> = {},
): Partial<Record<McsPart, unknown>> {
  const content = writesOf(service, state).map(({ part, write }): [McsPart, unknown] => {
    if (write.verb === 'create') return [part, write.object];
    return [part, write.verb === 'patch' ? write.operations.slice(1) : 'deleted'];
  });
  return Object.fromEntries(content);
}

function created(service: Partial<ServiceExport>, state: Partial<McsState> = {}): Fields {
  return plan(service, state).import as Fields;
}

describe('a new import', () => {
  it('has the names, the labels, the annotations and the spec of the merged exports', () => {
    expect(created({})).toEqual({
      apiVersion: 'multicluster.x-k8s.io/v1beta1',
      kind: 'ServiceImport',
      metadata: {
        namespace: 'shop',
        name: 'cart',
        labels: { tier: 't' },
        annotations: { note: 'n', [FAMILIES_ANNOTATION]: 'IPv4' },
      },
      spec: SPEC,
    });
  });

  it.each(MCS_VERSIONS)('is written in the version of this cluster: %s', (version) => {
    expect(writesOf({}, { version })).toMatchObject([
      {
        part: 'import',
        write: { verb: 'create', kind: mcsKind('serviceimports', version), namespace: 'shop' },
        reason: '1 cluster exports it: baltic',
      },
    ]);
    expect(created({}, { version })['apiVersion']).toBe(`multicluster.x-k8s.io/${version}`);
  });

  it.each<readonly [property: string, Partial<ServiceExport>, spec: object]>([
    [
      'a timeout',
      { sessionAffinitySeconds: 42 },
      { sessionAffinityConfig: { clientIP: { timeoutSeconds: 42 } } },
    ],
    ['an affinity', { sessionAffinity: 'ClientIP' }, { sessionAffinity: 'ClientIP' }],
    ['a policy', { internalTrafficPolicy: 'Local' }, { internalTrafficPolicy: 'Local' }],
    ['a distribution', { trafficDistribution: 'PreferClose' }, { trafficDistribution: 'PreferClose' }],
    ['two families', { ipFamilies: ['IPv6', 'IPv4'] }, { ipFamilies: ['IPv6', 'IPv4'] }],
    ['a headless service', { type: 'Headless' }, { type: 'Headless' }],
    [
      'a port without a name, and with a protocol of the application',
      { ports: [{ name: '', port: 53, protocol: 17, appProtocol: 'dns' }] },
      { ports: [{ protocol: 'UDP', port: 53, appProtocol: 'dns' }] },
    ],
  ])('has %s of the exports in its spec, and nothing else changes', (_, service, spec) => {
    expect(created(service)['spec']).toStrictEqual({ ...SPEC, ...spec });
  });

  it.each<readonly [SliceAddressType[], local: SliceAddressType[], supported: string]>([
    [[], ['IPv4', 'IPv6'], 'IPv4,IPv6'],
    [['IPv6', 'IPv4'], ['IPv4', 'IPv6'], 'IPv6,IPv4'],
    [['IPv6', 'IPv4'], ['IPv4'], 'IPv4'],
    [['IPv6'], ['IPv4'], ''],
  ])(
    'of the families %o has those of this cluster, %o, in its annotation: %s',
    (ipFamilies, families, supported) => {
      const { metadata, spec } = created({ ipFamilies }, { families }) as Record<string, Fields>;
      expect(metadata?.['annotations']).toEqual({ note: 'n', [FAMILIES_ANNOTATION]: supported });
      expect(spec?.['ipFamilies']).toEqual(ipFamilies.length === 0 ? undefined : ipFamilies);
    },
  );

  it.each([
    ['ClusterSetIP', '10.96.0.1', true, ['10.96.0.1']],
    ['ClusterSetIP', 'None', false, undefined],
    ['Headless', '10.96.0.1', false, undefined],
    ['Headless', 'None', true, undefined],
    ['ClusterSetIP', '', true, undefined], // the API server has not set it yet
  ] as const)(
    'of type %s has the derived Service with the IP %s in its annotation %s, and the IPs %o',
    (type, clusterIP, isCurrent, ips) => {
      const { metadata, spec } = created(
        { type },
        { derived: clusterIP ? derivedOf(clusterIP) : derivedOf() },
      ) as Record<string, Fields>;
      const annotations = { note: 'n', [FAMILIES_ANNOTATION]: 'IPv4' };
      expect(metadata?.['annotations']).toEqual(
        isCurrent ? { ...annotations, [DERIVED_ANNOTATION]: DERIVED } : annotations,
      );
      expect(spec?.['ips']).toEqual(ips);
    },
  );
});

describe('the spec of a derived Service', () => {
  const derivedSpec = (service: Partial<ServiceExport>, state: Partial<McsState> = {}): Fields => {
    const { 'derived service': derived } = plan(service, { serviceImport: objectOf('cart', {}), ...state });
    return (derived as { spec: Fields }).spec;
  };
  const spec = {
    type: 'ClusterIP',
    ipFamilyPolicy: 'PreferDualStack',
    internalTrafficPolicy: 'Cluster',
    sessionAffinity: 'None',
    ports: [{ name: 'http', protocol: 'TCP', port: 80, targetPort: 80 }],
  };

  // Cilium 1.19, pkg/clustermesh/mcsapi/service_controller.go (#43233); KEP-1645 for the session affinity
  it.each<readonly [Partial<ServiceExport>, object]>([
    [{}, {}],
    [{ internalTrafficPolicy: 'Local' }, { internalTrafficPolicy: 'Local' }],
    [{ trafficDistribution: 'PreferClose' }, { trafficDistribution: 'PreferClose' }],
    [{ type: 'Headless' }, { clusterIP: 'None' }],
    [
      { sessionAffinity: 'ClientIP', sessionAffinitySeconds: 42 },
      { sessionAffinity: 'ClientIP', sessionAffinityConfig: { clientIP: { timeoutSeconds: 42 } } },
    ],
    [
      { sessionAffinity: 'ClientIP' }, // with the default of Kubernetes
      { sessionAffinity: 'ClientIP', sessionAffinityConfig: { clientIP: { timeoutSeconds: 10_800 } } },
    ],
    [{ sessionAffinitySeconds: 42 }, {}], // without affinity, the API server rejects a timeout
  ])('has the traffic properties %o of the import (regression: they had no effect)', (service, change) => {
    expect(derivedSpec(service)).toStrictEqual({ ...spec, ...change });
  });

  it('changes with the import, and loses what the import loses', () => {
    const current = { ...spec, clusterIP: '10.96.0.1', trafficDistribution: 'PreferClose' };
    const timeout = { clientIP: { timeoutSeconds: 42 } };
    const operations = (change: object): unknown => {
      const derived = objectOf(DERIVED, {
        metadata: {
          labels: { tier: 't', 'multicluster.kubernetes.io/service-name': 'cart' },
          annotations: {
            note: 'n',
            [FAMILIES_ANNOTATION]: 'IPv4',
            [DERIVED_ANNOTATION]: DERIVED,
            'service.cilium.io/global': 'true',
          },
          ownerReferences: [{ uid: 'u' }],
        },
        spec: { ...current, ...change },
      });
      const state = { serviceImport: objectOf('cart', {}), derived };
      return plan({ trafficDistribution: 'PreferClose' }, state)['derived service'];
    };
    expect(operations({})).toBeUndefined();
    expect(operations({ internalTrafficPolicy: 'Local', ipFamilyPolicy: 'SingleStack' })).toEqual([
      { op: 'add', path: '/spec/ipFamilyPolicy', value: 'PreferDualStack' },
      { op: 'add', path: '/spec/internalTrafficPolicy', value: 'Cluster' },
    ]);
    expect(operations({ sessionAffinity: 'ClientIP', sessionAffinityConfig: timeout })).toEqual([
      { op: 'add', path: '/spec/sessionAffinity', value: 'None' },
      { op: 'remove', path: '/spec/sessionAffinityConfig' },
    ]);
  });
});

it('a derived Service names a port that has no name differently from all others (regression: the API server rejected two equal names)', () => {
  const ports = [
    { name: '', port: 80, protocol: 6 },
    { name: 'tcp-80', port: 8080, protocol: 6 },
  ];
  const { 'derived service': derived } = plan({ ports }, { serviceImport: objectOf('cart', {}) });
  expect(derived).toMatchObject({
    spec: {
      ports: [
        { name: 'tcp-80-1', port: 80 },
        { name: 'tcp-80', port: 8080 },
      ],
    },
  });
});

it('a derived Service has port names of a valid length (regression: the API server rejected tcp-80-1-1-1… if clusters export all shorter ones)', () => {
  const taken = Array.from({ length: 29 }, (_, count) => `tcp-80${'-1'.repeat(count)}`);
  const ports = [
    { name: '', port: 80, protocol: 6 },
    ...taken.map((name, at) => ({ name, port: 8000 + at, protocol: 6 })),
  ];
  const [write] = writesOf({ ports }, { serviceImport: objectOf('cart', {}) }).filter(
    ({ part }) => part === 'derived service',
  );
  const derived = write?.write.verb === 'create' ? write.write.object : undefined;
  const names = items(derived, 'spec', 'ports').map((port) => String(field(port, 'name')));
  expect(names.filter((name) => name.length > 63)).toEqual([]);
  expect(new Set(names).size).toBe(ports.length);
});

it('a Service of this name that belongs to another import is not changed (regression: both names patched it in turn)', () => {
  const metadata = { labels: { 'multicluster.kubernetes.io/service-name': 'other' } };
  const derived = objectOf(DERIVED, {
    metadata,
    spec: { clusterIP: '10.96.0.1', clusterIPs: ['10.96.0.1'] },
  });
  const planned = plan({}, { serviceImport: objectOf('cart', {}), derived });
  expect(planned['derived service']).toBeUndefined();
  expect(planned['import']).toMatchObject([
    {},
    {},
    { value: expect.not.objectContaining({ ips: ['10.96.0.1'] }) },
  ]);
  expect(JSON.stringify(planned['import status'])).toContain('"reason":"Pending"');
});

it('a derived Service has the target port of its protocol (regression: that of the last port with the same number)', () => {
  const ports = [
    { name: 'dns', port: 53, protocol: 17 },
    { name: 'dns-tcp', port: 53, protocol: 6 },
  ];
  const service = objectOf('cart', {
    spec: {
      ports: [
        { name: 'dns', port: 53, protocol: 'UDP', targetPort: 5353 },
        { name: 'dns-tcp', port: 53, targetPort: 5354 }, // the API server adds the default protocol, TCP
      ],
    },
  });
  const local = { isValid: true, service: { ...EXPORT, ports }, dropped: [] } as const;
  const { 'derived service': derived } = plan(
    { ports },
    { serviceImport: objectOf('cart', {}), local, service },
  );
  expect(derived).toMatchObject({ spec: { ports: [{ targetPort: 5353 }, { targetPort: 5354 }] } });
});

it('the message of a conflict has the maximum length of a condition (regression: the API server rejected the status)', () => {
  const annotations = new Map([['note', 'x'.repeat(40_000)]]);
  const service: ServiceExport = { ...EXPORT, cluster: 'own', createdAt: 2 };
  const local = { isValid: true, service, dropped: [] } as const;
  const { 'export status': status } = plan({ annotations }, { local, serviceExport: objectOf('cart', {}) });
  expect(status).toMatchObject([
    {
      value: {
        conditions: [
          { type: 'Valid' },
          { type: 'Ready' },
          { reason: 'AnnotationsConflict', message: expect.stringMatching(/^.{32768}$/) },
        ],
      },
    },
  ]);
});

describe('an existing import', () => {
  const annotations = { note: 'n', [FAMILIES_ANNOTATION]: 'IPv4', [DERIVED_ANNOTATION]: DERIVED };
  const existing = (change: Fields = {}): KubernetesObject =>
    objectOf('cart', {
      metadata: { labels: { tier: 't' }, annotations },
      spec: { ...SPEC, ips: ['10.96.0.1'] },
      ...change,
    });
  const patched = (
    serviceImport: KubernetesObject,
    derived?: KubernetesObject,
    type = 'ClusterSetIP',
  ): unknown => plan({ type: type as ServiceExport['type'] }, { serviceImport, derived }).import;

  it('keeps the name of its derived Service and its IPs while that Service does not exist', () => {
    expect(patched(existing())).toBeUndefined();
    expect(patched(existing(), derivedOf('10.96.0.1'))).toBeUndefined();
    expect(patched(existing(), derivedOf('None'))).toBeUndefined(); // of the wrong type
  });

  it('gets the IP of its derived Service', () => {
    const value = { ...SPEC, ips: ['10.96.0.2'] };
    expect(patched(existing(), derivedOf('10.96.0.2'))).toEqual([{ op: 'add', path: '/spec', value }]);
  });

  // Cilium 1.19, pkg/clustermesh/mcsapi/service_controller.go: getDesiredIPs
  it.each<readonly [SliceAddressType[], McsState['version'], ips: string[]]>([
    [['IPv4'], 'v1beta1', ['10.96.0.1']],
    [['IPv6'], 'v1beta1', ['fd00::1']],
    [['IPv6', 'IPv4'], 'v1beta1', ['fd00::1', '10.96.0.1']],
    [['IPv6', 'IPv4'], 'v1alpha1', ['fd00::1']], // which has at most one in older CRDs
  ])(
    'has the IPs of its families %o, in %s: %o (regression: it had only the first IP of its derived Service, of any family)',
    (ipFamilies, version, ips) => {
      const state = { version, families: ['IPv4', 'IPv6'] as const, serviceImport: objectOf('cart', {}) };
      const planned = plan({ ipFamilies }, { ...state, derived: derivedOf('10.96.0.1', 'fd00::1') });
      expect(planned.import).toContainEqual(
        expect.objectContaining({ path: '/spec', value: expect.objectContaining({ ips }) }),
      );
    },
  );

  it('has no IPs if it is headless', () => {
    const value = { ...SPEC, type: 'Headless' };
    for (const derived of [undefined, derivedOf('None'), derivedOf('10.96.0.1')])
      expect(patched(existing(), derived, 'Headless')).toEqual([{ op: 'add', path: '/spec', value }]);
  });

  it.each([
    ['labels', { metadata: { labels: { tier: 'x' }, annotations } }, '/metadata/labels', { tier: 't' }],
    [
      'annotations',
      { metadata: { labels: { tier: 't' }, annotations: { ...annotations, note: 'x' } } },
      '/metadata/annotations',
      annotations,
    ],
    [
      'spec',
      { spec: { ...SPEC, ips: ['10.96.0.1'], type: 'Headless' } },
      '/spec',
      { ...SPEC, ips: ['10.96.0.1'] },
    ],
  ])('gets the %s of the exports if only they differ', (_, change, path, value) => {
    expect(patched(existing(change))).toEqual([{ op: 'add', path, value }]);
  });

  const ready = { type: 'Ready', status: 'True', reason: 'Ready', message: 'ServiceImport is ready' };
  const known = { ...ready, lastTransitionTime: 'THEN' };
  const other = { type: 'Other', status: 'True' };
  const statusOf = (change: Partial<McsState>, status: object = {}): unknown =>
    plan({}, { serviceImport: existing({ status }), derived: derivedOf('10.96.0.1'), ...change })[
      'import status'
    ];

  it.each([
    ['Ready', 'True', {}],
    ['Pending', 'False', { derived: undefined }],
    ['Pending', 'False', { derived: derivedOf('None') }],
    ['IPFamilyNotSupported', 'False', { families: ['IPv6'] }],
    ['NamespaceNotGlobal', 'False', { isGlobal: false }],
    ['NamespaceNotGlobal', 'False', { isGlobal: false, families: [], derived: undefined }],
    ['IPFamilyNotSupported', 'False', { families: [], derived: undefined }],
  ] as const)('has the condition %s=%s: %o', (reason, status, change) => {
    const value = {
      clusters: [{ cluster: 'baltic' }],
      endpointSliceObjects: 'Absent',
      conditions: [expect.objectContaining({ type: 'Ready', status, reason, lastTransitionTime: 'NOW' })],
    };
    expect(statusOf(change)).toEqual([{ op: 'add', path: '/status', value }]);
  });

  it('gets a status exactly if its condition or its clusters differ, and keeps the other fields', () => {
    const same = { clusters: [{ cluster: 'baltic' }], endpointSliceObjects: 'Absent' };
    expect(statusOf({}, { ...same, conditions: [known, other] })).toBeUndefined();
    const gulf = { clusters: [{ cluster: 'gulf' }], conditions: [known, other], kept: 1 };
    expect(statusOf({}, { ...same, ...gulf })).toEqual([
      { op: 'add', path: '/status', value: { ...same, conditions: [known, other], kept: 1 } },
    ]);
    expect(statusOf({}, { ...same, conditions: [{ ...known, reason: 'x' }] })).toEqual([
      { op: 'add', path: '/status', value: { ...same, conditions: [known] } },
    ]);
  });

  const SYNC = 'service.cilium.io/global-sync-endpoint-slices';

  // Cilium 1.21, pkg/clustermesh/mcsapi/serviceimport_controller.go: getEndpointSliceObjectsStatus (#46533, #46953)
  it.each([
    ['Absent', 'ClusterSetIP', {}, true],
    ['Present', 'ClusterSetIP', { [SYNC]: 'True' }, true],
    ['Absent', 'ClusterSetIP', { [SYNC]: 'true' }, false],
    ['Present', 'Headless', {}, true],
    ['Absent', 'Headless', { [SYNC]: 'no' }, true],
    ['Absent', 'Headless', {}, false],
  ] as const)(
    'states that slices of other clusters are %s: %s, annotations %o, synchronization %s',
    (endpointSliceObjects, type, annotations, hasSliceSync) => {
      const service = { type, annotations: new Map(Object.entries(annotations)) };
      const status = { clusters: [{ cluster: 'baltic' }], conditions: [{ ...known }] };
      const derived = derivedOf(type === 'Headless' ? 'None' : '10.96.0.1');
      const state = { hasSliceSync, derived };
      const statusWrite = (current: object, version: McsState['version'] = 'v1beta1'): unknown =>
        plan(service, { ...state, version, serviceImport: existing({ status: current }) })['import status'];
      const value = { ...status, endpointSliceObjects };
      expect(statusWrite(status)).toEqual([{ op: 'add', path: '/status', value }]);
      expect(statusWrite(value)).toBeUndefined();
      expect(statusWrite(status, 'v1alpha1')).toBeUndefined(); // which has no such field
    },
  );
});
