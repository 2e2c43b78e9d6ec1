import { checkArgument, FUNCTION, OBJECT, objectWith, optional } from '../base/arguments.ts';
import { type Rejection, rejection } from '../base/rejection.ts';
import type { NodeAddress } from '../model/cluster-node.ts';
import { isNumericIdentity } from '../model/numeric-identity.ts';
import { isSource } from '../model/source.ts';
import { Fields, isObject, type RejectField } from '../net/fields.ts';
import { canonicalAddress, MAX_CLUSTER_ID } from '../net/prefix.ts';
import { Node } from './node.ts';
import {
  NO_STRINGS,
  type NodeFields,
  type NodeSpec,
  nodeFullName,
  sameAddresses,
  sameStringMaps,
} from './node-spec.ts';

const NO_CIDRS: readonly string[] = Object.freeze([]);
const NO_ADDRESSES: readonly NodeAddress[] = Object.freeze([]);

type AddressField = 'ipv4HealthIP' | 'ipv6HealthIP' | 'ipv4IngressIP' | 'ipv6IngressIP';
type CIDRField = 'ipv4AllocCIDR' | 'ipv6AllocCIDR';

const KNOWN = optional(objectWith({ fields: OBJECT }));

/**
 * Parses a node: addresses and CIDRs become canonical, and each field is checked. If a field that identifies the node
 * or determines how it is reached (name, cluster, source, cluster id, encryption key, identity) is invalid, the node is
 * rejected: `undefined`. An invalid address or CIDR is dropped without rejecting the node. Every rejection is passed to
 * `onReject` with the field name. Equal parts of `known`, another version of the node, are reused.
 */
export function parseNode(
  spec: NodeSpec,
  onReject: (rejection: Rejection) => void,
  known?: Node,
): Node | undefined {
  checkArgument('parseNode: spec', spec, OBJECT);
  checkArgument('parseNode: onReject', onReject, FUNCTION);
  checkArgument('parseNode: known', known, KNOWN);
  const reject: RejectField<undefined> = (reason, field, value, why) => {
    onReject(rejection(reason, field, value, why, `node ${nodeFullName(spec)}`));
    return undefined;
  };
  const fields = Fields.of(spec, reject, 'node');
  if (fields === undefined || !isUsable(spec, fields)) return undefined;
  const canonical: NodeFields = {
    name: spec.name,
    cluster: spec.cluster,
    source: spec.source,
    clusterID: spec.clusterID ?? 0,
    addresses: addressesOf(spec, fields, known?.fields.addresses),
    ipv4AllocCIDR: cidrOf(spec, fields, 'ipv4AllocCIDR'),
    ipv6AllocCIDR: cidrOf(spec, fields, 'ipv6AllocCIDR'),
    ipv4SecondaryAllocCIDRs: cidrsOf(spec.ipv4SecondaryAllocCIDRs, fields, 'ipv4SecondaryAllocCIDRs'),
    ipv6SecondaryAllocCIDRs: cidrsOf(spec.ipv6SecondaryAllocCIDRs, fields, 'ipv6SecondaryAllocCIDRs'),
    ipv4HealthIP: addressOf(spec, fields, 'ipv4HealthIP'),
    ipv6HealthIP: addressOf(spec, fields, 'ipv6HealthIP'),
    ipv4IngressIP: addressOf(spec, fields, 'ipv4IngressIP'),
    ipv6IngressIP: addressOf(spec, fields, 'ipv6IngressIP'),
    encryptionKey: spec.encryptionKey ?? 0,
    labels: stringsOf(spec, fields, 'labels', known?.fields.labels),
    annotations: stringsOf(spec, fields, 'annotations', known?.fields.annotations),
    nodeIdentity: spec.nodeIdentity ?? 0,
    wireguardPubKey: textOf(spec, fields, 'wireguardPubKey'),
    bootID: textOf(spec, fields, 'bootID'),
  };
  return new Node(canonical, known?.fullName);
}

