import { describe, expect, it } from 'vitest';
import {
  backendDocument,
  entryDocument,
  explanationDocument,
  identityDocument,
  labelTexts,
  type NodeDocument,
  nodeDocument,
  nodeExplanationDocument,
  type ServiceDocument,
  serviceDocument,
  serviceExplanationDocument,
} from '../../src/api/documents.ts';
import { joinPieces } from '../../src/api/routes/answer.ts';
import { pageJSON } from '../../src/api/routes/list-pages.ts';
import {
  explainedServiceJSON,
  pastServiceJSON,
  serviceDocumentSteps,
  serviceJSON,
} from '../../src/api/routes/service-json.ts';
import { NODE, SERVICE } from '../../src/api/schemas/engine-schemas.ts';
import { getNode } from '../../src/client/node-answers.ts';
import { getService } from '../../src/client/service-answers.ts';
import { IPCache } from '../../src/ipcache/ipcache.ts';
import { NodeManager } from '../../src/nodemanager/node-manager.ts';
import { createBackend, createEndpointSlice } from '../../src/servicecache/backend.ts';
import { createService } from '../../src/servicecache/service.ts';
import { ServiceCache } from '../../src/servicecache/service-cache.ts';
import { ManualClock } from '../base/support/manual-clock.ts';

const MODEL = { restoredOf: () => undefined };
const ID = { namespace: 'shop', name: 'cart' };

function serviceOf(fields: Partial<Parameters<typeof createService>[0]>): ServiceDocument {
  const services = new ServiceCache({ clusterName: 'own', nodePort: { enabled: true } });
  services.updateService(
    createService({ id: ID, addressing: 'assigned', clusterIPs: ['10.96.0.1'], ...fields }),
  );
  services.markSynced();
  services.updateEndpoints(
    createEndpointSlice({
      service: ID,
      name: 's',
      backends: [createBackend({ address: '10.0.0.1', ports: [] })],
    }),
  );
  const announced = services.get(ID);
  if (announced === undefined) throw new Error('not announced');
  return serviceDocument(announced, { services, ...MODEL });
}

/** The cells of the first row under each title. */
async function cells(
  get: typeof getNode,
  document: NodeDocument | ServiceDocument,
): Promise<Readonly<Record<string, string | undefined>>> {
  const explain = { claims: [document], heldBack: false, lostAddresses: [] };
  const ask = async (path: string): Promise<unknown> =>
    path === '/v1/status' ? { clusters: [] } : { ...document, explain };
  const { lines } = await get('a/b')(ask as never, { wide: true });
  const [head = '', row = ''] = lines;
  const values = row.trimEnd().split(/ {2,}/);
  return Object.fromEntries(head.split(/ {2,}/).map((title, i) => [title.trim(), values[i]]));
}

it('a label without a value has no equals sign', () => {
  const labels = [
    { source: 'k8s', key: 'app', value: 'cart' },
    { source: 'reserved', key: 'host', value: '' },
  ];
  expect(labelTexts(labels)).toEqual(['k8s:app=cart', 'reserved:host']);
});

const AGE = { knownAt: '2026-01-02T03:04:05.000Z', ageSeconds: 5 };
/** Ages of restored state, by cluster. */
const restoredOf = (cluster: string) => ({ ...AGE, ageSeconds: cluster.length });

