import type { PortProtocol } from '../net/port.ts';

/** Limits of Kubernetes for a slice: endpoints, addresses of one endpoint, ports. */
export const SLICE_LIMITS = { endpoints: 1_000, addresses: 100, ports: 20_000 } as const;
/** Labels in {@link SliceEndpoint.deprecatedTopology} that name the node and the zone of the endpoint. */
export const HOSTNAME_TOPOLOGY = 'kubernetes.io/hostname';
export const ZONE_TOPOLOGY = 'topology.kubernetes.io/zone';

/** The label of a slice that names its service. */
export const SERVICE_NAME_LABEL = 'kubernetes.io/service-name';
/** The label of headless services and their slices, which kube-proxy ignores. */
export const HEADLESS_LABEL = 'service.kubernetes.io/headless';

/** The full name of an endpoint slice in a mesh. */
export interface ClusterEndpointSliceKey {
  readonly cluster: string;
  readonly namespace: string;
  /** The name of the slice, not of its service. */
  readonly name: string;
}

/** The family of all addresses of a slice. */
export type SliceAddressType = 'IPv4' | 'IPv6';

/** The conditions of an endpoint. Undefined means unknown. */
export interface EndpointConditions {
  readonly ready?: boolean | undefined;
  readonly serving?: boolean | undefined;
  readonly terminating?: boolean | undefined;
}

/** An endpoint of a slice: usually a pod. */
export interface SliceEndpoint {
  /** Canonical, of the family of the slice. An IPv4-mapped address of an IPv6 slice is IPv4 (SEMANTICS 2.1). */
  readonly addresses: readonly string[];
  readonly conditions: EndpointConditions;
  readonly hostname?: string | undefined;
  readonly nodeName?: string | undefined;
  readonly zone?: string | undefined;
  /** Zones whose clients should use the endpoint (topology hints). */
  readonly forZones: readonly string[];
  /** Topology of API version v1beta1; empty in slices of v1. */
  readonly deprecatedTopology: ReadonlyMap<string, string>;
}

/** A port of all endpoints of a slice. Its name may be empty. */
export interface SlicePort extends PortProtocol {
  readonly name: string;
}

/**
 * An endpoint slice as its cluster shares it: the value at `cilium/state/endpointslices/v1/…` (WIRE,
 * "ClusterEndpointSlice"). Decoders return canonical addresses and valid ports; engines do not check them again.
 * Callers must not change it after passing it in.
 */
export interface ClusterEndpointSlice extends ClusterEndpointSliceKey {
  readonly clusterID: number;
  /** The label `kubernetes.io/service-name` names the service. */
  readonly labels: ReadonlyMap<string, string>;
  readonly annotations: ReadonlyMap<string, string>;
  readonly addressType: SliceAddressType;
  readonly endpoints: readonly SliceEndpoint[];
  readonly ports: readonly SlicePort[];
}
