import { podAddress } from '../pod-address.ts';

/** Encodes an object for etcd, like a kube-apiserver, which reads JSON for built-in kinds, too. */
export interface StoredObject {
  readonly key: string;
  readonly object: object;
}

/** Namespaces. */
export const TEAMS = 50;

const CREATED = '2026-01-05T10:00:00Z';

function metadata(name: string, n: number, labels: Readonly<Record<string, string>>): object {
  const uid = `00000000-0000-4000-8000-${n.toString(16).padStart(12, '0')}`;
  const namespace = namespaceOf(n);
  return { name, namespace, uid, creationTimestamp: CREATED, generation: 1, labels };
}

function namespaceOf(n: number): string {
  return `team-${n % TEAMS}`;
}

/** Name and namespace of a CiliumEndpoint. */
export function endpointName(n: number): { readonly namespace: string; readonly name: string } {
  return {
    namespace: namespaceOf(n),
    name: `checkout-${(n % 977).toString(36)}-7d9c5b8f6d-${n.toString(36)}`,
  };
}

/** A CiliumEndpoint as an agent writes it: about 750 bytes. */
export function ciliumEndpoint(n: number, ipv4: string = podAddress(n)): StoredObject {
  const { namespace, name } = endpointName(n);
  const node = `192.168.${(n % 1000) >> 8}.${n % 250}`;
  const labels = [`k8s:app=checkout-${n % 977}`, `k8s:io.kubernetes.pod.namespace=${namespace}`];
  const owner = { apiVersion: 'v1', kind: 'Pod', name, uid: `10000000-0000-4000-8000-${n}` };
  const object = {
    apiVersion: 'cilium.io/v2',
    kind: 'CiliumEndpoint',
    metadata: { ...metadata(name, n, { app: `checkout-${n % 977}` }), ownerReferences: [owner] },
    status: {
      id: n % 4096,
      'external-identifiers': { 'container-id': `c${n}`, 'k8s-namespace': namespace, 'k8s-pod-name': name },
      identity: { id: 65_536 + (n % 5000), labels },
      networking: { addressing: [{ ipv4 }], node },
      encryption: { key: 0 },
      'named-ports': [{ name: 'http', port: 8080, protocol: 'TCP' }],
      state: 'ready',
    },
  };
  return { key: `/registry/cilium.io/ciliumendpoints/${namespace}/${name}`, object };
}

/** A service with a selector. */
export function service(n: number): StoredObject {
  const namespace = namespaceOf(n);
  const name = `checkout-${n}`;
  const ports = [{ name: 'http', protocol: 'TCP', port: 80, targetPort: 8080 }];
  const clusterIP = `172.${16 + (n >> 16)}.${(n >> 8) & 255}.${n & 255}`;
  const spec = { ports, clusterIP, clusterIPs: [clusterIP], type: 'ClusterIP', selector: { app: name } };
  const object = {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: metadata(name, n, { app: name }),
    spec: { ...spec, sessionAffinity: 'None' },
    status: { loadBalancer: {} },
  };
  return { key: `/registry/services/specs/${namespace}/${name}`, object };
}

/** The slice of that service: ten backends. */
export function endpointSlice(n: number): StoredObject {
  const namespace = namespaceOf(n);
  const name = `checkout-${n}-x7k2p`;
  const labels = { 'kubernetes.io/service-name': `checkout-${n}` };
  const endpoints = Array.from({ length: 10 }, (_, i) => ({
    addresses: [podAddress(n * 10 + i)],
    conditions: { ready: true },
    topology: { 'kubernetes.io/hostname': `node-${(n + i) % 1000}` },
  }));
  const object = {
    apiVersion: 'discovery.k8s.io/v1beta1',
    kind: 'EndpointSlice',
    addressType: 'IPv4',
    endpoints,
    metadata: metadata(name, n, labels),
    ports: [{ name: 'http', port: 8080, protocol: 'TCP' }],
  };
  return { key: `/registry/endpointslices/${namespace}/${name}`, object };
}