describe('an entry shows', () => {
  const ENTRY = { key: '10.0.0.1', identity: 5, encryptKey: 3, source: 'k8s', owner: '', shadowed: false };
  const labelsOf = (identity: number) =>
    identity === 5 ? [{ source: 'k8s', key: 'app', value: 'cart' }] : undefined;
  const documentOf = (fields: object): unknown =>
    entryDocument({ ...ENTRY, ...fields } as never, { labelsOf, restoredOf });

  it('all its fields', () => {
    const namedPorts = new Map([
      ['http', { port: 80, protocol: 6 }],
      ['dns', { port: 53, protocol: 17 }],
    ]);
    const k8s = { namespace: 'shop', podName: 'cart-1', serviceAccount: 'robot', namedPorts };
    expect(documentOf({ hostIP: '192.168.0.1', k8s, owner: 'baltic' })).toEqual({
      ...{ prefix: '10.0.0.1/32', identity: 5, labels: ['k8s:app=cart'], hostIP: '192.168.0.1' },
      ...{ encryptKey: 3, namespace: 'shop', podName: 'cart-1', serviceAccount: 'robot' },
      ...{ namedPorts: { dns: '53/UDP', http: '80/TCP' }, source: 'k8s', owner: 'baltic' },
    });
  });

  it('no empty field', () => {
    const k8s = { namespace: '', podName: '', serviceAccount: '', namedPorts: new Map() };
    for (const fields of [{}, { k8s }])
      expect(documentOf({ ...fields, identity: 6, encryptKey: 0 })).toEqual({
        ...{ prefix: '10.0.0.1/32', identity: 6, encryptKey: 0, source: 'k8s' },
      });
  });

  it('the age of the state of its own cluster, only if it is restored', () => {
    expect(documentOf({ source: 'restored', owner: 'baltic' })).toMatchObject({
      restored: { ageSeconds: 'baltic'.length },
    });
    expect(documentOf({ source: 'clustermesh', owner: 'baltic' })).not.toHaveProperty('restored');
  });

  it('of a shadowed CIDR, which is effective among the claims of its key, is not effective', () => {
    const model = { labelsOf, restoredOf, originOf: () => ({ text: 'test', store: 'agent' }) };
    const claims = [
      { ...ENTRY, effective: true },
      { ...ENTRY, key: '10.0.0.1/32', effective: true, shadowed: true },
      { ...ENTRY, key: '10.0.0.1/32', effective: false, shadowed: true },
      { ...ENTRY, effective: false },
    ];
    const explanation = { prefix: '10.0.0.1/32', decidedBy: 'endpoint-over-cidr', claims };
    const origin = { text: 'test', store: 'agent' };
    expect(explanationDocument(explanation as never, model as never)).toMatchObject({
      ...{ prefix: '10.0.0.1/32', decidedBy: 'endpoint-over-cidr' },
      claims: [
        { key: '10.0.0.1', identity: 5, effective: true, shadowed: false, origin },
        { key: '10.0.0.1/32', effective: false, shadowed: true, origin },
        { key: '10.0.0.1/32', effective: false, shadowed: true, origin },
        { key: '10.0.0.1', effective: false, shadowed: false, origin },
      ],
    });
    expect(explanationDocument({ prefix: 'x', claims: [] } as never, model as never)).toBeUndefined();
  });
});

it('an identity has its labels, its cluster, the number of its prefixes and the age of its labels', () => {
  const ipcache = new IPCache();
  for (const key of ['10.0.0.1', '10.0.0.2']) ipcache.upsert(key, { identity: 5, source: 'k8s' });
  const known = { identity: 5, labels: [{ source: 'k8s', key: 'app', value: 'cart' }], cluster: 'baltic' };
  expect(identityDocument(known, { ipcache, restoredIdentity: () => AGE })).toEqual({
    ...{ identity: 5, labels: ['k8s:app=cart'], cluster: 'baltic', prefixes: 2, restored: AGE },
  });
  const reserved = { identity: 1, labels: [], cluster: '' };
  expect(identityDocument(reserved, { ipcache, restoredIdentity: () => undefined })).toEqual({
    ...{ identity: 1, labels: [], prefixes: 0 },
  });
});

describe('a backend shows', () => {
  const ports = new Map([['http', { port: 80, protocol: 6 }]]);
  const REQUIRED = { address: '10.0.0.1', ports, state: 'terminating' };

  it('all its fields', () => {
    const backend = { ...REQUIRED, cluster: 'baltic', nodeName: 'n1', zone: 'z1', weight: 7 };
    expect(backendDocument(backend as never)).toEqual({ ...backend, ports: { http: '80/TCP' } });
  });

  it('no empty field, and no default weight', () => {
    const backend = { ...REQUIRED, cluster: '', nodeName: '', zone: '', weight: 100 };
    expect(backendDocument(backend as never)).toEqual({ ...REQUIRED, ports: { http: '80/TCP' } });
    expect(backendDocument({ ...backend, weight: 0 } as never)).toMatchObject({ weight: 0 });
  });

  it('its origin and its verdict in the explanation of a service', () => {
    const backend = { ...REQUIRED, cluster: '', nodeName: 'n1', zone: '', weight: 100 };
    const explanation = {
      ...{ ready: true, announced: false },
      origins: [{ cluster: 'baltic', slice: 's-1', backends: 2, more: 1 }],
      backends: [{ backend, cluster: 'baltic', slice: 's-1', verdict: 'effective' }],
    };
    expect(serviceExplanationDocument(explanation as never)).toEqual({
      ...{ ready: true, announced: false, origins: [{ cluster: 'baltic', slice: 's-1', backends: 2 }] },
      backends: [
        {
          ...{ address: '10.0.0.1', ports: { http: '80/TCP' }, cluster: 'baltic', nodeName: 'n1' },
          ...{ state: 'terminating', slice: 's-1', verdict: 'effective' },
        },
      ],
    });
  });
});

