import { Map as ImmutableMap, Set as ImmutableSet } from 'immutable';
import type { PortProtocol } from '../net/port.ts';
import {
  type Backend,
  createBackend,
  NO_PORTS,
  NO_ZONES,
  type OfferedBackends,
  type Ports,
} from './backend.ts';

/** Where a remote backend runs, as its cluster says. */
export interface BackendZone {
  readonly zone: string;
  readonly forZones?: readonly string[] | undefined;
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

function sameZones(backend: Backend, zone: BackendZone | undefined): boolean {
  if (backend.zone !== (zone?.zone ?? '')) return false;
  const forZones = zone?.forZones ?? [];
  return (
    backend.forZones.size === new Set(forZones).size && forZones.every((each) => backend.forZones.has(each))
  );
}

/**
 * Whether an offer says what `known`, made of an earlier offer of that cluster, says. Costs the size of the
 * offer and builds nothing.
 */
export function isSameOffer(known: OfferedBackends, service: ClusterService): boolean {
  if (known.size !== service.backends.size) return false;
  for (const [address, offered] of service.backends) {
    const backend = known.get(address);
    if (backend === undefined || !samePorts(offered, backend.ports)) return false;
    if (backend.hostname !== (service.hostnames?.get(address) ?? '')) return false;
    if (!sameZones(backend, service.zones?.get(address))) return false;
  }
  return true;
}

/**
 * The backends that a remote cluster offers. Backends with the same ports share one map of them: nearly all
 * services have one set of ports, and comparing them is then comparing two pointers.
 */
export function remoteBackends(service: ClusterService): OfferedBackends {
  const { cluster, hostnames, zones } = service;
  const backends = new Map<string, Backend>();
  let ports = NO_PORTS;
  for (const [address, offered] of service.backends) {
    if (!samePorts(offered, ports)) ports = ImmutableMap(offered);
    const hostname = hostnames?.get(address) ?? '';
    const zone = zones?.get(address);
    const forZones = zone?.forZones?.length ? ImmutableSet(zone.forZones) : NO_ZONES;
    backends.set(
      address,
      createBackend({ address, ports, hostname, zone: zone?.zone ?? '', forZones, cluster }),
    );
  }
  return backends;
}
