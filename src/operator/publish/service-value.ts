import { encodeClusterService } from '../../kvstore/codec/cluster-service.ts';
import { type FormatVersion, MAX_PUT_BYTES } from '../../kvstore/codec/value.ts';
import type { PortProtocol } from '../../net/port.ts';
import type { Backend, BackendState, Backends } from '../../servicecache/backend.ts';
import type { Service } from '../../servicecache/service.ts';

/**
 * Returns true if a service is offered to other clusters (SEMANTICS 3.1). In the format of 1.17 it must be global and
 * shared, in the format of 1.8 only shared.
 */
export function isOffered({ shared, global }: Service, version: FormatVersion): boolean {
  return shared && (version === '1.8' || global);
}

/** Returns the ports with only the published fields. */
function plainPorts(ports: Iterable<readonly [string, PortProtocol]>): ReadonlyMap<string, PortProtocol> {
  return new Map(Array.from(ports, ([name, { port, protocol }]) => [name, { port, protocol }]));
}

/** Returns the active backends; if there are none, the terminating ones, which still serve. */
function publishedBackends(backends: Backends): readonly Backend[] {
  const inState = (wanted: BackendState): readonly Backend[] =>
    [...backends.values()].filter(({ state }) => state === wanted);
  const active = inState('active');
  return active.length > 0 ? active : inState('terminating');
}

/**
 * Returns a lower bound of the size of a service's value, much faster than its encoding. Stops counting above the size
 * that can be written.
 */
export function minimumBytes(backends: Backends): number {
  const bytes = { active: 0, terminating: 0 };
  for (const { address, ports, state } of backends.values()) {
    if (state !== 'active' && state !== 'terminating') continue;
    bytes[state] += address.length + '"":{},'.length;
    for (const [name] of ports) bytes[state] += name.length + '"":{"Protocol":"TCP","Port":1}'.length;
    if (bytes.active > MAX_PUT_BYTES) break;
  }
  return bytes.active > 0 ? bytes.active : bytes.terminating;
}

/**
 * Returns the value of a service's key (OPERATOR 6): its cluster IPs (in the format of 1.8 only the first) and its
 * {@link publishedBackends}. Returns undefined if the service is not offered and therefore has no key. `backends`:
 * those of the local cluster.
 */
export function serviceValue(
  service: Service,
  backends: Backends,
  { clusterName: cluster, clusterID }: { readonly clusterName: string; readonly clusterID: number },
  version: FormatVersion,
): Uint8Array | undefined {
  if (!isOffered(service, version)) return undefined;
  const published = publishedBackends(backends);
  const addresses = version === '1.8' ? service.clusterIPs.take(1) : service.clusterIPs;
  const ports = plainPorts(service.ports);
  // Backends with the same map of ports share its copy.
  const plain = new Map<Backend['ports'], ReadonlyMap<string, PortProtocol>>();
  const portsOf = (backend: Backend): ReadonlyMap<string, PortProtocol> => {
    const known = plain.get(backend.ports) ?? plainPorts(backend.ports);
    plain.set(backend.ports, known);
    return known;
  };
  const named = published.filter(({ hostname }) => hostname !== '');
  const zoned = published.filter(({ zone }) => zone !== '');
  return encodeClusterService(
    {
      cluster,
      ...service.id,
      frontends: new Map(addresses.map((address) => [address, ports])),
      backends: new Map(published.map((backend) => [backend.address, portsOf(backend)])),
      hostnames: new Map(named.map(({ address, hostname }) => [address, hostname])),
      zones:
        zoned.length === 0
          ? undefined
          : new Map(zoned.map(({ address, zone, forZones }) => [address, { zone, forZones: [...forZones] }])),
      labels: new Map(service.labels),
      selector: new Map(service.selector),
      includeExternal: service.global,
      shared: true,
      clusterID,
    },
    version,
  );
}
