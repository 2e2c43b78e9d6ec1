import {
  type ClusterEndpointSlice,
  SERVICE_NAME_LABEL,
  SLICE_LIMITS,
  type SliceAddressType,
  type SliceEndpoint,
  type SlicePort,
} from '../model/cluster-endpoint-slice.ts';
import { readConditions, readForZones } from './parse-endpoint-slice.ts';
import { type ObjectFields, readID, readStringMap } from './parse-object.ts';
import { readNamedPort } from './ports.ts';

const ADDRESS_TYPES = ['IPv4', 'IPv6'] as const;

/** The content of a {@link ClusterEndpointSlice}: all except its cluster. */
export type SharedSlice = Omit<ClusterEndpointSlice, 'cluster' | 'clusterID'>;

/** The fields read by {@link readSharedSlice}. */
export const SHARED_SLICE_FIELDS: readonly string[] = [
  'metadata.labels',
  'metadata.annotations',
  'addressType',
  'ports',
  'endpoints.addresses',
  'endpoints.conditions',
  'endpoints.hostname',
  'endpoints.nodeName',
  'endpoints.zone',
  'endpoints.hints.forZones',
  'endpoints.deprecatedTopology',
];

function readEndpoint(fields: ObjectFields, family: SliceAddressType): SliceEndpoint | undefined {
  const list = fields.list('addresses', SLICE_LIMITS.addresses);
  const addresses = list.items((items, index) => {
    const address = items.address(index);
    // An IPv4-mapped address is IPv6, as for readers of the slice.
    const isIPv6 = items.string(index)?.includes(':') === true;
    if (address === undefined || isIPv6 === (family === 'IPv6')) return address;
    return items.reject(index, 'wrong-family', `must be an ${family} address`);
  });
  if (addresses.length === 0) return undefined;
  return {
    addresses,
    conditions: readConditions(fields),
    hostname: fields.string('hostname') || undefined,
    nodeName: fields.string('nodeName') || undefined,
    zone: fields.string('zone') || undefined,
    forZones: readForZones(fields),
    deprecatedTopology: fields.strings('deprecatedTopology'),
  };
}

/**
 * Returns the content of a `discovery.k8s.io/v1` `EndpointSlice` that other clusters receive: all endpoints, ready or
 * not. Returns undefined if the slice has no service, or if its address type is not `IPv4` or `IPv6`. An invalid
 * endpoint, address or port is rejected; the rest of the slice is used.
 */
export function readSharedSlice(fields: ObjectFields): SharedSlice | undefined {
  const id = readID(fields);
  const metadata = fields.map('metadata');
  const labels = readStringMap(metadata, 'labels');
  if (id === undefined || !labels.get(SERVICE_NAME_LABEL)) return undefined;
  const addressType = fields.word('addressType', ADDRESS_TYPES);
  if (addressType === undefined) return undefined;
  const endpoints = fields
    .list('endpoints', SLICE_LIMITS.endpoints)
    .items((list, index) => list.item(index))
    .flatMap((endpoint) => readEndpoint(endpoint, addressType) ?? []);
  const ports = fields.list('ports', SLICE_LIMITS.ports).items((list, index): SlicePort | undefined => {
    const port = list.item(index);
    return port && readNamedPort(port);
  });
  return {
    labels,
    annotations: readStringMap(metadata, 'annotations'),
    addressType,
    endpoints,
    ports,
    ...id,
  };
}
