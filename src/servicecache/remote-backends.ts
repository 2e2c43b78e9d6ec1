import { Map as ImmutableMap, Set as ImmutableSet } from 'immutable';
import { DEFAULT_WEIGHT } from '../model/backend-weight.ts';
import type { BackendZone, ClusterService } from '../model/cluster-service.ts';
import { type PortsByName, samePorts } from '../net/port.ts';
import { type Backend, backendOf, isPlaceholder, NO_PORTS, NO_ZONES } from './backend.ts';
import { OrderedMatcher } from './offer-difference.ts';

const NONE: readonly never[] = [];

/** The zone of a backend whose cluster publishes no zone for it. */
const NO_ZONE: BackendZone = { zone: '' };

/** Returns true if a backend of the earlier offer has these ports, this hostname and this zone. */
function isSameBackend(
  backend: Backend,
  ports: PortsByName,
  hostname: string,
  { zone, forZones = NONE }: BackendZone,
): boolean {
  if (backend.hostname !== hostname || backend.zone !== zone || !samePorts(ports, backend.ports))
    return false;
  if (forZones.length === 0) return backend.forZones.size === 0;
  return backend.forZones.equals(ImmutableSet(forZones));
}

/**
 * Returns the backends of an offer, without the placeholder of {@link isPlaceholder}. Equal backends of `known`, the
 * earlier offer, are reused; if all are equal, returns `known` itself. Backends with equal ports usually share one port
 * map. So later comparisons mostly compare references.
 */
export function remoteBackends(
  { backends, cluster, hostnames, zones }: ClusterService,
  known: readonly Backend[] = NONE,
): readonly Backend[] {
  const earlier = new OrderedMatcher(known);
  const offered: Backend[] = [];
  let reused = 0;
  let lastPorts = NO_PORTS;
  for (const [text, ports] of backends) {
    if (isPlaceholder(text, ports)) continue;
    const hostname = hostnames?.get(text) ?? '';
    const zoneOf = zones?.get(text) ?? NO_ZONE;
    const previous = earlier.take(text);
    if (previous !== undefined && isSameBackend(previous, ports, hostname, zoneOf)) {
      offered.push(previous);
      lastPorts = previous.ports;
      reused++;
      continue;
    }
    if (!samePorts(ports, lastPorts)) lastPorts = ImmutableMap(ports);
    const { zone, forZones = NONE } = zoneOf;
    offered.push(
      backendOf({
        address: previous?.address ?? text,
        ports: lastPorts,
        nodeName: '',
        zone,
        hostname,
        state: 'active',
        weight: DEFAULT_WEIGHT,
        forZones: forZones.length === 0 ? NO_ZONES : ImmutableSet(forZones),
        cluster,
      }),
    );
  }
  return reused === offered.length && reused === known.length ? known : offered;
}
