import { Map as ImmutableMap, Set as ImmutableSet } from 'immutable';
import { DEFAULT_WEIGHT } from '../model/backend-weight.ts';
import type { BackendZone, ClusterService } from '../model/cluster-service.ts';
import type { PortProtocol } from '../net/port.ts';
import { type Backend, backendComparison, backendOf, NO_PORTS, NO_ZONES, type Ports } from './backend.ts';
import { OrderedMatcher } from './offer-difference.ts';

const NONE: readonly never[] = [];

/** The zone of a backend for which its cluster publishes none. */
const NO_ZONE: BackendZone = { zone: '' };

function samePorts(a: ReadonlyMap<string, PortProtocol>, b: Ports): boolean {
  if (a.size !== b.size) return false;
  for (const [name, port] of a) {
    const other = b.get(name);
    if (other === undefined || other.port !== port.port || other.protocol !== port.protocol) return false;
  }
  return true;
}

function sameZones(backend: Backend, { zone, forZones = NONE }: BackendZone): boolean {
  if (backend.zone !== zone) return false;
  if (forZones.length === 0) return backend.forZones.size === 0;
  return backend.forZones.equals(ImmutableSet(forZones));
}

/**
 * Returns true if an offer contains exactly the backends `known` of an earlier offer. Linear in the offer; allocates
 * nothing.
 */
export function isSameOffer(known: readonly Backend[], service: ClusterService): boolean {
  if (known.length !== service.backends.size) return false;
  const { hostnames, zones } = service;
  const earlier = new OrderedMatcher(known);
  for (const [address, ports] of service.backends) {
    const backend = earlier.pull(address);
    if (backend === undefined || backend.hostname !== (hostnames?.get(address) ?? '')) return false;
    if (!samePorts(ports, backend.ports)) return false;
    if (!sameZones(backend, zones?.get(address) ?? NO_ZONE)) return false;
  }
  return true;
}

/**
 * Returns the backends of an offer. Backends and address strings that are equal in `known`, the earlier offer, are
 * reused. Backends with equal ports share one port map. So later comparisons mostly compare references.
 */
export function remoteBackends(
  service: ClusterService,
  known: readonly Backend[] = NONE,
): readonly Backend[] {
  const { cluster, hostnames, zones } = service;
  const earlier = new OrderedMatcher(known);
  const equal = backendComparison();
  const backends: Backend[] = [];
  let ports = NO_PORTS;
  for (const [text, offered] of service.backends) {
    const previous = earlier.pull(text);
    const address = previous?.address ?? text;
    if (!samePorts(offered, ports)) ports = ImmutableMap(offered);
    const hostname = hostnames?.get(text) ?? '';
    const { zone, forZones = NONE } = zones?.get(text) ?? NO_ZONE;
    const forZoneSet = forZones.length === 0 ? NO_ZONES : ImmutableSet(forZones);
    const backend = backendOf({
      address,
      ports,
      nodeName: '',
      zone,
      hostname,
      state: 'active',
      weight: DEFAULT_WEIGHT,
      forZones: forZoneSet,
      cluster,
    });
    backends.push(previous !== undefined && equal(previous, backend) ? previous : backend);
  }
  return backends;
}
