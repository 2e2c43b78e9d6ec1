import type { ResourceKind } from '../../src/k8s/resource.ts';

/** Objects of the API server of the bench. */
export interface ClusterSize {
  readonly services: number;
  readonly nodes: number;
  /** Backends of each service, in one slice. */
  readonly backends: number;
}

/** Namespace of the services. */
export const NAMESPACE = 'bench';
/** In {@link NAMESPACE}. */
export const SERVICES: ResourceKind = { group: '', version: 'v1', plural: 'services' };
/** One for each service: `<service>-a`. */
export const SLICES: ResourceKind = { group: 'discovery.k8s.io', version: 'v1', plural: 'endpointslices' };
/** CiliumNodes. */
export const NODES: ResourceKind = { group: 'cilium.io', version: 'v2', plural: 'ciliumnodes' };
