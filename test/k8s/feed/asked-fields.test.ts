import { expect, it } from 'vitest';
import { SharedParts } from '../../../src/k8s/endpoint-claim.ts';
import {
  CILIUM_ENDPOINT_FIELDS,
  CILIUM_ENDPOINT_SLICE_FIELDS,
  readCiliumEndpoint,
  readCiliumEndpointSlice,
} from '../../../src/k8s/parse-cilium-endpoint.ts';
import { CILIUM_IDENTITY_FIELDS, readCiliumIdentity } from '../../../src/k8s/parse-cilium-identity.ts';
import { ENDPOINT_SLICE_FIELDS, readEndpointSlice } from '../../../src/k8s/parse-endpoint-slice.ts';
import { ENDPOINTS_FIELDS, readEndpoints } from '../../../src/k8s/parse-endpoints.ts';
import { CILIUM_NODE_FIELDS, NODE_FIELDS, readCiliumNode, readNode } from '../../../src/k8s/parse-nodes.ts';
import { type ObjectFields, parseObject } from '../../../src/k8s/parse-object.ts';
import { POD_FIELDS, readPod } from '../../../src/k8s/parse-pod.ts';
import { readService, SERVICE_FIELDS } from '../../../src/k8s/parse-service.ts';

/** Returns an object that records which of its fields are read, existing or not. */
function observed(value: unknown, path: string, looked: Set<string>): unknown {
  if (typeof value !== 'object' || value === null) return value;
  const at = (name: string): string => {
    if (Array.isArray(value)) return path; // elements have no names
    return path === '' ? name : `${path}.${name}`;
  };
  return new Proxy(value, {
    get: (target, name) => observed(Reflect.get(target, name), at(String(name)), looked),
    getOwnPropertyDescriptor: (target, name) => {
      if (!Array.isArray(value)) looked.add(at(String(name)));
      return Reflect.getOwnPropertyDescriptor(target, name);
    },
    ownKeys: (target) => {
      looked.add(path);
      return Reflect.ownKeys(target);
    },
  });
}

const cluster = { clusterName: 'own', clusterID: 0 };
const shared = new SharedParts();
const metadata = { name: 'a', namespace: 'b', labels: { 'kubernetes.io/service-name': 'a' } };
const endpoint = {
  identity: { id: 7 },
  networking: { node: '192.0.2.1', addressing: [{ ipv4: '10.0.0.1' }] },
  encryption: {},
  'named-ports': [{ name: 'http', port: 80 }],
};
const port = { name: 'http', port: 80 };
const node = { addresses: [{ type: 'InternalIP', ip: '192.0.2.1', address: '192.0.2.1' }] };

it.each<[string, readonly string[], (fields: ObjectFields) => unknown, object]>([
  [
    'Pod',
    POD_FIELDS,
    (fields) => readPod(fields, 0, shared),
    {
      metadata,
      spec: { containers: [{ ports: [{ name: 'http', containerPort: 80 }] }] },
      status: { podIPs: [{ ip: '10.0.0.1' }], hostIP: '192.0.2.1' },
    },
  ],
  [
    'CiliumEndpoint',
    CILIUM_ENDPOINT_FIELDS,
    (fields) => readCiliumEndpoint(fields, shared),
    { metadata, status: endpoint },
  ],
  [
    'CiliumEndpointSlice',
    CILIUM_ENDPOINT_SLICE_FIELDS,
    (fields) => readCiliumEndpointSlice(fields, shared),
    { metadata: { name: 'a' }, namespace: 'b', endpoints: [{ name: 'p', ...endpoint }] },
  ],
  ['CiliumIdentity', CILIUM_IDENTITY_FIELDS, readCiliumIdentity, identity()],
  [
    'Service',
    SERVICE_FIELDS,
    readService,
    {
      metadata,
      spec: { clusterIPs: ['10.96.0.1'], ports: [port], sessionAffinity: 'ClientIP' },
      status: { loadBalancer: { ingress: [{ ip: '192.0.2.7' }] } },
    },
  ],
  [
    'EndpointSlice',
    ENDPOINT_SLICE_FIELDS,
    readEndpointSlice,
    {
      metadata,
      addressType: 'IPv4',
      ports: [port],
      endpoints: [
        { addresses: ['10.0.0.1'], conditions: {}, hints: { forZones: [{ name: 'z' }] }, topology: {} },
        { addresses: ['10.0.0.2'], deprecatedTopology: {} },
      ],
    },
  ],
  [
    'Endpoints',
    ENDPOINTS_FIELDS,
    readEndpoints,
    { metadata, subsets: [{ ports: [port], addresses: [{ ip: '10.0.0.1' }] }] },
  ],
  [
    'CiliumNode',
    CILIUM_NODE_FIELDS,
    (fields) => readCiliumNode(fields, cluster),
    {
      metadata: { ...metadata, annotations: {} },
      spec: {
        ...node,
        ipam: { podCIDRs: ['10.1.0.0/24'], pools: { allocated: [{ cidrs: ['10.2.0.0/24'] }] } },
        health: {},
        ingress: {},
        encryption: {},
      },
    },
  ],
  [
    'Node',
    NODE_FIELDS,
    (fields) => readNode(fields, cluster, true),
    { metadata: { ...metadata, annotations: {} }, spec: {}, status: node },
  ],
])('each reader of a %s requests exactly the fields that it reads', (kind, fields, read, object) => {
  const looked = new Set<string>();
  const { value } = parseObject(kind, observed(object, '', looked), {}, read);
  expect(value).toBeDefined();
  const identifying = ['name', 'namespace', 'uid', 'resourceVersion'].map((name) => `metadata.${name}`);
  const asked = [...identifying, ...fields];
  const isUnder = (path: string, other: string): boolean => path === other || path.startsWith(`${other}.`);
  const paths = [...looked].filter((path) => path !== '');
  // A prefix of a requested path is read only on the way to it.
  const unasked = paths.filter((path) => !asked.some((one) => isUnder(path, one) || isUnder(one, path)));
  expect(unasked).toEqual([]);
  expect(fields.filter((one) => !paths.some((path) => isUnder(path, one)))).toEqual([]);
});

function identity(): object {
  return {
    metadata: { name: '256', annotations: {} },
    'security-labels': { 'k8s:app': 'web' },
  };
}
