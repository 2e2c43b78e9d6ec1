import type { PortProtocol } from '../net/port.ts';

/** The topology zone of a remote backend. */
export interface BackendZone {
  /** Empty if unknown. */
  readonly zone: string;
  /** Zones whose clients should use the backend (topology hints). */
  readonly forZones?: readonly string[] | undefined;
}

/** The full name of a service in a mesh, also of its export. */
export interface ClusterServiceKey {
  readonly cluster: string;
  readonly namespace: string;
  readonly name: string;
}

/**
 * A service as its cluster shares it: the value at `cilium/state/services/v1/…` (WIRE, "ClusterService"). Decoders
 * return canonical addresses and valid ports; engines do not check them again. Callers must not change it after passing
 * it in.
 */
export interface ClusterService extends ClusterServiceKey {
  /** Ports by name, by frontend address. */
  readonly frontends: ReadonlyMap<string, ReadonlyMap<string, PortProtocol>>;
  /** Ports by name, by backend address. */
  readonly backends: ReadonlyMap<string, ReadonlyMap<string, PortProtocol>>;
  readonly labels: ReadonlyMap<string, string>;
  readonly selector: ReadonlyMap<string, string>;
  /** Host names by backend address; undefined if the writer's version does not publish them. */
  readonly hostnames?: ReadonlyMap<string, string> | undefined;
  /** Zones by backend address; undefined if the writer's version does not publish them. */
  readonly zones?: ReadonlyMap<string, BackendZone> | undefined;
  /** True if the service uses backends of other clusters in its own cluster, too. Readers here ignore it. */
  readonly includeExternal: boolean;
  /**
   * If false, the cluster offers no backends, as if it had deleted the service. True if the writer's version has no
   * such field.
   */
  readonly shared: boolean;
  readonly clusterID: number;
}
