import { type Rejection, rejection } from '../base/rejection.ts';
import { isNumericIdentity } from '../identity/numeric-identity.ts';
import { isSource } from '../identity/source.ts';
import type { NodeAddress } from '../net/cluster-node.ts';
import { canonicalAddress, canonicalKey } from '../net/prefix.ts';
import { Node } from './node.ts';
import { type NodeSpec, nodeFullName } from './node-spec.ts';

/** The largest cluster id that an identity has room for, in a mesh of 511 clusters. */
const MAX_CLUSTER_ID = 511;

const NO_STRINGS: ReadonlyMap<string, string> = new Map();
const NONE: readonly never[] = [];

/** Receives each field that is rejected. */
export type RejectField = (rejection: Rejection) => void;

/**
 * Makes a node of what a source says: addresses and CIDRs in canonical form, each checked. What names the node or
 * decides how it is reached (name, cluster, source, cluster id, key) must be right, else the node is rejected as a
 * whole: `undefined`. An address or CIDR that is not valid is left out, and the rest stands. Every rejection goes to
 * `reject` with the field's name.
 */
export function parseNode(spec: NodeSpec, reject: RejectField): Node | undefined {
  const fault = nodeFault(spec);
  if (fault !== undefined) {
    reject(fault);
    return undefined;
  }
  return new Node({
    name: spec.name,
    cluster: spec.cluster,
    source: spec.source,
    clusterID: spec.clusterID ?? 0,
    addresses: addressList(spec, reject),
    ipv4AllocCIDR: cidr(spec, 'ipv4AllocCIDR', spec.ipv4AllocCIDR, reject),
    ipv6AllocCIDR: cidr(spec, 'ipv6AllocCIDR', spec.ipv6AllocCIDR, reject),
    ipv4SecondaryAllocCIDRs: cidrList(spec, 'ipv4SecondaryAllocCIDRs', reject),
    ipv6SecondaryAllocCIDRs: cidrList(spec, 'ipv6SecondaryAllocCIDRs', reject),
    ipv4HealthIP: address(spec, 'ipv4HealthIP', spec.ipv4HealthIP, reject),
    ipv6HealthIP: address(spec, 'ipv6HealthIP', spec.ipv6HealthIP, reject),
    ipv4IngressIP: address(spec, 'ipv4IngressIP', spec.ipv4IngressIP, reject),
    ipv6IngressIP: address(spec, 'ipv6IngressIP', spec.ipv6IngressIP, reject),
    encryptionKey: spec.encryptionKey ?? 0,
    labels: stringsOf(spec.labels),
    annotations: stringsOf(spec.annotations),
    nodeIdentity: spec.nodeIdentity ?? 0,
    wireguardPubKey: spec.wireguardPubKey ?? '',
    bootID: spec.bootID ?? '',
  });
}

/** Why a node is rejected as a whole. */
function nodeFault(spec: NodeSpec): Rejection | undefined {
  const { cluster, name, source, clusterID = 0, encryptionKey = 0, nodeIdentity = 0 } = spec;
  const refuse = (field: string, value: unknown, why: string, reason = 'invalid-node'): Rejection =>
    rejection(reason, field, value, why, `node ${nodeFullName(spec)}`);
  if (typeof name !== 'string' || name === '') return refuse('name', name, 'must not be empty');
  if (typeof cluster !== 'string' || cluster === '' || cluster.includes('/')) {
    return refuse('cluster', cluster, "must be a cluster's name, without '/'");
  }
  if (!isSource(source)) return refuse('source', source, 'is no source', 'unknown-source');
  if (!isUpTo(MAX_CLUSTER_ID, clusterID))
    return refuse('clusterID', clusterID, `must be 0 to ${MAX_CLUSTER_ID}`);
  if (!isUpTo(255, encryptionKey)) return refuse('encryptionKey', encryptionKey, 'must be 0 to 255');
  if (!isNumericIdentity(nodeIdentity)) return refuse('nodeIdentity', nodeIdentity, 'must be an identity');
  return undefined;
}

function isUpTo(max: number, value: unknown): boolean {
  return typeof value === 'number' && Number.isInteger(value) && value >= 0 && value <= max;
}

function addressList(spec: NodeSpec, reject: RejectField): readonly NodeAddress[] {
  const { addresses } = spec;
  if (addresses === undefined || addresses.length === 0) return NONE;
  for (const { ip } of addresses) {
    if (canonicalAddress(ip) !== ip) return canonicalAddresses(spec, addresses, reject);
  }
  return addresses; // the common case: a codec has made them canonical
}

function canonicalAddresses(
  spec: NodeSpec,
  addresses: readonly NodeAddress[],
  reject: RejectField,
): readonly NodeAddress[] {
  return addresses.flatMap(({ type, ip }, i) => {
    const canonical = address(spec, `addresses.${i}`, ip, reject);
    return canonical === undefined ? [] : [{ type, ip: canonical }];
  });
}

function address(
  spec: NodeSpec,
  field: string,
  text: string | undefined,
  reject: RejectField,
): string | undefined {
  return text === undefined
    ? undefined
    : (canonicalAddress(text) ?? refusedAddress(spec, field, text, reject));
}

function refusedAddress(spec: NodeSpec, field: string, text: string, reject: RejectField): undefined {
  reject(rejection('invalid-address', field, text, 'is no IP address', `node ${nodeFullName(spec)}`));
}

/** Empty maps are common and not small: all nodes share one. */
function stringsOf(given: ReadonlyMap<string, string> | undefined): ReadonlyMap<string, string> {
  return given === undefined || given.size === 0 ? NO_STRINGS : given;
}

function cidr(
  spec: NodeSpec,
  field: string,
  text: string | undefined,
  reject: RejectField,
): string | undefined {
  if (text === undefined) return undefined;
  const canonical = typeof text === 'string' && text.includes('/') ? canonicalKey(text) : undefined;
  if (canonical !== undefined) return canonical;
  reject(rejection('invalid-cidr', field, text, 'is no CIDR', `node ${nodeFullName(spec)}`));
  return undefined;
}

function cidrList(
  spec: NodeSpec,
  field: 'ipv4SecondaryAllocCIDRs' | 'ipv6SecondaryAllocCIDRs',
  reject: RejectField,
): readonly string[] {
  const given = spec[field];
  if (given === undefined || given.length === 0) return NONE;
  return given.flatMap((text, i) => cidr(spec, `${field}.${i}`, text, reject) ?? []);
}
