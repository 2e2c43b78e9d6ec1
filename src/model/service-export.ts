import type { SliceAddressType, SlicePort } from './cluster-endpoint-slice.ts';
import type { ClusterServiceKey } from './cluster-service.ts';

/** A port of an exported service. Its name may be empty. */
export interface ExportedPort extends SlicePort {
  readonly appProtocol?: string | undefined;
}

/** The properties of an exported service that all clusters should agree on. */
export interface ExportedService {
  readonly annotations: ReadonlyMap<string, string>;
  readonly labels: ReadonlyMap<string, string>;
  readonly ports: readonly ExportedPort[];
  readonly type: 'ClusterSetIP' | 'Headless';
  /** Undefined means `None`. */
  readonly sessionAffinity?: 'ClientIP' | 'None' | undefined;
  /** Timeout of the affinity `ClientIP`, in seconds. */
  readonly sessionAffinitySeconds?: number | undefined;
  /** In the order of the service. Empty means unknown: Cilium 1.18 and earlier do not write families. */
  readonly ipFamilies: readonly SliceAddressType[];
  /** Undefined means `Cluster`. */
  readonly internalTrafficPolicy?: 'Cluster' | 'Local' | undefined;
  readonly trafficDistribution?: 'PreferClose' | 'PreferSameZone' | 'PreferSameNode' | undefined;
}

/** The allowed values of a property. */
type Values<K extends keyof ExportedService> = readonly NonNullable<ExportedService[K]>[];

export const EXPORT_TYPES: Values<'type'> = ['ClusterSetIP', 'Headless'];
export const SESSION_AFFINITIES: Values<'sessionAffinity'> = ['ClientIP', 'None'];
export const IP_FAMILIES: readonly SliceAddressType[] = ['IPv4', 'IPv6'];
export const TRAFFIC_POLICIES: Values<'internalTrafficPolicy'> = ['Cluster', 'Local'];
export const TRAFFIC_DISTRIBUTIONS: Values<'trafficDistribution'> = [
  'PreferClose',
  'PreferSameZone',
  'PreferSameNode',
];

/**
 * A service that a cluster exports by a ServiceExport of the multi-cluster services API: the value at
 * `cilium/state/serviceexports/v1/…` (WIRE, "ServiceExport"). Callers must not change it after passing it in.
 */
export interface ServiceExport extends ClusterServiceKey, ExportedService {
  /** Creation time of the ServiceExport, in milliseconds since the epoch. The oldest export wins conflicts. */
  readonly createdAt: number;
}
