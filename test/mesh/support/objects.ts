import {
  type Cluster,
  type ClusterNode,
  type ClusterService,
  identityOf,
  nodeAddresses,
  type Pod,
  podAddresses,
  serviceAddresses,
  splitName,
} from './world.ts';

export interface KubernetesContent {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: {
    readonly name: string;
    readonly namespace?: string;
    readonly [field: string]: unknown;
  };
  readonly [field: string]: unknown;
}

/** The encryption key of each node. */
export const KEY = 3;

const FAMILIES = ['IPv4', 'IPv6'] as const;
const HTTP = { name: 'http', port: 8080, protocol: 'TCP' };

function nodeObjects(cluster: Cluster, name: string, node: ClusterNode): readonly KubernetesContent[] {
  const { internal, router, health, ingress, cidr } = nodeAddresses(cluster, node);
  const labels = { 'kubernetes.io/hostname': name };
  const typed = (type: string, ips: readonly string[]) => ips.map((ip) => ({ type, ip }));
  return [
    {
      apiVersion: 'v1',
      kind: 'Node',
      metadata: { name, labels },
      spec: { podCIDRs: cidr },
      status: { addresses: internal.map((address) => ({ type: 'InternalIP', address })) },
    },
    {
      apiVersion: 'cilium.io/v2',
      kind: 'CiliumNode',
      metadata: { name, labels, ownerReferences: [{ apiVersion: 'v1', kind: 'Node', name, uid: name }] },
      spec: {
        addresses: [...typed('InternalIP', internal), ...typed('CiliumInternalIP', router)],
        ipam: { podCIDRs: cidr },
        health: { ipv4: health[0], ipv6: health[1] },
        ingress: { ipv4: ingress[0], ipv6: ingress[1] },
        encryption: { key: KEY },
      },
    },
  ];
}

function podObjects(cluster: Cluster, fullName: string, pod: Pod): readonly KubernetesContent[] {
  const [namespace, name] = splitName(fullName);
  const [ipv4, ipv6] = podAddresses(cluster, pod);
  const node = cluster.nodes[pod.node];
  const [hostIP] = node === undefined ? [''] : nodeAddresses(cluster, node).internal;
  const object: KubernetesContent = {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { namespace, name, labels: { app: pod.app }, uid: `${fullName} ${pod.node} ${pod.ip}` },
    spec: {
      nodeName: pod.node,
      containers: [{ name: 'main', ports: [{ ...HTTP, port: undefined, containerPort: HTTP.port }] }],
    },
    status: { phase: 'Running', hostIP, podIP: ipv4, podIPs: [{ ip: ipv4 }, { ip: ipv6 }] },
  };
  if (pod.phase === 'creating') return [object];
  const endpoint: KubernetesContent = {
    apiVersion: 'cilium.io/v2',
    kind: 'CiliumEndpoint',
    metadata: { namespace, name },
    status: {
      identity: { id: identityOf(cluster, fullName, pod) },
      networking: { addressing: [{ ipv4, ipv6 }], node: hostIP },
      encryption: { key: KEY },
      'named-ports': [HTTP],
      'service-account': pod.app,
    },
  };
  return [object, endpoint];
}

