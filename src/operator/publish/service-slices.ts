import {
  type ClusterEndpointSlice,
  SERVICE_NAME_LABEL,
  type SliceEndpoint,
  type SlicePort,
} from '../../model/cluster-endpoint-slice.ts';
import type { ClusterService } from '../../model/cluster-service.ts';
import type { PortProtocol } from '../../net/port.ts';

/** Maximum number of endpoints of a slice, as for the controller of Kubernetes. */
const MAX_ENDPOINTS = 100;

const NO_ENTRIES: ReadonlyMap<string, string> = new Map();

/** Backends with the same family and ports, which can be in one slice. */
interface SliceGroup {
  readonly family: 'IPv4' | 'IPv6';
  readonly ports: readonly SlicePort[];
  readonly addresses: string[];
}

function portsOf(ports: ReadonlyMap<string, PortProtocol>): readonly SlicePort[] {
  return [...ports]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([name, { port, protocol }]) => ({ name, port, protocol }));
}

function groupsOf({ backends }: ClusterService): readonly SliceGroup[] {
  const groups = new Map<string, SliceGroup>();
  for (const [address, portsByName] of backends) {
    const ports = portsOf(portsByName);
    const family = address.includes(':') ? 'IPv6' : 'IPv4';
    const key = JSON.stringify([family, ports]);
    const group = groups.get(key) ?? { family, ports, addresses: [] };
    group.addresses.push(address);
    groups.set(key, group);
  }
  return [...groups].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, group]) => group);
}

function endpointOf({ hostnames, zones }: ClusterService, address: string): SliceEndpoint {
  const { zone = '', forZones = [] } = zones?.get(address) ?? {};
  return {
    addresses: [address],
    conditions: { ready: true },
    hostname: hostnames?.get(address) || undefined,
    zone: zone || undefined,
    forZones,
    deprecatedTopology: NO_ENTRIES,
  };
}

/**
 * Returns slices with the backends of a service, by slice name: `<service>-ipv4-0`, … The slices have the same backends
 * as the value of the service. A service without backends has one empty slice. A service that is not shared has no
 * slices.
 */
export function slicesOfService(service: ClusterService): ReadonlyMap<string, ClusterEndpointSlice> {
  const slices = new Map<string, ClusterEndpointSlice>();
  if (!service.shared) return slices;
  const { cluster, clusterID, namespace, name } = service;
  const labels = new Map([...service.labels, [SERVICE_NAME_LABEL, name]]);
  /** Number of slices of each family, which is also the number in the name of the next slice. */
  const counts = { IPv4: 0, IPv6: 0 };
  const groups = groupsOf(service);
  const empty: SliceGroup = { family: 'IPv4', ports: [], addresses: [] };
  for (const { family, ports, addresses } of groups.length === 0 ? [empty] : groups) {
    let from = 0;
    do {
      const slice = `${name}-${family.toLowerCase()}-${counts[family]++}`;
      slices.set(slice, {
        cluster,
        clusterID,
        namespace,
        name: slice,
        labels,
        annotations: NO_ENTRIES,
        addressType: family,
        endpoints: addresses.slice(from, from + MAX_ENDPOINTS).map((address) => endpointOf(service, address)),
        ports,
      });
      from += MAX_ENDPOINTS;
    } while (from < addresses.length);
  }
  return slices;
}
