/** A kind of an API server. */
export interface ResourceType {
  readonly group: string;
  readonly version: string;
  readonly kind: string;
  readonly plural: string;
  readonly namespaced: boolean;
  /** True if `status` is a subresource. */
  readonly hasStatus?: boolean;
}

/** Returns a kind. Its plural is formed as in English. */
function type(
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
    type('multicluster.x-k8s.io', version, kind, 'Namespaced', true),
  ),
);

/** The kinds of a cluster with Cilium that are followed here. */
export const CLUSTER_TYPES: readonly ResourceType[] = [
  type('', 'v1', 'Namespace', 'Cluster', true),
  type('', 'v1', 'Node', 'Cluster', true),
  type('', 'v1', 'Pod', 'Namespaced', true),
  type('', 'v1', 'Service', 'Namespaced', true),
  type('', 'v1', 'Endpoints', 'Namespaced', false),
  type('', 'v1', 'ConfigMap', 'Namespaced', false),
  type('discovery.k8s.io', 'v1', 'EndpointSlice', 'Namespaced', false),
  type('discovery.k8s.io', 'v1beta1', 'EndpointSlice', 'Namespaced', false),
  type('coordination.k8s.io', 'v1', 'Lease', 'Namespaced', false),
  type('networking.k8s.io', 'v1', 'NetworkPolicy', 'Namespaced', false),
  type('cilium.io', 'v2', 'CiliumNode', 'Cluster', true),
  type('cilium.io', 'v2', 'CiliumEndpoint', 'Namespaced', true),
  type('cilium.io', 'v2', 'CiliumIdentity', 'Cluster', false),
  type('cilium.io', 'v2', 'CiliumNetworkPolicy', 'Namespaced', true),
  type('cilium.io', 'v2', 'CiliumClusterwideNetworkPolicy', 'Cluster', true),
  type('cilium.io', 'v2alpha1', 'CiliumEndpointSlice', 'Cluster', false),
  type('cilium.io', 'v2alpha1', 'CiliumCIDRGroup', 'Cluster', false),
  ...MCS_TYPES,
];

/** Returns the `apiVersion` and `kind` of an object. */
export function typeMeta({ group, version, kind }: Pick<ResourceType, 'group' | 'version' | 'kind'>): {
  readonly apiVersion: string;
  readonly kind: string;
} {
  return { apiVersion: group === '' ? version : `${group}/${version}`, kind };
}
