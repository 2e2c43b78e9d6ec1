import { type Map as ImmutableMap, is, type List } from 'immutable';
import type { NodeAddress, NodeFields, NodeSpec } from './node.ts';

/** Whether two nodes are equal in every field, the order of addresses included. */
export function sameNode(a: NodeFields, b: NodeFields): boolean {
  return (
    sameScalars(a, b) &&
    (a.addresses === b.addresses || sameArray(a.addresses, b.addresses.toArray(), sameAddress)) &&
    is(a.ipv4SecondaryAllocCIDRs, b.ipv4SecondaryAllocCIDRs) &&
    is(a.ipv6SecondaryAllocCIDRs, b.ipv6SecondaryAllocCIDRs) &&
    is(a.labels, b.labels) &&
    is(a.annotations, b.annotations)
  );
}

/**
 * Whether a source says of a node, in the very words, what the node says already. Nothing is parsed or allocated, so
 * that a source which repeats itself costs next to nothing. False proves nothing: it may be another spelling.
 */
export function saysTheSame(node: NodeFields, spec: NodeSpec): boolean {
  return (
    sameScalars(node, spec) &&
    sameArray(node.addresses, spec.addresses, sameAddress) &&
    sameArray(node.ipv4SecondaryAllocCIDRs, spec.ipv4SecondaryAllocCIDRs, Object.is) &&
    sameArray(node.ipv6SecondaryAllocCIDRs, spec.ipv6SecondaryAllocCIDRs, Object.is) &&
    sameStrings(node.labels, spec.labels) &&
    sameStrings(node.annotations, spec.annotations)
  );
}

function sameScalars(
  node: NodeFields,
  spec: Omit<NodeSpec, 'addresses' | 'labels' | 'annotations' | SecondaryCIDRs>,
): boolean {
  return (
    node.name === spec.name &&
    node.cluster === spec.cluster &&
    node.source === spec.source &&
    node.clusterID === (spec.clusterID ?? 0) &&
    node.ipv4AllocCIDR === spec.ipv4AllocCIDR &&
    node.ipv6AllocCIDR === spec.ipv6AllocCIDR &&
    node.ipv4HealthIP === spec.ipv4HealthIP &&
    node.ipv6HealthIP === spec.ipv6HealthIP &&
    node.ipv4IngressIP === spec.ipv4IngressIP &&
    node.ipv6IngressIP === spec.ipv6IngressIP &&
    node.encryptionKey === (spec.encryptionKey ?? 0) &&
    node.nodeIdentity === (spec.nodeIdentity ?? 0) &&
    node.wireguardPubKey === (spec.wireguardPubKey ?? '') &&
    node.bootID === (spec.bootID ?? '')
  );
}

type SecondaryCIDRs = 'ipv4SecondaryAllocCIDRs' | 'ipv6SecondaryAllocCIDRs';

function sameAddress(a: NodeAddress, b: NodeAddress): boolean {
  return a.ip === b.ip && a.type === b.type;
}

/** Whether a list holds the same items as an array; an absent one is empty. */
function sameArray<T>(
  list: List<T>,
  array: readonly T[] | undefined,
  same: (a: T, b: T) => boolean,
): boolean {
  if (list.size !== (array?.length ?? 0)) return false;
  for (let i = 0; i < list.size; i++) {
    const [a, b] = [list.get(i), array?.[i]];
    if (a === undefined || b === undefined || !same(a, b)) return false;
  }
  return true;
}

function sameStrings(
  map: ImmutableMap<string, string>,
  given: ReadonlyMap<string, string> | undefined,
): boolean {
  if (map.size !== (given?.size ?? 0)) return false;
  if (given === undefined || given.size === 0) return true;
  for (const [key, value] of given) if (map.get(key) !== value) return false;
  return true;
}