/** Returns true if the fields for the identity and the reachability of the node are valid. Reports invalid ones. */
function isUsable(spec: NodeSpec, fields: Fields<undefined>): boolean {
  const { cluster, source, clusterID, encryptionKey, nodeIdentity } = spec;
  const hasName = fields.text('name') !== undefined;
  const hasCluster =
    fields.text('cluster') !== undefined &&
    (!cluster.includes('/') || rejectField(fields, 'cluster', 'invalid-name', 'must not contain /'));
  const hasSource = isSource(source) || rejectField(fields, 'source', 'unknown-source', 'is not a source');
  const hasClusterID = (clusterID ?? 0) === 0 || fields.integer('clusterID', 0, MAX_CLUSTER_ID) !== undefined;
  const hasKey = (encryptionKey ?? 0) === 0 || fields.integer('encryptionKey', 0, 255) !== undefined;
  const hasIdentity =
    isNumericIdentity(nodeIdentity ?? 0) ||
    rejectField(fields, 'nodeIdentity', 'out-of-range', 'is not an identity');
  return hasName && hasCluster && hasSource && hasClusterID && hasKey && hasIdentity;
}

/** Rejects a field. Returns false, so that a condition can end with it. */
function rejectField(fields: Fields<undefined>, name: string, reason: string, why: string): false {
  fields.reject(name, reason, why);
  return false;
}

// Most nodes have few of these fields. Absent ones are not looked up by name.

function addressOf(spec: NodeSpec, fields: Fields<undefined>, name: AddressField): string | undefined {
  return spec[name] === undefined ? undefined : fields.address(name);
}

function cidrOf(spec: NodeSpec, fields: Fields<undefined>, name: CIDRField): string | undefined {
  return spec[name] === undefined ? undefined : fields.cidr(name);
}

/** Returns canonical CIDRs. Nodes without CIDRs share one list. */
function cidrsOf(
  given: readonly string[] = NO_CIDRS,
  fields: Fields<undefined>,
  name: string,
): readonly string[] {
  if (Array.isArray(given) && given.length === 0) return NO_CIDRS;
  return fields.list(name).items((list, index) => list.cidr(index));
}

function isCanonical(address: unknown): boolean {
  if (!isObject(address)) return false;
  const { type, ip } = address;
  return typeof type === 'string' && type !== '' && typeof ip === 'string' && canonicalAddress(ip) === ip;
}

function addressesOf(
  { addresses }: NodeSpec,
  fields: Fields<undefined>,
  known: readonly NodeAddress[] = NO_ADDRESSES,
): readonly NodeAddress[] {
  if (Array.isArray(addresses)) {
    if (sameAddresses(addresses, known)) return known;
    // The common case: a codec returned canonical addresses.
    if (addresses.every(isCanonical)) return addresses;
  }
  return fields.list('addresses').items(parseNodeAddress);
}

function parseNodeAddress(list: Fields<undefined>, index: number): NodeAddress | undefined {
  const fields = list.item(index);
  const type = fields?.text('type');
  const ip = fields?.text('ip') && fields.address('ip');
  return type === undefined || ip === undefined ? undefined : { type, ip };
}

function textOf(spec: NodeSpec, fields: Fields<undefined>, name: 'wireguardPubKey' | 'bootID'): string {
  return spec[name] === undefined ? '' : (fields.string(name) ?? '');
}

/** Returns the map; `known` if both are equal; a shared empty map if it is empty or rejected. */
function stringsOf(
  spec: NodeSpec,
  fields: Fields<undefined>,
  name: 'labels' | 'annotations',
  known: ReadonlyMap<string, string> = NO_STRINGS,
): ReadonlyMap<string, string> {
  const given = spec[name] ?? NO_STRINGS;
  const isPlain = isObject(given) && !(Symbol.iterator in given);
  if (!(given instanceof Map || isPlain)) fields.reject(name, 'wrong-type', 'must be a Map or an object');
  const strings = isPlain ? fields.strings(name) : given;
  if (!(strings instanceof Map) || strings.size === 0) return NO_STRINGS;
  return sameStringMaps(strings, known) ? known : strings;
}
