import { Map as ImmutableMap, Set as ImmutableSet } from 'immutable';
import {
  type Backend,
  type BackendState,
  createBackend,
  type EndpointSlice,
  NO_ZONES,
  type Ports,
} from '../servicecache/backend.ts';
import type { ServiceID } from '../servicecache/service-id.ts';
import { readAddress } from './addresses.ts';
import { type FieldReader, field, type Parsed, type ParseOptions } from './field-reader.ts';
import { readerFor, readID } from './metadata.ts';
import { readPorts } from './ports.ts';

const SERVICE_NAME_LABEL = 'kubernetes.io/service-name';
// v1beta1 kept these in `topology`; v1 has fields for them.
const HOSTNAME_TOPOLOGY = 'kubernetes.io/hostname';
const ZONE_TOPOLOGY = 'topology.kubernetes.io/zone';

const ADDRESS_TYPES = ['IPv4', 'IPv6', 'IP'] as const;

/** Which slice of which service: what a delete has to name. */
export interface EndpointSliceID {
  readonly service: ServiceID;
  readonly name: string;
}

/** The service that the slice's label names, and the slice's own name. */
function readSliceID(object: unknown, reader: FieldReader): EndpointSliceID | undefined {
  const id = readID(object, reader);
  if (id === undefined) return undefined;
  const label = field(reader.nested(object, 'metadata', 'labels'), SERVICE_NAME_LABEL);
  const path = `metadata.labels.${SERVICE_NAME_LABEL}`;
  const name = reader.string(label, path);
  if (name !== undefined && name !== '') {
    return { service: { namespace: id.namespace, name }, name: id.name };
  }
  if (name !== undefined || label === undefined) {
    reader.refuse('missing', path, label, 'the slice belongs to no service');
  }
  return undefined;
}

/**
 * The state that the conditions mean. Unset `ready` counts as ready. What is not ready but still serves while
 * it terminates is kept, as the last resort.
 */
function readState(endpoint: unknown, path: string, reader: FieldReader): BackendState {
  const conditions = reader.object(field(endpoint, 'conditions'), `${path}.conditions`);
  const condition = (name: string): boolean | undefined =>
    reader.boolean(field(conditions, name), `${path}.conditions.${name}`);
  const ready = condition('ready') ?? true;
  const terminating = condition('terminating') ?? false;
  const serving = condition('serving') ?? ready;
  if (terminating) return serving ? 'terminating' : 'not-ready';
  return ready ? 'active' : 'not-ready';
}

function readForZones(endpoint: unknown, path: string, reader: FieldReader): Backend['forZones'] {
  const hints = field(reader.object(field(endpoint, 'hints'), `${path}.hints`), 'forZones');
  if (hints === undefined) return NO_ZONES;
  const zones = reader
    .list(hints, `${path}.hints.forZones`)
    .map((item, index) => reader.string(field(item, 'name'), `${path}.hints.forZones[${index}].name`));
  return ImmutableSet(zones.filter((zone) => zone !== undefined));
}

/** One endpoint as the backend that each of its addresses is. */
function readEndpoint(
  endpoint: unknown,
  path: string,
  ports: Ports,
  reader: FieldReader,
): (address: string) => Backend {
  const topology = reader.object(
    field(endpoint, 'topology') ?? field(endpoint, 'deprecatedTopology'),
    `${path}.topology`,
  );
  const text = (name: string, fallback: string): string =>
    reader.string(field(endpoint, name) ?? field(topology, fallback), `${path}.${name}`) ?? '';
  const nodeName = text('nodeName', HOSTNAME_TOPOLOGY);
  const zone = text('zone', ZONE_TOPOLOGY);
  const hostname = reader.string(field(endpoint, 'hostname'), `${path}.hostname`) ?? '';
  const state = readState(endpoint, path, reader);
  const forZones = readForZones(endpoint, path, reader);
  return (address) => createBackend({ address, ports, nodeName, zone, hostname, state, forZones });
}

type SliceBackends = Pick<EndpointSlice, 'backends' | 'notReady'>;

/** All endpoints of a slice. Of an address that it names twice, the first that is ready counts. */
function readSliceBackends(object: unknown, reader: FieldReader): SliceBackends {
  const ports = readPorts(field(object, 'ports'), 'ports', reader);
  const backends = new Map<string, Backend>();
  const notReady = new Map<string, Backend>();
  reader.list(field(object, 'endpoints'), 'endpoints').forEach((item, index) => {
    const path = `endpoints[${index}]`;
    if (reader.object(item, path) === undefined) return;
    const backendAt = readEndpoint(item, path, ports, reader);
    reader.list(field(item, 'addresses'), `${path}.addresses`).forEach((text, position) => {
      const address = readAddress(text, `${path}.addresses[${position}]`, reader);
      if (address === undefined) return;
      const backend = backendAt(address);
      const target = backend.state === 'not-ready' ? notReady : backends;
      if (!target.has(address)) target.set(address, backend);
    });
  });
  for (const address of backends.keys()) notReady.delete(address);
  return { backends: ImmutableMap(backends), notReady: ImmutableMap(notReady) };
}

/**
 * Reads a `discovery.k8s.io` `EndpointSlice` from outside, v1 or v1beta1. Refused as a whole without a name, a
 * service label, or with addresses that are not IPs; a bad endpoint, address or port is refused alone. Never
 * throws.
 */
export function parseEndpointSlice(object: unknown, options: ParseOptions = {}): Parsed<EndpointSlice> {
  const reader = readerFor('EndpointSlice', object, options);
  const id = readSliceID(object, reader);
  const before = reader.rejections.length;
  reader.word(field(object, 'addressType'), 'addressType', ADDRESS_TYPES);
  if (id === undefined || reader.rejections.length > before)
    return { value: undefined, rejections: reader.rejections };
  return { value: { ...id, ...readSliceBackends(object, reader) }, rejections: reader.rejections };
}

/** Reads only which slice an object is: enough for its delete. */
export function parseEndpointSliceID(object: unknown, options: ParseOptions = {}): Parsed<EndpointSliceID> {
  const reader = readerFor('EndpointSlice', object, options);
  return { value: readSliceID(object, reader), rejections: reader.rejections };
}
