import { Map as ImmutableMap, Set as ImmutableSet } from 'immutable';
import type { PortProtocol } from '../net/port.ts';
import { BACKEND_DEFAULTS, type Backend, type Backends, NO_PORTS, type Ports } from './backend.ts';

/** Where a remote backend runs, as its cluster says. */
export interface BackendZone {
  readonly zone: string;
  readonly hintsForZones?: readonly string[] | undefined;
}

/**
 * A service as another cluster offers it: the decoded `cilium/state/services/v1/…` value (WIRE,
 * "ClusterService"). Addresses are canonical text and no ports are out of range: its decoder has seen to that.
 * Not to be changed once it was handed in.
 */
export interface ClusterService {
  readonly cluster: string;
  readonly namespace: string;
  readonly name: string;
  readonly frontends: ReadonlyMap<string, ReadonlyMap<string, PortProtocol>>;
  readonly backends: ReadonlyMap<string, ReadonlyMap<string, PortProtocol>>;
  readonly labels: ReadonlyMap<string, string>;
  readonly selector: ReadonlyMap<string, string>;
  readonly hostnames?: ReadonlyMap<string, string> | undefined;
  readonly zones?: ReadonlyMap<string, BackendZone> | undefined;
  readonly includeExternal: boolean;
  /** When false the cluster offers nothing: the same as its delete. */
  readonly shared: boolean;
  readonly clusterID: number;
}

/** The same for a service that a cluster offers no more. */
export interface ClusterServiceKey {
  readonly cluster: string;
  readonly namespace: string;
  readonly name: string;
}

function samePorts(a: ReadonlyMap<string, PortProtocol>, b: Ports): boolean {
  if (a.size !== b.size) return false;
  for (const [name, port] of a) {
    const other = b.get(name);
    if (other === undefined || other.port !== port.port || other.protocol !== port.protocol) return false;
  }
  return true;
}

/**
 * The backends that a remote cluster offers. Backends with the same ports share one map of them: nearly all
 * services have one set of ports, and comparing them is then comparing two pointers.
 */
export function remoteBackends(service: ClusterService): Backends {
  let ports = NO_PORTS;
  return ImmutableMap<string, Backend>().withMutations((backends) => {
    for (const [address, offered] of service.backends) {
      if (!samePorts(offered, ports)) ports = ImmutableMap(offered);
      const zone = service.zones?.get(address);
      backends.set(address, {
        ...BACKEND_DEFAULTS,
        address,
        ports,
        zone: zone?.zone ?? '',
        hostname: service.hostnames?.get(address) ?? '',
        forZones: zone?.hintsForZones?.length ? ImmutableSet(zone.hintsForZones) : BACKEND_DEFAULTS.forZones,
        cluster: service.cluster,
      });
    }
  });
}
