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

const CILIUM = { group: 'cilium.io', version: 'v2' };
const SLICES = {
  group: 'discovery.k8s.io',
  kind: 'EndpointSlice',
  plural: 'endpointslices',
  namespaced: true,
};

/** The kinds of the multi-cluster services API. */
export const MCS_TYPES: readonly ResourceType[] = ['v1beta1', 'v1alpha1'].flatMap((version) =>
  ['ServiceExport', 'ServiceImport'].map((kind) => ({
    group: 'multicluster.x-k8s.io',
    version,
    kind,
    plural: `${kind.toLowerCase()}s`,
    namespaced: true,
    hasStatus: true,
  })),
);

/** The kinds of a cluster with Cilium that are followed here. */
export const CLUSTER_TYPES: readonly ResourceType[] = [
  { group: '', version: 'v1', kind: 'Namespace', plural: 'namespaces', namespaced: false, hasStatus: true },
  { group: '', version: 'v1', kind: 'Node', plural: 'nodes', namespaced: false, hasStatus: true },
  { group: '', version: 'v1', kind: 'Pod', plural: 'pods', namespaced: true, hasStatus: true },
  { group: '', version: 'v1', kind: 'Service', plural: 'services', namespaced: true, hasStatus: true },
  { group: '', version: 'v1', kind: 'Endpoints', plural: 'endpoints', namespaced: true },
  { group: '', version: 'v1', kind: 'ConfigMap', plural: 'configmaps', namespaced: true },
  { ...SLICES, version: 'v1' },
  { ...SLICES, version: 'v1beta1' },
  { group: 'coordination.k8s.io', version: 'v1', kind: 'Lease', plural: 'leases', namespaced: true },
  {
    group: 'networking.k8s.io',
    version: 'v1',
    kind: 'NetworkPolicy',
    plural: 'networkpolicies',
    namespaced: true,
  },
  { ...CILIUM, kind: 'CiliumNode', plural: 'ciliumnodes', namespaced: false, hasStatus: true },
  { ...CILIUM, kind: 'CiliumEndpoint', plural: 'ciliumendpoints', namespaced: true, hasStatus: true },
  { ...CILIUM, kind: 'CiliumIdentity', plural: 'ciliumidentities', namespaced: false },
  {
    ...CILIUM,
    kind: 'CiliumNetworkPolicy',
    plural: 'ciliumnetworkpolicies',
    namespaced: true,
    hasStatus: true,
  },
  {
    ...CILIUM,
    kind: 'CiliumClusterwideNetworkPolicy',
    plural: 'ciliumclusterwidenetworkpolicies',
    namespaced: false,
    hasStatus: true,
  },
  {
    group: 'cilium.io',
    version: 'v2alpha1',
    kind: 'CiliumEndpointSlice',
    plural: 'ciliumendpointslices',
    namespaced: false,
  },
  {
    group: 'cilium.io',
    version: 'v2alpha1',
    kind: 'CiliumCIDRGroup',
    plural: 'ciliumcidrgroups',
    namespaced: false,
  },
  ...MCS_TYPES,
];

/** Returns the `apiVersion` and `kind` of an object. */
export function typeMeta({ group, version, kind }: Pick<ResourceType, 'group' | 'version' | 'kind'>): {
  readonly apiVersion: string;
  readonly kind: string;
} {
  return { apiVersion: group === '' ? version : `${group}/${version}`, kind };
}
