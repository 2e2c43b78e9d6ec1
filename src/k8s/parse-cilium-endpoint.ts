import { MAX_IDENTITY } from '../model/numeric-identity.ts';
import { formatServiceID, type ServiceID } from '../servicecache/service-id.ts';
import {
  type EndpointClaim,
  type EndpointFields,
  type EndpointRank,
  endpointClaim,
  MAX_ADDRESSES,
  RANK_FIELDS,
  readListedIPs,
  readPortsByName,
  readRank,
  type SharedParts,
} from './endpoint-claim.ts';
import { isName, type ObjectFields, readClusterScopedName, readID } from './parse-object.ts';

/** Maximum number of endpoints of a slice; the operator writes at most 1,000. */
const MAX_ENDPOINTS = 16_384;

/**
 * Returns true if a number is present but invalid. The endpoint then claims nothing: the default of an absent number
 * could be wrong for it.
 */
function isInvalid(fields: ObjectFields, name: string, read: number | undefined): boolean {
  return read === undefined && fields.value(name) !== undefined;
}

/** The fields read by {@link readOptionalFields}. */
export const OPTIONAL_FIELDS: readonly string[] = ['encryption', 'named-ports', 'service-account'];

/**
 * Returns the optional fields of an endpoint, or undefined if the encryption key is invalid. Equal ports and service
 * accounts are one object in memory.
 */
export function readOptionalFields(
  fields: ObjectFields,
  shared: SharedParts,
): Pick<EndpointFields, 'encryptKey' | 'namedPorts' | 'serviceAccount'> | undefined {
  const encryption = fields.map('encryption');
  const key = encryption.integer('key', 0, 255);
  if (isInvalid(encryption, 'key', key)) return undefined;
  const ports = readPortsByName([fields.list('named-ports')], 'port');
  const account = fields.string('service-account');
  return {
    encryptKey: key ?? 0,
    namedPorts: ports && shared.ports(ports),
    serviceAccount: account && shared.account(account),
  };
}

/**
 * Returns the claim of an endpoint from the fields of a CiliumEndpoint's status. Returns undefined if networking, node
 * or IP is missing (KUBERNETES 30), or if the encryption key is invalid.
 */
function readEndpoint(
  fields: ObjectFields,
  id: ServiceID,
  rank: EndpointRank,
  identity: number | undefined,
  shared: SharedParts,
): EndpointClaim | undefined {
  const networking = fields.map('networking');
  const hostIP = networking.address('node');
  const ips = readListedIPs(networking.list('addressing', MAX_ADDRESSES), ['ipv4', 'ipv6']);
  const optional = readOptionalFields(fields, shared);
  if (hostIP === undefined || ips.length === 0 || optional === undefined) return undefined;
  const claim = { ips, identity, hostIP: shared.host(hostIP), ...optional };
  return endpointClaim('custom-resource', id, rank, claim);
}

/** The fields read by {@link readCiliumEndpoint}. */
export const CILIUM_ENDPOINT_FIELDS: readonly string[] = [
  ...RANK_FIELDS,
  ...['status.identity.id', 'status.networking'],
  ...OPTIONAL_FIELDS.map((name) => `status.${name}`),
];

/** Returns the claim of a `cilium.io/v2` `CiliumEndpoint` (KUBERNETES 30, 31), or undefined if it claims no address. */
export function readCiliumEndpoint(fields: ObjectFields, shared: SharedParts): EndpointClaim | undefined {
  const id = readID(fields);
  if (id === undefined) return undefined;
  const status = fields.map('status');
  const identityFields = status.map('identity');
  const identity = identityFields.integer('id', 0, MAX_IDENTITY);
  if (isInvalid(identityFields, 'id', identity)) return undefined;
  return readEndpoint(status, id, readRank(fields), identity, shared);
}

/** The fields read by {@link readCiliumEndpointSlice}. */
export const CILIUM_ENDPOINT_SLICE_FIELDS: readonly string[] = [
  ...RANK_FIELDS,
  ...['namespace', 'endpoints.name', 'endpoints.id'],
  ...['endpoints.networking', 'endpoints.encryption', 'endpoints.named-ports'],
  'endpoints.service-account',
];

/** The endpoints of a CiliumEndpointSlice (KUBERNETES 34). */
export interface ParsedCiliumEndpointSlice {
  readonly name: string;
  /** Creation of the slice in milliseconds since the epoch. */
  readonly createdAt: number;
  /** Endpoints by `namespace/name`. The value is undefined if the endpoint is in the slice but claims no address. */
  readonly endpoints: ReadonlyMap<string, EndpointClaim | undefined>;
}

/**
 * Returns the endpoints of a `cilium.io/v2alpha1` `CiliumEndpointSlice`. Its endpoints have no metadata, so they have
 * the rank of the slice. If an endpoint is listed twice, the last entry is used. An endpoint without a valid name is
 * rejected; the others are used.
 */
export function readCiliumEndpointSlice(
  fields: ObjectFields,
  shared: SharedParts,
): ParsedCiliumEndpointSlice | undefined {
  const name = readClusterScopedName(fields);
  const namespace = fields.string('namespace');
  if (name === undefined) return undefined;
  if (!isName(namespace)) {
    fields.reject('namespace', 'invalid-name', 'must be the name of a namespace', namespace);
    return undefined;
  }
  const { deleting, createdAt } = readRank(fields);
  const rank = { deleting, createdAt, uid: '' };
  const endpoints = new Map<string, EndpointClaim | undefined>();
  const list = fields.list('endpoints', MAX_ENDPOINTS);
  for (let index = 0; index < list.size; index++) {
    const item = list.item(index);
    if (item === undefined) continue;
    const podName = item.value('name');
    if (!isName(podName)) {
      item.reject('name', 'invalid-name', 'must be the name of a pod', podName);
      continue;
    }
    const id = { namespace, name: podName };
    const identity = item.integer('id', 0, MAX_IDENTITY);
    const assigned = identity === 0 ? undefined : identity; // a slice contains 0 for an endpoint without an identity
    const claim = isInvalid(item, 'id', identity)
      ? undefined
      : readEndpoint(item, id, rank, assigned, shared);
    endpoints.set(formatServiceID(id), claim);
  }
  return { name, createdAt, endpoints };
}
