import { describe, expect, it } from 'vitest';
import {
  labelTexts,
  type NodeDocument,
  nodeDocument,
  type ServiceDocument,
  serviceDocument,
} from '../../src/api/documents.ts';
import { NODE, SERVICE } from '../../src/api/schemas/engine-schemas.ts';
import { getNode } from '../../src/client/node-answers.ts';
import { getService } from '../../src/client/service-answers.ts';
import { IPCache } from '../../src/ipcache/ipcache.ts';
import { NodeManager } from '../../src/nodemanager/node-manager.ts';
import { createBackend, createEndpointSlice } from '../../src/servicecache/backend.ts';
import { createService, type Service } from '../../src/servicecache/service.ts';
import { ServiceCache } from '../../src/servicecache/service-cache.ts';
import { ManualClock } from '../base/support/manual-clock.ts';

const MODEL = { restoredOf: () => undefined };
const ID = { namespace: 'shop', name: 'cart' };

function serviceOf(fields: Partial<Service>): ServiceDocument {
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
  const ask = async (): Promise<unknown> => ({ ...document, explain });
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

describe('a service shows', () => {
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
    const options = { ipcache, clock: new ManualClock(), clusterName: 'own', localNodeName: 'me' };
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

  it('none of them if it has none', () => {
    expect(Object.keys(documentOf({})).sort()).toEqual([
      ...['addresses', 'cluster', 'clusterID', 'encryptionKey', 'labels', 'name', 'source'],
    ]);
  });
});
