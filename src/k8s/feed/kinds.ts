import { HEADLESS_LABEL } from '../../model/cluster-endpoint-slice.ts';
import type { ResourceKind } from '../resource.ts';

/** The label of services for another proxy than kube-proxy. */
const PROXY_NAME = 'service.kubernetes.io/service-proxy-name';
/** Excludes the slices that Cilium's mesh controller creates for backends of other clusters. */
const NO_MESH_SLICES = 'endpointslice.kubernetes.io/managed-by!=endpointslice-mesh-controller.cilium.io';

/** The services to list and watch (KUBERNETES 14). */
export interface ServiceSelection {
  /** Only services of this proxy. Default: services without a proxy name. */
  readonly proxyName?: string | undefined;
  /** Includes headless services and their endpoints (KUBERNETES 14). */
  readonly headless?: boolean | undefined;
}

function core(plural: string, selectors: Partial<ResourceKind> = {}): ResourceKind {
  return { group: '', version: 'v1', plural, ...selectors };
}

function cilium(plural: string, version = 'v2'): ResourceKind {
  return { group: 'cilium.io', version, plural };
}

function serviceLabels({ proxyName, headless = false }: ServiceSelection): string {
  const proxy = proxyName === undefined ? `!${PROXY_NAME}` : `${PROXY_NAME}=${proxyName}`;
  return headless ? proxy : `!${HEADLESS_LABEL},${proxy}`;
}

/** Returns the kind of the services to follow. */
export function services(selection: ServiceSelection): ResourceKind {
  return core('services', { labelSelector: serviceLabels(selection) });
}

/**
 * Returns the kinds of the endpoints of services, in order of preference. The first served one is used (KUBERNETES 13).
 */
export function serviceEndpoints(selection: ServiceSelection): readonly ResourceKind[] {
  const labelSelector = selection.headless === true ? NO_MESH_SLICES : `!${HEADLESS_LABEL},${NO_MESH_SLICES}`;
  const slices = { group: 'discovery.k8s.io', plural: 'endpointslices', labelSelector };
  return [
    { ...slices, version: 'v1' },
    { ...slices, version: 'v1beta1' },
    core('endpoints', { labelSelector: serviceLabels(selection) }),
  ];
}

/** Returns the kind of the pods of one node; if `nodeName` is undefined, of all nodes (KUBERNETES 12). */
export function pods(nodeName: string | undefined): ResourceKind {
  return core('pods', nodeName === undefined ? {} : { fieldSelector: `spec.nodeName=${nodeName}` });
}

/** Returns the kind of the Node with this name (KUBERNETES 39). */
export function localNode(nodeName: string): ResourceKind {
  return core('nodes', { fieldSelector: `metadata.name=${nodeName}` });
}

export const NAMESPACES: ResourceKind = core('namespaces');
export const CILIUM_ENDPOINTS: ResourceKind = cilium('ciliumendpoints');
export const CILIUM_ENDPOINT_SLICES: ResourceKind = cilium('ciliumendpointslices', 'v2alpha1');
export const CILIUM_NODES: ResourceKind = cilium('ciliumnodes');
export const CILIUM_IDENTITIES: ResourceKind = cilium('ciliumidentities');
/** The versions of CIDR groups, in order of preference (KUBERNETES 13): Cilium serves v2 since 1.18. */
export const CIDR_GROUPS: readonly ResourceKind[] = [
  cilium('ciliumcidrgroups'),
  cilium('ciliumcidrgroups', 'v2alpha1'),
];
export const CILIUM_POLICIES: ResourceKind = cilium('ciliumnetworkpolicies');
export const CLUSTERWIDE_POLICIES: ResourceKind = cilium('ciliumclusterwidenetworkpolicies');
const NETWORK_POLICIES: ResourceKind = {
  group: 'networking.k8s.io',
  version: 'v1',
  plural: 'networkpolicies',
};

/** The kinds whose versions and selectors depend neither on options nor on discovery. A feed follows those it needs. */
export const FIXED_KINDS: readonly ResourceKind[] = [
  NAMESPACES,
  CILIUM_ENDPOINTS,
  CILIUM_ENDPOINT_SLICES,
  CILIUM_NODES,
  CILIUM_IDENTITIES,
  NETWORK_POLICIES,
  CILIUM_POLICIES,
  CLUSTERWIDE_POLICIES,
];
