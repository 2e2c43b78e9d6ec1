import { type Rejection, rejection } from '../base/rejection.ts';
import { isNumericIdentity, MAX_CLUSTER_ID } from '../identity/numeric-identity.ts';
import { isSource } from '../identity/source.ts';
import type { NodeAddress } from '../net/cluster-node.ts';
import { Fields, isObject, type RejectField } from '../net/fields.ts';
import { canonicalAddress } from '../net/prefix.ts';
import { Node } from './node.ts';
import { type NodeSpec, nodeFullName } from './node-spec.ts';

const NO_STRINGS: ReadonlyMap<string, string> = new Map();

/**
 * Makes a node of what a source says: addresses and CIDRs in canonical form, each checked. What names the node or
 * decides how it is reached (name, cluster, source, cluster id, key) must be right, else the node is rejected as a
 * whole: `undefined`. An address or CIDR that is not valid is left out, and the rest stands. Every rejection goes to
 * `onReject` with the field's name.
 */
export function parseNode(spec: NodeSpec, onReject: (rejection: Rejection) => void): Node | undefined {
  const reject: RejectField<undefined> = (reason, field, value, why) => {
    onReject(rejection(reason, field, value, why, `node ${nodeFullName(spec)}`));
    return undefined;
  };
  const fields = Fields.of(spec, reject, 'node');
  if (fields === undefined || !isUsable(fields)) return undefined;
  const cidrs = (name: string): readonly string[] =>
    fields.list(name).items((list, index) => list.cidr(index));
  return new Node({
    name: spec.name,
    cluster: spec.cluster,
    source: spec.source,
    clusterID: spec.clusterID ?? 0,
    addresses: addressesOf(spec, fields),
    ipv4AllocCIDR: fields.cidr('ipv4AllocCIDR'),
    ipv6AllocCIDR: fields.cidr('ipv6AllocCIDR'),
    ipv4SecondaryAllocCIDRs: cidrs('ipv4SecondaryAllocCIDRs'),
    ipv6SecondaryAllocCIDRs: cidrs('ipv6SecondaryAllocCIDRs'),
    ipv4HealthIP: fields.address('ipv4HealthIP'),
    ipv6HealthIP: fields.address('ipv6HealthIP'),
    ipv4IngressIP: fields.address('ipv4IngressIP'),
    ipv6IngressIP: fields.address('ipv6IngressIP'),
    encryptionKey: spec.encryptionKey ?? 0,
    labels: stringsOf(spec.labels),
    annotations: stringsOf(spec.annotations),
    nodeIdentity: spec.nodeIdentity ?? 0,
    wireguardPubKey: spec.wireguardPubKey ?? '',
    bootID: spec.bootID ?? '',
  });
}

/** Whether the fields are valid without which there is no node; rejects those that are not. */
function isUsable(fields: Fields<undefined>): boolean {
  const cluster = fields.text('cluster');
  const isNamed = fields.text('name') !== undefined && cluster !== undefined;
  const checks = [
    isNamed,
    cluster?.includes('/') !== true || rejects(fields, 'cluster', 'invalid-name', 'must not contain /'),
    isSource(fields.value('source')) || rejects(fields, 'source', 'unknown-source', 'is not a source'),
    isAbsentOr(fields, 'clusterID', fields.integer('clusterID', 0, MAX_CLUSTER_ID)),
    isAbsentOr(fields, 'encryptionKey', fields.integer('encryptionKey', 0, 255)),
    isNumericIdentity(fields.value('nodeIdentity') ?? 0) ||
      rejects(fields, 'nodeIdentity', 'out-of-range', 'is not an identity'),
  ];
  return checks.every(Boolean);
}

function rejects(fields: Fields<undefined>, name: string, reason: string, why: string): false {
  fields.reject(name, reason, why);
  return false;
}

function isAbsentOr(fields: Fields<undefined>, name: string, read: unknown): boolean {
  return read !== undefined || fields.value(name) === undefined;
}

function isCanonical(address: unknown): boolean {
  const { ip }: Readonly<Record<string, unknown>> = isObject(address) ? address : {};
  return typeof ip === 'string' && canonicalAddress(ip) === ip;
}

function addressesOf({ addresses }: NodeSpec, fields: Fields<undefined>): readonly NodeAddress[] {
  // The common case: a codec has made them canonical.
  if (Array.isArray(addresses) && addresses.every(isCanonical)) return addresses;
  return fields.list('addresses').items(readAddress);
}

function readAddress(list: Fields<undefined>, index: number): NodeAddress | undefined {
  const fields = list.item(index);
  const type = fields?.text('type');
  const ip = fields?.text('ip') && fields.address('ip');
  return type === undefined || ip === undefined ? undefined : { type, ip };
}

/** Empty maps are common and not small: all nodes share one. */
function stringsOf(given: ReadonlyMap<string, string> | undefined): ReadonlyMap<string, string> {
  return given === undefined || given.size === 0 ? NO_STRINGS : given;
}
