/** What exists in a mesh. Tests change it; `objects.ts` and `model.ts` derive the objects and the answers from it. */
export interface World {
  readonly clusters: Readonly<Record<string, Cluster>>;
}

export interface Cluster {
  readonly name: string;
  readonly id: number;
  /** The kind of objects from which agents and the operator read endpoints. */
  readonly endpoints: 'ciliumendpoints' | 'ciliumendpointslices';
  readonly nodes: Record<string, ClusterNode>;
  readonly namespaces: Record<string, ClusterNamespace>;
  /** By `namespace/name`, like services. */
  readonly pods: Record<string, Pod>;
  readonly services: Record<string, ClusterService>;
  /** The services of ServiceExports. */
  readonly exports: Set<string>;
  /** The CIDRs of CiliumCIDRGroups. */
  readonly groups: Record<string, readonly string[]>;
  /** The remote clusters of its configuration directory. */
  readonly remotes: Set<string>;
  /** The number of each CiliumIdentity, by its labels. */
  readonly identities: Map<string, number>;
}

export interface ClusterNode {
  /** The addresses of a node contain this number. A node that replaces another one has the same. */
  readonly number: number;
  readonly isControlPlane?: boolean;
}

export interface ClusterNamespace {
  readonly labels: Readonly<Record<string, string>>;
  /** False: nothing in this namespace is published to the mesh. */
  readonly isGlobal?: boolean;
}

export interface Pod {
  readonly node: string;
  readonly app: string;
  /** The last two numbers of its addresses: `1.10` is 10.<cluster>.1.10 and fd00:10:<cluster>:1::10. */
  readonly ip: string;
  /** `creating`: without a CiliumEndpoint; `starting`: not ready. */
  readonly phase?: 'creating' | 'starting' | 'terminating';
}

export interface ClusterService {
  /** The app of the pods that serve it. */
  readonly app: string;
  readonly ip: string;
  readonly isGlobal?: boolean;
  readonly isShared?: boolean;
  readonly affinity?: 'local' | 'remote';
  /** Missing: the service is of type ClusterIP. */
  readonly nodePort?: number;
}

/** The addresses of a node or a pod, IPv4 first. */
export type Addresses = readonly [v4: string, v6: string];

export function nodeAddresses(
  { id }: Cluster,
  { number }: ClusterNode,
): Readonly<Record<'internal' | 'router' | 'health' | 'ingress' | 'cidr', Addresses>> {
  const inside = (host: string): Addresses => [
    `10.${id}.${number}.${host}`,
    `fd00:10:${id}:${number}::${host}`,
  ];
  return {
    internal: [`192.168.${id}.${number}`, `fd00:192:168:${id}::${number}`],
    router: inside('1'),
    health: inside('2'),
    ingress: inside('3'),
    cidr: [`10.${id}.${number}.0/24`, `fd00:10:${id}:${number}::/64`],
  };
}

export function podAddresses({ id }: Cluster, { ip }: Pod): Addresses {
  return [`10.${id}.${ip}`, `fd00:10:${id}:${ip.replace('.', '::')}`];
}

export function serviceAddresses({ id }: Cluster, { ip }: ClusterService): Addresses {
  return [`172.16.${id}.${ip}`, `fd00:172:16:${id}::${ip}`];
}

/** Returns `[namespace, name]`. */
export function splitName(fullName: string): readonly [string, string] {
  const [namespace = '', name = ''] = fullName.split('/');
  return [namespace, name];
}

/** Returns the security labels of a pod, sorted. */
export function labelsOf(
  { name: cluster, namespaces }: Cluster,
  pod: string,
  { app }: Pod,
): readonly string[] {
  const [namespace] = splitName(pod);
  const ofNamespace = Object.entries(namespaces[namespace]?.labels ?? {}).map(
    ([key, value]) => `k8s:io.cilium.k8s.namespace.labels.${key}=${value}`,
  );
  return [
    `k8s:app=${app}`,
    ...ofNamespace,
    `k8s:io.cilium.k8s.policy.cluster=${cluster}`,
    `k8s:io.cilium.k8s.policy.serviceaccount=${app}`,
    `k8s:io.kubernetes.pod.namespace=${namespace}`,
  ].sort();
}

/** Allocates identities for new labels, and deletes those that no pod has. A deleted number is not used again. */
export function allocateIdentities(cluster: Cluster): void {
  const { pods, identities, id } = cluster;
  const used = new Set(Object.entries(pods).map(([name, pod]) => labelsOf(cluster, name, pod).join(';')));
  let last = Math.max(id * 65_536 + 1000, ...identities.values());
  for (const labels of identities.keys()) if (!used.has(labels)) identities.delete(labels);
  for (const labels of used) if (!identities.has(labels)) identities.set(labels, ++last);
}

export function identityOf(cluster: Cluster, name: string, pod: Pod): number {
  return cluster.identities.get(labelsOf(cluster, name, pod).join(';')) ?? 0;
}

/** Returns true if the objects of the namespace are published. */
export function isPublished({ namespaces }: Cluster, fullName: string): boolean {
  const [namespace] = splitName(fullName);
  return namespaces[namespace] !== undefined && namespaces[namespace].isGlobal !== false;
}
