/** A kind of objects that an API server serves. */
export interface ResourceType {
  readonly group: string;
  readonly version: string;
  readonly kind: string;
  readonly plural: string;
  readonly namespaced: boolean;
  /** True if `status` is a subresource. */
  readonly hasStatus?: boolean;
}

/** Returns a kind with the English plural of its name. */
function resourceType(
  group: string,
  version: string,
  kind: string,
  scope: 'Cluster' | 'Namespaced',
  hasStatus: boolean,
): ResourceType {
  const plural = kind.toLowerCase().replace(/y$/, 'ie').replace(/s?$/, 's');
  return { group, version, kind, plural, namespaced: scope === 'Namespaced', hasStatus };
}

/** The kinds of the multi-cluster services API. */
export const MCS_TYPES: readonly ResourceType[] = ['v1beta1', 'v1alpha1'].flatMap((version) =>
  ['ServiceExport', 'ServiceImport'].map((kind) =>
    resourceType('multicluster.x-k8s.io', version, kind, 'Namespaced', true),
  ),
);

/** The kinds of a cluster with Cilium that the agent and the operator use. */
export const CLUSTER_TYPES: readonly ResourceType[] = [
  resourceType('', 'v1', 'Namespace', 'Cluster', true),
  resourceType('', 'v1', 'Node', 'Cluster', true),
  resourceType('', 'v1', 'Pod', 'Namespaced', true),
  resourceType('', 'v1', 'Service', 'Namespaced', true),
  resourceType('', 'v1', 'Endpoints', 'Namespaced', false),
  resourceType('', 'v1', 'ConfigMap', 'Namespaced', false),
  resourceType('discovery.k8s.io', 'v1', 'EndpointSlice', 'Namespaced', false),
  resourceType('discovery.k8s.io', 'v1beta1', 'EndpointSlice', 'Namespaced', false),
  resourceType('coordination.k8s.io', 'v1', 'Lease', 'Namespaced', false),
  resourceType('networking.k8s.io', 'v1', 'NetworkPolicy', 'Namespaced', false),
  resourceType('cilium.io', 'v2', 'CiliumNode', 'Cluster', true),
  resourceType('cilium.io', 'v2', 'CiliumEndpoint', 'Namespaced', true),
  resourceType('cilium.io', 'v2', 'CiliumIdentity', 'Cluster', false),
  resourceType('cilium.io', 'v2', 'CiliumNetworkPolicy', 'Namespaced', true),
  resourceType('cilium.io', 'v2', 'CiliumClusterwideNetworkPolicy', 'Cluster', true),
  resourceType('cilium.io', 'v2', 'CiliumCIDRGroup', 'Cluster', false),
  resourceType('cilium.io', 'v2alpha1', 'CiliumEndpointSlice', 'Cluster', false),
  resourceType('cilium.io', 'v2alpha1', 'CiliumCIDRGroup', 'Cluster', false),
  ...MCS_TYPES,
];

/** Returns the fields of an object that name its type. */
export function typeMeta({ group, version, kind }: Pick<ResourceType, 'group' | 'version' | 'kind'>): {
  readonly apiVersion: string;
  readonly kind: string;
} {
  return { apiVersion: group === '' ? version : `${group}/${version}`, kind };
}