describe('a service with its explanation', () => {
  const backendsOf = (slice: number) =>
    createEndpointSlice({
      service: ID,
      name: `s-${slice}`,
      backends: Array.from({ length: 1000 }, (_, at) =>
        createBackend({ address: `10.0.${slice + (at >> 8)}.${at & 255}`, ports: [] }),
      ),
    });

  it('is written in pieces of 512 backends, after steps without one (regression: 100,000 took 0.2 s in one turn)', () => {
    const services = new ServiceCache({ clusterName: 'own' });
    services.updateService(createService({ id: ID, clusterIPs: ['10.96.0.1'] }));
    for (let slice = 9; slice >= 0; slice--) services.updateEndpoints(backendsOf(slice));
    const [announced, explanation, explaining] = [
      services.get(ID),
      services.explain(ID),
      services.explainSteps(ID),
    ];
    if (!announced || !explanation || !explaining) throw new Error('the service is unknown');
    services.deleteEndpoints(ID, 's-9'); // has no effect on the text
    const model = { services, ...MODEL };
    const pieces = [...explainedServiceJSON(announced, explaining, model)];
    expect(JSON.parse(pieces.join(''))).toEqual({
      ...serviceDocument(announced, model),
      explain: serviceExplanationDocument(explanation),
    });
    const countIn = (piece: string | undefined): number => piece?.match(/"address"/g)?.length ?? 0;
    expect(Math.max(...pieces.map(countIn))).toBe(512);
    // 78 steps, of which only 24 sort the document: the others explain 10,000 claims in steps of 1,024.
    expect(pieces.filter((piece) => piece === undefined).length).toBeGreaterThan(70);
  });

  it('of a page and of an earlier moment is written in pieces, too', () => {
    const [services, count] = [new ServiceCache({ clusterName: 'own' }), 5_000];
    services.updateService(createService({ id: ID, clusterIPs: ['10.96.0.1'] }));
    const addresses = Array.from({ length: count }, (_, at) => `10.0.${at >> 8}.${at & 255}`);
    services.updateEndpoints(
      createEndpointSlice({
        service: ID,
        backends: addresses.map((address) => createBackend({ address, ports: [] })),
      }),
    );
    const announced = services.get(ID);
    if (announced === undefined) throw new Error('the service is unknown');
    const model = { services, ...MODEL };
    const page = { items: [announced, announced], revision: 7 };
    const pieces = [...pageJSON(page, (item) => serviceJSON(item, model))];
    const document = serviceDocument(announced, model);
    expect(JSON.parse(pieces.join(''))).toEqual({ items: [document, document], revision: 7 });
    const countIn = (piece: string | undefined): number => piece?.match(/"address"/g)?.length ?? 0;
    expect(Math.max(...[...joinPieces(pieces)].map(countIn))).toBeLessThan(2_000);
    const steps = serviceDocumentSteps(announced, model);
    let [step, stepCount] = [steps.next(), 1];
    while (step.done !== true) [step, stepCount] = [steps.next(), stepCount + 1];
    expect([step.value, stepCount > 50]).toEqual([document, true]);
    const past = { at: 'a', certain: true, retained: { from: 'a', to: 'b' } };
    const pastPieces = [...pastServiceJSON({ ...document, past })];
    expect(JSON.parse(pastPieces.join(''))).toMatchObject({ backends: document.backends, past });
    expect(Math.max(...pastPieces.map(countIn))).toBe(512);
  });

  it('is one text without backends, too', () => {
    const services = new ServiceCache({ clusterName: 'own' });
    services.updateEndpoints(createEndpointSlice({ service: ID, name: 's', backends: [] }));
    services.updateService(createService({ id: ID, clusterIPs: ['10.96.0.1'] }));
    const [announced, explaining] = [services.get(ID), services.explainSteps(ID)];
    if (!announced || !explaining) throw new Error('the service is unknown');
    const text = [...explainedServiceJSON(announced, explaining, { services, ...MODEL })].join('');
    expect(JSON.parse(text)).toMatchObject({ backends: [], explain: { backends: [] } });
    expect(services.explainSteps({ namespace: 'x', name: 'x' })).toBeUndefined();
  });
});

