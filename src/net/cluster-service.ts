import type { PortProtocol } from './port.ts';

/** Where a remote backend runs, as its cluster says. */
export interface BackendZone {
  /** `''` when not known. */
  readonly zone: string;
  /** Zones whose clients should use the backend. */
  readonly forZones?: readonly string[] | undefined;
}

/** Which cluster's service. */
export interface ClusterServiceKey {
  readonly cluster: string;
  readonly namespace: string;
  readonly name: string;
}

/**
 * A service as its cluster shares it: the value at `cilium/state/services/v1/…` (WIRE, "ClusterService"). Decoders give
 * canonical addresses and ports in range; they are not checked again. Not to be changed once it was handed in.
 */
export interface ClusterService extends ClusterServiceKey {
  /** Ports by name, by frontend address. */
  readonly frontends: ReadonlyMap<string, ReadonlyMap<string, PortProtocol>>;
  /** Ports by name, by backend address. */
  readonly backends: ReadonlyMap<string, ReadonlyMap<string, PortProtocol>>;
  readonly labels: ReadonlyMap<string, string>;
  readonly selector: ReadonlyMap<string, string>;
  /** Host names by backend address; undefined when the writer is too old to know them. */
  readonly hostnames?: ReadonlyMap<string, string> | undefined;
  readonly zones?: ReadonlyMap<string, BackendZone> | undefined;
  readonly includeExternal: boolean;
  /** When false the cluster offers nothing: the same as its delete. True when the writer is too old to say. */
  readonly shared: boolean;
  readonly clusterID: number;
}
