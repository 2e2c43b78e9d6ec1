/**
 * A security identity: an unsigned 32-bit number.
 *
 *     31      24 23      16 15              0
 *     ┌─────────┬──────────┬────────────────┐
 *     │  scope  │ cluster  │  within cluster│   255 clusters (16 bits each)
 *     └─────────┴──────────┴────────────────┘
 *
 * Scope 0: reserved (below 256) or allocated by a cluster; scope 1 (bit 24): node-local, for CIDRs; scope 2:
 * node-local, for remote nodes. In a mesh of 511 clusters the cluster takes one bit more from below.
 */
export type NumericIdentity = number & { readonly [brand]: 'NumericIdentity' };
declare const brand: unique symbol;

/** Whether `value` fits an identity: an integer in [0, 2³²). */
export function isNumericIdentity(value: unknown): value is NumericIdentity {
  return typeof value === 'number' && value >>> 0 === value;
}

/** Name of a reserved identity. */
export type ReservedIdentityName =
  | 'unknown'
  | 'host'
  | 'world'
  | 'unmanaged'
  | 'health'
  | 'init'
  | 'remote-node'
  | 'kube-apiserver'
  | 'ingress'
  | 'world-ipv4'
  | 'world-ipv6';

function reserved(value: number): NumericIdentity {
  return value as NumericIdentity; // a literal of RESERVED_IDENTITIES below, all within range
}

/** The identities that mean the same in every cluster, by name. */
export const RESERVED_IDENTITIES: Readonly<Record<ReservedIdentityName, NumericIdentity>> = {
  unknown: reserved(0),
  host: reserved(1),
  world: reserved(2),
  unmanaged: reserved(3),
  health: reserved(4),
  init: reserved(5),
  'remote-node': reserved(6),
  'kube-apiserver': reserved(7),
  ingress: reserved(8),
  'world-ipv4': reserved(9),
  'world-ipv6': reserved(10),
};

const RESERVED_NAMES: ReadonlyMap<number, string> = new Map(
  Object.entries(RESERVED_IDENTITIES).map(([name, value]) => [value, name]),
);

/** `host` for 1 and so on; `undefined` for what is not reserved by name. */
export function reservedIdentityName(identity: number): string | undefined {
  return RESERVED_NAMES.get(identity);
}

/** Identities below this one are reserved, named or not: clusters allocate from 256 up. */
export const MINIMAL_ALLOCATED_IDENTITY = 256;

/** Scope bits of identities that only one node knows: CIDRs, and remote nodes. */
export const LOCAL_IDENTITY_SCOPE: number = 1 << 24;
export const REMOTE_NODE_IDENTITY_SCOPE: number = 2 << 24;

/** The scope byte of an identity (0, `LOCAL_IDENTITY_SCOPE`, …), as an unsigned number. */
export function identityScope(identity: number): number {
  return (identity & 0xff00_0000) >>> 0;
}

/** How many clusters a mesh may have: it decides how many bits of an identity name the cluster. */
export type MaxConnectedClusters = 255 | 511;

/** The largest cluster id of any mesh: that of 511 clusters, with 15 bits of an identity for each. */
export const MAX_CLUSTER_ID = 511;

/** Bits of an identity within its cluster: 16, or 15 in a mesh of 511 clusters. */
export function clusterIdentityBits(max: MaxConnectedClusters): 15 | 16 {
  return max === 511 ? 15 : 16;
}

/** The cluster id inside an identity of scope 0; 0 for reserved identities and for a cluster without id. */
export function clusterIDOf(identity: number, max: MaxConnectedClusters = 255): number {
  return (identity & 0x00ff_ffff) >>> clusterIdentityBits(max);
}

/** The identities a cluster may allocate, both ends included. */
export interface IdentityRange {
  readonly min: number;
  readonly max: number;
}

/**
 * The range of `clusterID` (0 … `max`): its bits above, 256 and up below. Cluster 0 is a cluster that is
 * in no mesh.
 */
export function clusterIdentityRange(clusterID: number, max: MaxConnectedClusters = 255): IdentityRange {
  const bits = clusterIdentityBits(max);
  const base = clusterID << bits;
  return { min: base + MINIMAL_ALLOCATED_IDENTITY, max: base + (1 << bits) - 1 };
}
