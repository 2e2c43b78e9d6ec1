import { expect, it } from 'vitest';
import { comparedDocuments } from '../../src/api/compared-documents.ts';
import { WEIGHT_ANNOTATION } from '../../src/model/backend-weight.ts';
import { SERVICE_NAME_LABEL, type SliceEndpoint } from '../../src/model/cluster-endpoint-slice.ts';
import { type BackendFields, createBackend, createEndpointSlice } from '../../src/servicecache/backend.ts';
import { createService } from '../../src/servicecache/service.ts';
import { TestModel } from './support/model.ts';

const CART = { namespace: 'shop', name: 'cart' };
const HTTP = [['http', { port: 8080, protocol: 6 }]] as const;

const backend = (address: string, fields: Partial<BackendFields> = {}) =>
  createBackend({ address, ports: HTTP, ...fields });

/** A slice of baltic whose only endpoint has these addresses. */
function offerSlice(model: TestModel, name: string, addresses: readonly string[], weight?: string): void {
  const endpoint: SliceEndpoint = {
    addresses,
    conditions: {},
    forZones: [],
    deprecatedTopology: new Map(),
    nodeName: 'b-1',
    zone: 'b',
  };
  model.services.mergeExternalSliceUpdate({
    ...{ cluster: 'baltic', clusterID: 2, namespace: 'shop', name, addressType: 'IPv4' },
    labels: new Map([[SERVICE_NAME_LABEL, 'cart']]),
    annotations: new Map(weight === undefined ? [] : [[WEIGHT_ANNOTATION, weight]]),
    endpoints: [endpoint],
    ports: [
      { name: 'metrics', port: 9090, protocol: 17 },
      { name: '', port: 80, protocol: 6 },
    ],
  });
}

it('the compared documents contain every node and every part of a service, with the fields that are equal in all agents', () => {
  const model = new TestModel();
  model.restored = { knownAt: '2026-01-02T03:04:05.000Z', ageSeconds: 5 };
  const { nodes, services } = model;
  nodes.nodeUpdated({ cluster: 'own', name: 'bare', source: 'k8s', clusterID: 1 });
  nodes.nodeUpdated({
    ...{
      cluster: 'baltic',
      name: 'n',
      source: 'clustermesh',
      clusterID: 2,
      encryptionKey: 3,
      nodeIdentity: 6,
    },
    addresses: [
      { type: 'InternalIP', ip: '192.168.7.2' },
      { type: 'ExternalIP', ip: '198.51.100.2' },
    ],
    ipv4AllocCIDR: '10.2.0.0/24',
    ipv4SecondaryAllocCIDRs: ['10.2.9.0/24', '10.2.8.0/24'],
    labels: new Map([
      ['zone', 'b'],
      ['arch', 'arm64'],
    ]),
  });
  services.updateService(
    createService({
      ...{ id: CART, type: 'NodePort', addressing: 'assigned', clusterIPs: ['172.16.0.9', 'fd00::9'] },
      ports: [
        ['http', { port: 80, protocol: 6, nodePort: 30_080 }],
        ['dns', { port: 53, protocol: 17, nodePort: 0 }],
      ],
      ...{ global: true, shared: false, affinity: 'local' },
    }),
  );
  services.updateEndpoints(
    createEndpointSlice({
      service: CART,
      name: 's-1',
      backends: [
        backend('10.0.0.9', { nodeName: 'n-2', zone: 'a' }),
        backend('10.0.0.1'),
        backend('10.0.0.5', { state: 'not-ready' }),
      ],
    }),
  );
  services.updateEndpoints(
    createEndpointSlice({ service: CART, name: 's-2', backends: [backend('10.0.0.1'), backend('10.0.0.2')] }),
  );
  model.offer('baltic', CART, '10.2.0.1');
  offerSlice(model, 's-9', ['10.2.0.4', '10.2.0.3']);
  offerSlice(model, 's-8', ['10.2.0.2'], '0');
  model.offer('caspian', CART, '10.3.0.1');
  services.updateEndpoints(
    createEndpointSlice({
      service: { namespace: 'shop', name: 'orphan' },
      name: 's',
      backends: [backend('10.0.0.7')],
    }),
  );
  model.offer('baltic', { namespace: 'shop', name: 'theirs' }, '10.2.0.7');
  const restored = { namespace: 'shop', name: 'restored' };
  services.restorePart({
    kind: 'service',
    id: restored,
    service: createService({ id: restored, addressing: 'headless' }),
  });

  const documents = Array.from(comparedDocuments(model), ({ readFields, ...document }) => ({
    ...document,
    fields: readFields(),
  }));
  expect(documents).toHaveLength(8);
  expect(documents).toEqual(
    expect.arrayContaining([
      {
        writer: 'nodes baltic',
        key: 'baltic/n',
        fields: {
          ...{ clusterID: '2', encryptionKey: '3', nodeIdentity: '6', ipv4AllocCIDR: '10.2.0.0/24' },
          addresses: ['ExternalIP 198.51.100.2', 'InternalIP 192.168.7.2'],
          ipv4SecondaryAllocCIDRs: ['10.2.8.0/24', '10.2.9.0/24'],
          labels: ['arch=arm64', 'zone=b'],
        },
      },
      { writer: 'nodes own', key: 'own/bare', fields: { clusterID: '1' } },
      {
        writer: 'services',
        key: 'shop/cart',
        fields: {
          ...{ namespace: 'shop', name: 'cart', type: 'NodePort' },
          clusterIPs: ['172.16.0.9', 'fd00::9'],
          ports: ['dns=53/UDP', 'http=80/TCP'],
          nodePorts: ['http=30080'],
          ...{ global: 'true', shared: 'false', affinity: 'local' },
          backends: [
            '10.0.0.1 http 8080/TCP active',
            '10.0.0.2 http 8080/TCP active',
            '10.0.0.5 http 8080/TCP not-ready',
            '10.0.0.9 http 8080/TCP active nodeName n-2 zone a',
          ],
        },
      },
      {
        writer: 'services',
        key: 'shop/restored',
        fields: {
          ...{ namespace: 'shop', name: 'restored', type: 'ClusterIP' },
          ...{ global: 'false', shared: 'false', affinity: 'none', backends: [] },
        },
      },
      {
        writer: 'services',
        key: 'shop/orphan',
        fields: { backends: ['10.0.0.7 http 8080/TCP active'] },
      },
      {
        writer: 'services baltic',
        key: 'shop/cart',
        fields: {
          backends: [
            '10.2.0.1 http 8080/TCP active',
            '10.2.0.2 80/TCP metrics 9090/UDP maintenance nodeName b-1 zone b weight 0',
            '10.2.0.3 80/TCP metrics 9090/UDP active nodeName b-1 zone b',
            '10.2.0.4 80/TCP metrics 9090/UDP active nodeName b-1 zone b',
          ],
        },
      },
      {
        writer: 'services baltic',
        key: 'shop/theirs',
        fields: { backends: ['10.2.0.7 http 8080/TCP active'] },
      },
      {
        writer: 'services caspian',
        key: 'shop/cart',
        fields: { backends: ['10.3.0.1 http 8080/TCP active'] },
      },
    ]),
  );
});