describe('a service shows', () => {
  it('the selectors of its nodes, and its exposed type', () => {
    expect(serviceOf({ nodeSelector: 'zone=a', nodeLabel: 'blue' })).toMatchObject({
      ...{ nodeSelector: 'zone=a', nodeLabel: 'blue' },
    });
    expect(serviceOf({ exposedType: 'LoadBalancer' })).toHaveProperty('exposedType', 'LoadBalancer');
    for (const field of ['nodeSelector', 'nodeLabel', 'exposedType', 'sourceRanges', 'sourceRangesPolicy'])
      expect(serviceOf({})).not.toHaveProperty(field);
    for (const field of ['restored', 'nodePorts']) expect(serviceOf({})).not.toHaveProperty(field);
  });

  it('which clients are admitted, also if they are none (regression: absent)', () => {
    const sourceRanges = ['10.0.0.0/8', '1.0.0.0/8'];
    expect(serviceOf({ sourceRanges, sourceRangesPolicy: 'deny' })).toMatchObject({
      sourceRanges: ['1.0.0.0/8', '10.0.0.0/8'],
      sourceRangesPolicy: 'deny',
    });
    expect(serviceOf({ sourceRanges: [] })).toMatchObject({ sourceRanges: [], sourceRangesPolicy: 'allow' });
  });

  it('the age of its oldest restored part, of those that are still restored', () => {
    const services = new ServiceCache({ clusterName: 'own' });
    const service = createService({ id: ID, addressing: 'assigned', clusterIPs: ['10.96.0.1'] });
    Object.assign(services, { restoredFrom: () => ['a', 'confirmed', 'three', 'bb'] });
    const ages = (cluster: string) => (cluster === 'confirmed' ? undefined : restoredOf(cluster));
    const announced = { service, endpoints: { backends: new Map() } };
    expect(serviceDocument(announced as never, { services, restoredOf: ages }).restored).toEqual({
      ...{ ...AGE, ageSeconds: 5 },
    });
  });

  it('its type, node ports and load-balancer addresses (regression: missing in every answer)', async () => {
    const document = serviceOf({
      type: 'LoadBalancer',
      ports: createService({
        id: ID,
        ports: [
          ['http', { port: 80, protocol: 6, nodePort: 30_080 }],
          ['dns', { port: 53, protocol: 17, nodePort: 0 }],
        ],
      }).ports,
      externalIPs: createService({ id: ID, externalIPs: ['198.51.100.7'] }).externalIPs,
      ingressIPs: createService({ id: ID, ingressIPs: ['203.0.113.9', '203.0.113.1'] }).ingressIPs,
    });
    expect(document).toMatchObject({
      type: 'LoadBalancer',
      ports: { dns: '53/UDP', http: '80/TCP' },
      nodePorts: { http: 30_080 },
      externalIPs: ['198.51.100.7'],
      loadBalancerIPs: ['203.0.113.1', '203.0.113.9'],
    });
    expect(SERVICE.parse(document)).toEqual(document);
    expect(await cells(getService, document)).toMatchObject({
      TYPE: 'LoadBalancer',
      PORTS: 'dns:53/UDP http:80/TCP,node:30080',
      'EXTERNAL IP': '203.0.113.1 203.0.113.9 198.51.100.7',
    });
  });

  it('none of them if it has none', async () => {
    const document = serviceOf({});
    expect(Object.keys(document)).not.toEqual(expect.arrayContaining(['nodePorts']));
    expect(document).not.toHaveProperty('externalIPs');
    expect(document).not.toHaveProperty('loadBalancerIPs');
    expect(await cells(getService, document)).toMatchObject({ TYPE: 'ClusterIP', 'EXTERNAL IP': '-' });
  });
});

