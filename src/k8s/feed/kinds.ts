import type { ResourceKind } from '../resource.ts';

const HEADLESS = 'service.kubernetes.io/headless';
const PROXY_NAME = 'service.kubernetes.io/service-proxy-name';
/** Slices that Cilium's own mesh controller makes of other clusters' backends. */
const OWN_SLICES = 'endpointslice.kubernetes.io/managed-by!=endpointslice-mesh-controller.cilium.io';

/** Which services are asked for (section 2 of the rules, K 14). */
export interface ServiceSelection {
  /** Only services of this proxy; default: those that name none. */
  readonly proxyName?: string | undefined;
  /** Headless services and their endpoints, too (K 14). */
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
  return headless ? proxy : `!${HEADLESS},${proxy}`;
}

/** Services that are to be served. */
export function services(selection: ServiceSelection): ResourceKind {
  return core('services', { labelSelector: serviceLabels(selection) });
}

/** What has the endpoints of services, the best first: an API server is asked for the first that it serves (K 13). */
export function serviceEndpoints(selection: ServiceSelection): readonly ResourceKind[] {
  const labelSelector = selection.headless === true ? OWN_SLICES : `!${HEADLESS},${OWN_SLICES}`;
  const slices = { group: 'discovery.k8s.io', plural: 'endpointslices', labelSelector };
  return [
    { ...slices, version: 'v1' },
    { ...slices, version: 'v1beta1' },
    core('endpoints', { labelSelector: serviceLabels(selection) }),
  ];
}

/** Pods of one node, or of all (K 12). */
export function pods(nodeName: string | undefined): ResourceKind {
  return core('pods', nodeName === undefined ? {} : { fieldSelector: `spec.nodeName=${nodeName}` });
}

/** The Node of that name and no other (K 39). */
export function ownNode(nodeName: string): ResourceKind {
  return core('nodes', { fieldSelector: `metadata.name=${nodeName}` });
}

export const NAMESPACES: ResourceKind = core('namespaces');
export const CILIUM_ENDPOINTS: ResourceKind = cilium('ciliumendpoints');
export const CILIUM_ENDPOINT_SLICES: ResourceKind = cilium('ciliumendpointslices', 'v2alpha1');
export const CILIUM_NODES: ResourceKind = cilium('ciliumnodes');
export const CILIUM_IDENTITIES: ResourceKind = cilium('ciliumidentities');
export const CIDR_GROUPS: ResourceKind = cilium('ciliumcidrgroups', 'v2alpha1');
export const CILIUM_POLICIES: ResourceKind = cilium('ciliumnetworkpolicies');
export const CLUSTERWIDE_POLICIES: ResourceKind = cilium('ciliumclusterwidenetworkpolicies');
export const NETWORK_POLICIES: ResourceKind = {
  group: 'networking.k8s.io',
  version: 'v1',
  plural: 'networkpolicies',
};
