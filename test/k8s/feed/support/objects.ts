import type { SaidObject } from './fake-cluster.ts';

/** Returns a creation time: minutes after noon. */
export function at(minute: number): string {
  return new Date(Date.UTC(2026, 0, 1, 12, minute)).toISOString().replace('.000Z', 'Z');
}

interface SaidPod {
  readonly namespace?: string;
  readonly uid?: string;
  readonly ips?: readonly string[];
  readonly hostIP?: string | undefined;
  readonly nodeName?: string;
  readonly phase?: string;
  readonly hostNetwork?: boolean;
  readonly labels?: Readonly<Record<string, string>>;
  readonly serviceAccount?: string;
  readonly createdAt?: number;
  readonly deleting?: boolean;
  readonly ports?: readonly unknown[];
}

export function pod(name: string, said: SaidPod = {}): SaidObject {
  const {
    namespace = 'shop',
    uid = `uid-${name}`,
    ips = ['10.1.0.10'],
    hostIP = '192.0.2.1',
    labels = {},
  } = said;
  const { nodeName = 'n1', phase = 'Running', createdAt = 0, deleting = false, ports = [] } = said;
  return {
    metadata: {
      name,
      namespace,
      uid,
      labels,
      creationTimestamp: at(createdAt),
      ...(deleting ? { deletionTimestamp: at(createdAt + 1) } : {}),
    },
    spec: {
      nodeName,
      hostNetwork: said.hostNetwork,
      serviceAccountName: said.serviceAccount,
      containers: [{ ports }],
    },
    status: { phase, hostIP, podIP: ips[0], podIPs: ips.map((ip) => ({ ip })) },
  };
}

interface SaidEndpoint {
  readonly namespace?: string;
  readonly uid?: string;
  readonly ips?: readonly string[];
  readonly node?: string;
  readonly identity?: number | undefined;
  readonly key?: number | undefined;
  readonly createdAt?: number;
  readonly ports?: readonly unknown[];
}

function networking({ ips = ['10.1.0.10'], node = '192.0.2.1' }: SaidEndpoint): object {
  const addressing = ips.map((ip) => (ip.includes(':') ? { ipv6: ip } : { ipv4: ip }));
  return { addressing, node };
}

export function ciliumEndpoint(name: string, said: SaidEndpoint = {}): SaidObject {
  const { namespace = 'shop', uid = `uid-cep-${name}`, identity = 1001, key, createdAt = 0, ports } = said;
  return {
    metadata: { name, namespace, uid, creationTimestamp: at(createdAt) },
    status: {
      id: 11,
      state: 'ready',
      identity: identity === 0 ? undefined : { id: identity, labels: ['k8s:app=web'] },
      networking: networking(said),
      encryption: { key },
      'named-ports': ports,
    },
  };
}

/** Returns an endpoint in the form of a slice. */
export function sliced(name: string, said: SaidEndpoint = {}): object {
  const { identity = 1001, key, ports } = said;
  return { name, id: identity, networking: networking(said), encryption: { key }, 'named-ports': ports };
}

export function ciliumEndpointSlice(
  name: string,
  endpoints: readonly object[],
  { namespace = 'shop', createdAt = 0 }: { readonly namespace?: string; readonly createdAt?: number } = {},
): SaidObject {
  return { metadata: { name, creationTimestamp: at(createdAt) }, namespace, endpoints };
}

export function ciliumNode(
  name: string,
  spec: object = {},
  labels: Readonly<Record<string, string>> = {},
): SaidObject {
  return { metadata: { name, labels }, spec };
}

export function service(
  name: string,
  spec: object = {},
  annotations: Readonly<Record<string, string>> = {},
): SaidObject {
  return {
    metadata: { name, namespace: 'shop', annotations },
    spec: { clusterIP: '10.96.0.7', ports: [{ name: 'http', port: 80 }], ...spec },
  };
}

export function endpointSlice(
  name: string,
  serviceName: string,
  addresses: readonly string[],
  namespace = 'shop',
): SaidObject {
  return {
    metadata: { name, namespace, labels: { 'kubernetes.io/service-name': serviceName } },
    addressType: 'IPv4',
    endpoints: addresses.map((address) => ({ addresses: [address], conditions: { ready: true } })),
    ports: [{ name: 'http', port: 8080 }],
  };
}