describe('a node shows', () => {
  const NODE_FIELDS = {
    cluster: 'c',
    name: 'n',
    clusterID: 1,
    encryptionKey: 0,
    nodeIdentity: 0,
    source: 'kvstore' as const,
    labels: new Map(),
    annotations: new Map(),
    addresses: [{ type: 'InternalIP', ip: '192.168.0.1' }],
    ipv4SecondaryAllocCIDRs: [],
    ipv6SecondaryAllocCIDRs: [],
    wireguardPubKey: '',
    bootID: '',
  };
  const documentOf = (fields: object): NodeDocument => {
    const { ipcache } = { ipcache: new IPCache() };
    const options = { ipcache, clock: new ManualClock(), clusterName: 'own', nodeName: 'me' };
    const nodes = new NodeManager({ ...options, random: () => 0.5 });
    nodes.nodeUpdated({ ...NODE_FIELDS, ...fields });
    const [node] = nodes.nodes();
    if (node === undefined) throw new Error('no node');
    return nodeDocument(node, MODEL);
  };

  it('its secondary CIDRs, ingress addresses, WireGuard key and boot id (regression: missing in every answer)', async () => {
    const said = {
      ipv4AllocCIDR: '10.1.0.0/24',
      ipv4SecondaryAllocCIDRs: ['10.1.8.0/24'],
      ipv6SecondaryAllocCIDRs: ['fd01::/64'],
      ipv4IngressIP: '10.1.0.8',
      ipv6IngressIP: 'fd01::8',
      wireguardPubKey: 'a2V5',
      bootID: 'b-1',
    };
    const document = documentOf(said);
    expect(document).toMatchObject(said);
    expect(NODE.parse(document)).toEqual(document);
    expect(await cells(getNode, document)).toMatchObject({
      PODS: '10.1.0.0/24 10.1.8.0/24 fd01::/64',
      INGRESS: '10.1.0.8 fd01::8',
      'WIREGUARD KEY': 'a2V5',
      'BOOT ID': 'b-1',
    });
  });

  it('the CIDRs and health addresses of both families, and the age of a restored node', () => {
    const fields = {
      ...{ ipv4AllocCIDR: '10.1.0.0/24', ipv6AllocCIDR: 'fd01::/64' },
      ...{ ipv4HealthIP: '10.1.0.9', ipv6HealthIP: 'fd01::9' },
    };
    expect(documentOf(fields)).toMatchObject(fields);
    const node = (source: string): never => ({ fields: { ...NODE_FIELDS, source, cluster: 'cc' } }) as never;
    expect(nodeDocument(node('restored'), { restoredOf }).restored).toEqual({ ...AGE, ageSeconds: 2 });
    expect(nodeDocument(node('kvstore'), { restoredOf })).not.toHaveProperty('restored');
  });

  it('its claims and lost addresses in its explanation', () => {
    const holder = { source: 'k8s', owner: 'x' };
    const lostAddresses = [
      { ip: '10.0.0.1', holder, stronger: true, more: 1 },
      { ip: '10.0.0.2', holder: undefined, stronger: false },
    ];
    const claims = ['a', 'b'].map((name) => ({ fields: { ...NODE_FIELDS, name } }));
    const explanation = { claims, heldBack: true, lostAddresses };
    expect(nodeExplanationDocument(explanation as never, MODEL)).toEqual({
      ...{ claims: [expect.objectContaining({ name: 'a' }), expect.objectContaining({ name: 'b' })] },
      heldBack: true,
      lostAddresses: [
        { ip: '10.0.0.1', holder, stronger: true },
        { ip: '10.0.0.2', stronger: false },
      ],
    });
  });

  it('none of them if it has none', () => {
    expect(Object.keys(documentOf({})).sort()).toEqual([
      ...['addresses', 'cluster', 'clusterID', 'encryptionKey', 'labels', 'name', 'source'],
    ]);
  });
});
