import { Map as ImmutableMap, Set as ImmutableSet } from 'immutable';
import { DEFAULT_WEIGHT, parseWeight, WEIGHT_ANNOTATION } from '../model/backend-weight.ts';
import {
  type ClusterEndpointSlice,
  HOSTNAME_TOPOLOGY,
  type SliceEndpoint,
  ZONE_TOPOLOGY,
} from '../model/cluster-endpoint-slice.ts';
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
import { serviceOfSlice } from './service-id.ts';

/** Returns the weight in the annotation of a slice. The decoder has rejected an invalid one. */
function weightOf({ annotations }: ClusterEndpointSlice): number {
  return parseWeight(annotations.get(WEIGHT_ANNOTATION) ?? '') ?? DEFAULT_WEIGHT;
}

/** Returns the backends of an endpoint, one for each address. They share `common`. */
function backendsOf(
  endpoint: SliceEndpoint,
  common: Pick<Backend, 'ports' | 'cluster' | 'weight'>,
): readonly Backend[] {
  const { addresses, conditions, hostname, forZones, deprecatedTopology } = endpoint;
  const nodeName = endpoint.nodeName ?? deprecatedTopology.get(HOSTNAME_TOPOLOGY) ?? '';
  const zone = endpoint.zone ?? deprecatedTopology.get(ZONE_TOPOLOGY) ?? '';
  const fields = {
    nodeName,
    zone,
    hostname: hostname ?? '',
    state: common.weight === 0 ? 'maintenance' : stateOfConditions(conditions),
    forZones: forZones.length === 0 ? NO_ZONES : ImmutableSet(forZones),
    ...common,
  };
  return addresses.map((address) => backendOf({ address, ...fields }));
}

/** Returns a slice of a remote cluster for the service in its label. Of equal port names, the last one is used. */
export function remoteSlice(slice: ClusterEndpointSlice): EndpointSlice {
  const { cluster, name, endpoints } = slice;
  const ports: Ports =
    slice.ports.length === 0
      ? NO_PORTS
      : ImmutableMap(slice.ports.map((port) => [port.name, { port: port.port, protocol: port.protocol }]));
  const common = { ports, cluster, weight: weightOf(slice) };
  const backends = endpoints.flatMap((endpoint) => backendsOf(endpoint, common));
  return { service: serviceOfSlice(slice), name, ...backendsByReadiness(backends) };
}
