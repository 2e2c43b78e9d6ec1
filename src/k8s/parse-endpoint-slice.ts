import { Set as ImmutableSet } from 'immutable';
import { DEFAULT_WEIGHT, parseWeight, WEIGHT_ANNOTATION, WEIGHT_RULE } from '../model/backend-weight.ts';
import {
  type EndpointConditions,
  HOSTNAME_TOPOLOGY,
  SERVICE_NAME_LABEL,
  ZONE_TOPOLOGY,
} from '../model/cluster-endpoint-slice.ts';
import {
  type Backend,
  backendsByReadiness,
  createBackend,
  type EndpointSlice,
  NO_ZONES,
  type Ports,
  stateOfConditions,
} from '../servicecache/backend.ts';
import type { ServiceID } from '../servicecache/service-id.ts';
import { type ObjectFields, type Parsed, type ParseOptions, parseObject, readID } from './parse-object.ts';
import { readPorts } from './ports.ts';
import type { SharedValues } from './shared-values.ts';

const ADDRESS_TYPES = ['IPv4', 'IPv6', 'IP'] as const;

/** Identifies a slice and its service for a delete. */
export interface EndpointSliceID {
  readonly service: ServiceID;
  readonly name: string;
}

/** Returns the name of a slice and the service in its label. */
function readSliceID(fields: ObjectFields): EndpointSliceID | undefined {
  const id = readID(fields);
  if (id === undefined) return undefined;
  const labels = fields.map('metadata').map('labels');
  const name = labels.string(SERVICE_NAME_LABEL);
  if (name) return { service: { namespace: id.namespace, name }, name: id.name };
  // `labels.string` has rejected a label that is no string.
  if (name === '' || labels.value(SERVICE_NAME_LABEL) === undefined)
    labels.reject(SERVICE_NAME_LABEL, 'missing', 'must be the name of the service', name);
  return undefined;
}

/** Returns the conditions of an endpoint of a slice. */
export function readConditions(endpoint: ObjectFields): EndpointConditions {
  const conditions = endpoint.object('conditions');
  return {
    ready: conditions?.boolean('ready'),
    serving: conditions?.boolean('serving'),
    terminating: conditions?.boolean('terminating'),
  };
}

/** Returns the zones in the hints of an endpoint of a slice. */
export function readForZones(endpoint: ObjectFields): readonly string[] {
  const zones = endpoint.object('hints')?.list('forZones');
  return zones?.items((list, index) => list.item(index)?.string('name')) ?? [];
}

/**
 * Returns the weight in the annotation of a slice. If it is not a decimal number of 16 bits, it is rejected and counts
 * as absent.
 */
function readWeight(fields: ObjectFields): number {
  const annotations = fields.map('metadata').map('annotations');
  const text = annotations.string(WEIGHT_ANNOTATION);
  if (text === undefined) return DEFAULT_WEIGHT;
  const weight = parseWeight(text);
  if (weight === undefined) annotations.reject(WEIGHT_ANNOTATION, 'invalid-weight', WEIGHT_RULE, text);
  return weight ?? DEFAULT_WEIGHT;
}

/** The fields read by {@link readBackendParts}. */
export const BACKEND_FIELDS: readonly string[] = [
  ...['conditions', 'hostname', 'nodeName', 'zone', 'hints'],
  ...['topology', 'deprecatedTopology'],
];

/** The common fields of all addresses of an endpoint. */
export type BackendParts = Pick<Backend, 'nodeName' | 'zone' | 'hostname' | 'state' | 'forZones'>;

/** Returns the fields of an endpoint except its addresses. */
export function readBackendParts(endpoint: ObjectFields): BackendParts {
  const topology = endpoint.object('topology') ?? endpoint.object('deprecatedTopology');
  const zones = readForZones(endpoint);
  return {
    nodeName: endpoint.string('nodeName') ?? topology?.string(HOSTNAME_TOPOLOGY) ?? '',
    zone: endpoint.string('zone') ?? topology?.string(ZONE_TOPOLOGY) ?? '',
    hostname: endpoint.string('hostname') ?? '',
    state: stateOfConditions(readConditions(endpoint)),
    forZones: zones.length === 0 ? NO_ZONES : ImmutableSet(zones),
  };
}

/** The common fields of all backends of a slice. */
export type SliceParts = Pick<Backend, 'ports' | 'weight'>;

/** Returns true if the addresses of a slice are IPs. Otherwise its type is rejected. */
export function hasIPAddresses(fields: ObjectFields): boolean {
  return (
    (fields.value('addressType') ?? '') === '' || fields.word('addressType', ADDRESS_TYPES) !== undefined
  );
}

/** Returns the ports and the weight of a slice. Equal ports are shared. */
export function readSliceParts(fields: ObjectFields, shared: SharedValues<Ports> | undefined): SliceParts {
  return { ports: readPorts(fields, shared), weight: readWeight(fields) };
}

/** Returns the backend of an address of an endpoint. */
export function backendOfParts(address: string, parts: BackendParts, { ports, weight }: SliceParts): Backend {
  const { nodeName, zone, hostname, state, forZones } = parts;
  return createBackend({ address, ports, nodeName, zone, hostname, state, weight, forZones });
}

function readBackends(fields: ObjectFields, slice: SliceParts): readonly Backend[] {
  const backends: Backend[] = [];
  for (const endpoint of fields.list('endpoints').items((list, index) => list.item(index))) {
    const parts = readBackendParts(endpoint);
    const addresses = endpoint.list('addresses');
    for (let index = 0; index < addresses.size; index++) {
      const address = addresses.address(index);
      if (address !== undefined) backends.push(backendOfParts(address, parts, slice));
    }
  }
  return backends;
}

/** Paths of the fields read by {@link readEndpointSlice}, below the root of the object. */
export const ENDPOINT_SLICE_FIELDS: readonly string[] = [
  'metadata.annotations',
  'metadata.labels',
  'addressType',
  'ports',
  'endpoints.addresses',
  ...BACKEND_FIELDS.map((name) => `endpoints.${name}`),
];

/**
 * Returns the slice, or undefined if it is rejected; see {@link parseEndpointSlice}. Slices read with the same
 * `shared` have the same object for equal ports.
 */
export function readEndpointSlice(
  fields: ObjectFields,
  shared?: SharedValues<Ports>,
): EndpointSlice | undefined {
  const id = readSliceID(fields);
  if (!hasIPAddresses(fields) || id === undefined) return undefined;
  const slice = readSliceParts(fields, shared);
  const { backends, notReady } = backendsByReadiness(readBackends(fields, slice));
  return { service: id.service, name: id.name, backends, notReady };
}

/**
 * Parses an untrusted `discovery.k8s.io` `EndpointSlice`, v1 or v1beta1. Rejects the slice if it has no name or service
 * label, or if its addresses are not IPs. An invalid endpoint, address or port is rejected, and the rest of the slice
 * is used. Never throws.
 */
export function parseEndpointSlice(object: unknown, options: ParseOptions = {}): Parsed<EndpointSlice> {
  return parseObject('EndpointSlice', object, options, (fields) => readEndpointSlice(fields));
}

/** Returns only the name and service of a slice, which is sufficient for a delete. */
export function parseEndpointSliceID(object: unknown, options: ParseOptions = {}): Parsed<EndpointSliceID> {
  return parseObject('EndpointSlice', object, options, readSliceID);
}
