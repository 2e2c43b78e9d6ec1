import { Map as ImmutableMap, Set as ImmutableSet } from 'immutable';
import type { ClusterEndpointSlice, SliceEndpoint } from '../model/cluster-endpoint-slice.ts';
import { SERVICE_NAME_LABEL } from '../model/cluster-endpoint-slice.ts';
import {
  type Backend,
  backendOf,
  backendsByReadiness,
  type EndpointSlice,
  NO_PORTS,
  NO_ZONES,
  type Ports,
  stateOfConditions,
} from './backend.ts';
import type { ServiceID } from './service-id.ts';
import { DEFAULT_WEIGHT } from './weight.ts';

// Keys of `deprecatedTopology`; v1 has fields for them.
const HOSTNAME_TOPOLOGY = 'kubernetes.io/hostname';
const ZONE_TOPOLOGY = 'topology.kubernetes.io/zone';

/** Returns the service of a slice; its name is empty if the label is missing. */
export function serviceOfSlice({ namespace, labels }: ClusterEndpointSlice): ServiceID {
  return { namespace, name: labels.get(SERVICE_NAME_LABEL) ?? '' };
}

/** Returns the backends of an endpoint, one for each address. They share `ports`. */
function backendsOf(endpoint: SliceEndpoint, ports: Ports, cluster: string): readonly Backend[] {
  const { addresses, conditions, hostname, forZones, deprecatedTopology } = endpoint;
  const nodeName = endpoint.nodeName ?? deprecatedTopology.get(HOSTNAME_TOPOLOGY) ?? '';
  const zone = endpoint.zone ?? deprecatedTopology.get(ZONE_TOPOLOGY) ?? '';
  const common = {
    ports,
    nodeName,
    zone,
    hostname: hostname ?? '',
    cluster,
    state: stateOfConditions(conditions),
    // The format has no field for the weight.
    weight: DEFAULT_WEIGHT,
    forZones: forZones.length === 0 ? NO_ZONES : ImmutableSet(forZones),
  };
  return addresses.map((address) => backendOf({ address, ...common }));
}

/** Returns a slice of a remote cluster for the service in its label. Of equal port names, the last one is used. */
export function remoteSlice(slice: ClusterEndpointSlice): EndpointSlice {
  const { cluster, name, endpoints } = slice;
  const ports: Ports =
    slice.ports.length === 0
      ? NO_PORTS
      : ImmutableMap(slice.ports.map((port) => [port.name, { port: port.port, protocol: port.protocol }]));
  const backends = endpoints.flatMap((endpoint) => backendsOf(endpoint, ports, cluster));
  return { service: serviceOfSlice(slice), name, ...backendsByReadiness(backends) };
}