function serviceObjects(
  cluster: Cluster,
  fullName: string,
  service: ClusterService,
): readonly KubernetesContent[] {
  const [namespace, name] = splitName(fullName);
  const { isGlobal, isShared, affinity, app, nodePort } = service;
  const annotations = {
    ...(isGlobal === undefined ? {} : { 'service.cilium.io/global': String(isGlobal) }),
    ...(isShared === undefined ? {} : { 'service.cilium.io/shared': String(isShared) }),
    ...(affinity === undefined ? {} : { 'service.cilium.io/affinity': affinity }),
  };
  const clusterIPs = serviceAddresses(cluster, service);
  const spec = {
    type: nodePort === undefined ? 'ClusterIP' : 'NodePort',
    clusterIP: clusterIPs[0],
    clusterIPs,
    ipFamilies: FAMILIES,
    selector: { app },
  };
  const ports = [{ name: 'http', port: 80, protocol: 'TCP', targetPort: 8080, nodePort }];
  const serving = Object.entries(cluster.pods).filter(
    ([pod, { app, phase }]) => app === service.app && splitName(pod)[0] === namespace && phase !== 'creating',
  );
  const slices = FAMILIES.map(
    (addressType, family): KubernetesContent => ({
      apiVersion: 'discovery.k8s.io/v1',
      kind: 'EndpointSlice',
      metadata: {
        namespace,
        name: `${name}-${addressType.toLowerCase()}`,
        labels: {
          'kubernetes.io/service-name': name,
          'endpointslice.kubernetes.io/managed-by': 'endpointslice-controller.k8s.io',
        },
      },
      addressType,
      ports: [HTTP],
      endpoints: serving.map(([, pod]) => ({
        addresses: [podAddresses(cluster, pod)[family]],
        nodeName: pod.node,
        conditions: {
          ready: pod.phase === undefined,
          serving: pod.phase !== 'starting',
          terminating: pod.phase === 'terminating',
        },
      })),
    }),
  );
  return [
    {
      apiVersion: 'v1',
      kind: 'Service',
      metadata: { namespace, name, annotations },
      spec: { ...spec, ports },
    },
    ...slices,
  ];
}

/** The Service `default/kubernetes`, whose backends are the control-plane nodes. */
function apiServerObjects(cluster: Cluster): readonly KubernetesContent[] {
  const metadata = { namespace: 'default', name: 'kubernetes' };
  const servers = Object.values(cluster.nodes).filter(({ isControlPlane }) => isControlPlane);
  return [
    {
      apiVersion: 'v1',
      kind: 'Service',
      metadata,
      spec: {
        type: 'ClusterIP',
        clusterIP: `172.16.${cluster.id}.1`,
        ports: [{ name: 'https', port: 443, protocol: 'TCP' }],
      },
    },
    {
      apiVersion: 'discovery.k8s.io/v1',
      kind: 'EndpointSlice',
      metadata: { ...metadata, labels: { 'kubernetes.io/service-name': 'kubernetes' } },
      addressType: 'IPv4',
      ports: [{ name: 'https', port: 6443, protocol: 'TCP' }],
      endpoints: servers.map((node) => ({
        addresses: [nodeAddresses(cluster, node).internal[0]],
        conditions: { ready: true },
      })),
    },
  ];
}

/** Returns the Kubernetes objects of a cluster which its users, kubelets, controllers and agents have written. */
export function objectsOf(cluster: Cluster): readonly KubernetesContent[] {
  const { nodes, namespaces, pods, services, exports, groups, identities } = cluster;
  const each = <T>(
    record: Readonly<Record<string, T>>,
    objects: (cluster: Cluster, name: string, value: T) => readonly KubernetesContent[],
  ): readonly KubernetesContent[] =>
    Object.entries(record).flatMap(([name, value]) => objects(cluster, name, value));
  return [
    ...Object.entries(namespaces).map(([name, { labels, isGlobal }]) => {
      const annotations = isGlobal === undefined ? {} : { 'clustermesh.cilium.io/global': String(isGlobal) };
      return { apiVersion: 'v1', kind: 'Namespace', metadata: { name, labels, annotations } };
    }),
    ...[...identities].map(([labels, number]) => ({
      apiVersion: 'cilium.io/v2',
      kind: 'CiliumIdentity',
      metadata: { name: String(number) },
      'security-labels': Object.fromEntries(labels.split(';').map((label) => label.split('='))),
    })),
    ...each(nodes, nodeObjects),
    ...each(pods, podObjects),
    ...each(services, serviceObjects),
    ...apiServerObjects(cluster),
    ...[...exports].map((fullName) => {
      const [namespace, name] = splitName(fullName);
      return {
        apiVersion: 'multicluster.x-k8s.io/v1beta1',
        kind: 'ServiceExport',
        metadata: { namespace, name },
      };
    }),
    ...Object.entries(groups).map(([name, externalCIDRs]) => ({
      apiVersion: 'cilium.io/v2',
      kind: 'CiliumCIDRGroup',
      metadata: { name },
      spec: { externalCIDRs },
    })),
  ];
}
