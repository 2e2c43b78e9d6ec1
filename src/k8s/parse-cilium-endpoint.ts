import type { ServiceID } from '../servicecache/service-id.ts';
import {
  type EndpointAddresses,
  type EndpointRank,
  endpointAddresses,
  MOST_ADDRESSES,
  RANK_FIELDS,
  readListedIPs,
  readPortsByName,
  readRank,
  type SharedParts,
} from './endpoint-addresses.ts';
import { isName, type ObjectFields, readClusterScopedName, readID } from './parse-object.ts';

const MAX_IDENTITY = 0xffff_ffff;

/** Endpoints of a slice that are read; the operator puts at most 1,000 into one. */
const MOST_ENDPOINTS = 16_384;

/** A number that is there and not what it must be: reading it as absent would say what no object says. */
function isSpoilt(fields: ObjectFields, name: string, read: number | undefined): boolean {
  return read === undefined && fields.value(name) !== undefined;
}

/**
 * The addresses of an endpoint, its fields in `fields` as in a CiliumEndpoint's status. Without networking, node or IP
 * there are none (K 30); nor when its identity or key is not a number of its range, which decide what happens to traffic.
 */
function readEndpoint(
  fields: ObjectFields,
  id: ServiceID,
  rank: EndpointRank,
  identity: number | undefined,
  shared: SharedParts,
): EndpointAddresses | undefined {
  const networking = fields.map('networking');
  const hostIP = networking.address('node');
  const ips = readListedIPs(networking.list('addressing', MOST_ADDRESSES), ['ipv4', 'ipv6']);
  const encryption = fields.map('encryption');
  const key = encryption.integer('key', 0, 255);
  if (hostIP === undefined || ips.length === 0 || isSpoilt(encryption, 'key', key)) return undefined;
  const namedPorts = readPortsByName([fields.list('named-ports')], 'port');
  const said = { ips, identity, hostIP, encryptKey: key ?? 0, namedPorts };
  return endpointAddresses('custom-resource', id, rank, said, shared);
}

/** What {@link readCiliumEndpoint} looks at. */
export const CILIUM_ENDPOINT_FIELDS: readonly string[] = [
  ...RANK_FIELDS,
  ...['status.identity.id', 'status.networking', 'status.encryption', 'status.named-ports'],
];

/** What a `cilium.io/v2` `CiliumEndpoint` claims (K 30, 31); `undefined`: nothing. */
export function readCiliumEndpoint(fields: ObjectFields, shared: SharedParts): EndpointAddresses | undefined {
  const id = readID(fields);
  if (id === undefined) return undefined;
  const status = fields.map('status');
  const said = status.map('identity');
  const identity = said.integer('id', 0, MAX_IDENTITY);
  if (isSpoilt(said, 'id', identity)) return undefined;
  return readEndpoint(status, id, readRank(fields), identity, shared);
}

/** What {@link readCiliumEndpointSlice} looks at. */
export const CILIUM_ENDPOINT_SLICE_FIELDS: readonly string[] = [
  ...RANK_FIELDS,
  ...['namespace', 'endpoints.name', 'endpoints.id'],
  ...['endpoints.networking', 'endpoints.encryption', 'endpoints.named-ports'],
];

/** What a CiliumEndpointSlice says of endpoints (K 35). */
export interface EndpointSliceSays {
  readonly name: string;
  /** Of the slice, as milliseconds since the epoch. */
  readonly createdAt: number;
  /** By `namespace/name`; one without addresses claims nothing, and is in the slice all the same. */
  readonly endpoints: ReadonlyMap<string, EndpointAddresses | undefined>;
}

/**
 * What a `cilium.io/v2alpha1` `CiliumEndpointSlice` says. The endpoints in it have no metadata: their rank is the slice's.
 * Of an endpoint that is in it twice the last counts; one without a usable name is rejected alone.
 */
export function readCiliumEndpointSlice(
  fields: ObjectFields,
  shared: SharedParts,
): EndpointSliceSays | undefined {
  const name = readClusterScopedName(fields);
  const namespace = fields.string('namespace');
  if (name === undefined) return undefined;
  if (!isName(namespace)) {
    fields.reject('namespace', 'invalid-name', 'must be the name of a namespace', namespace);
    return undefined;
  }
  const { deleting, createdAt } = readRank(fields);
  const rank = { deleting, createdAt, uid: '' };
  const endpoints = new Map<string, EndpointAddresses | undefined>();
  const list = fields.list('endpoints', MOST_ENDPOINTS);
  for (let index = 0; index < list.size; index++) {
    const item = list.item(index);
    const endpoint = item?.value('name');
    if (item === undefined) continue;
    if (!isName(endpoint)) {
      item.reject('name', 'invalid-name', 'must be the name of a pod', endpoint);
      continue;
    }
    const id = `${namespace}/${endpoint}`;
    const identity = item.integer('id', 0, MAX_IDENTITY);
    const known = identity === 0 ? undefined : identity;
    const said = isSpoilt(item, 'id', identity)
      ? undefined
      : readEndpoint(item, { namespace, name: endpoint }, rank, known, shared);
    endpoints.set(id, said);
  }
  return { name, createdAt, endpoints };
}
