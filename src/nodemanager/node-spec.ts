import type { Optional } from '../base/arguments.ts';
import { checkArgument, OBJECT } from '../base/arguments.ts';
import type { ClusterNode, NodeAddress, NodeName } from '../model/cluster-node.ts';
import type { Source } from '../model/source.ts';

/** Returns the full name of a node, `cluster/name`, which is the owner of its claims in the IPCache. */
export function nodeFullName(node: NodeName): string {
  checkArgument('nodeFullName: node', node, OBJECT);
  return `${node.cluster}/${node.name}`;
}

/**
 * A node as a source describes it: the fields that the kvstore codec returns, and the source. Absent fields have the
 * zero value. Lists and maps are kept, so callers must not change them.
 */
export interface NodeSpec
  extends NodeName,
    Optional<Omit<ClusterNode, keyof NodeName | 'labels' | 'annotations'>> {
  readonly source: Source;
  /** A `Map`, or an object as in {@link PlainNode}. */
  readonly labels?: ReadonlyMap<string, string> | Readonly<Record<string, string>> | undefined;
  readonly annotations?: NodeSpec['labels'];
}

/** All fields of a node, in canonical form. It is also a {@link NodeSpec}. Absent addresses are `undefined`. */
export interface NodeFields extends Complete<ClusterNode> {
  readonly source: Source;
}

type Complete<T> = { readonly [K in keyof Required<T>]: T[K] };

/** A node as plain data, for JSON. It is also a {@link NodeSpec}. */
export interface PlainNode extends Omit<NodeFields, 'labels' | 'annotations'> {
  readonly labels: Readonly<Record<string, string>>;
  readonly annotations: Readonly<Record<string, string>>;
}

export function plainNode(fields: NodeFields): PlainNode {
  // `fromEntries` is safe for untrusted names: even `__proto__` becomes an ordinary property.
  return {
    ...fields,
    labels: Object.fromEntries(fields.labels),
    annotations: Object.fromEntries(fields.annotations),
  };
}

/**
 * Returns true if two descriptions of a node are textually equal; absent fields are zero. If both are canonical, this
 * is equality. Otherwise false may mean another spelling. The lists and maps of `b` may have wrong types. Allocates
 * nothing, so that repeated updates are cheap.
 */
export function sameNode(a: NodeSpec, b: NodeSpec): boolean {
  return (
    sameScalars(a, b) &&
    sameAddresses(a.addresses, b.addresses) &&
    sameStringLists(a.ipv4SecondaryAllocCIDRs, b.ipv4SecondaryAllocCIDRs) &&
    sameStringLists(a.ipv6SecondaryAllocCIDRs, b.ipv6SecondaryAllocCIDRs) &&
    sameStringMaps(a.labels, b.labels) &&
    sameStringMaps(a.annotations, b.annotations)
  );
}

function sameScalars(a: NodeSpec, b: NodeSpec): boolean {
  return (
    a.name === b.name &&
    a.cluster === b.cluster &&
    a.source === b.source &&
    (a.clusterID ?? 0) === (b.clusterID ?? 0) &&
    a.ipv4AllocCIDR === b.ipv4AllocCIDR &&
    a.ipv6AllocCIDR === b.ipv6AllocCIDR &&
    a.ipv4HealthIP === b.ipv4HealthIP &&
    a.ipv6HealthIP === b.ipv6HealthIP &&
    a.ipv4IngressIP === b.ipv4IngressIP &&
    a.ipv6IngressIP === b.ipv6IngressIP &&
    (a.encryptionKey ?? 0) === (b.encryptionKey ?? 0) &&
    (a.nodeIdentity ?? 0) === (b.nodeIdentity ?? 0) &&
    (a.wireguardPubKey ?? '') === (b.wireguardPubKey ?? '') &&
    (a.bootID ?? '') === (b.bootID ?? '')
  );
}

export function sameAddresses(a: readonly NodeAddress[] = [], b: readonly NodeAddress[] = []): boolean {
  if (a.length !== b?.length) return false;
  for (let i = 0; i < a.length; i++) {
    if (a[i]?.ip !== b[i]?.ip || a[i]?.type !== b[i]?.type) return false;
  }
  return true;
}

function sameStringLists(a: readonly string[] = [], b: readonly string[] = []): boolean {
  if (a.length !== b?.length) return false;
  for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return false;
  return true;
}

export const NO_STRINGS: ReadonlyMap<string, string> = new Map();

export function sameStringMaps(
  a: NodeSpec['labels'] = NO_STRINGS,
  b: NodeSpec['labels'] = NO_STRINGS,
): boolean {
  if (a === b) return true;
  if (!(a instanceof Map && b instanceof Map) || a.size !== b.size) return false;
  if (a.size === 0) return true;
  for (const [key, value] of a) if (b.get(key) !== value) return false;
  return true;
}
