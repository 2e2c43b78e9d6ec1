import { requireArgument } from '../base/arguments.ts';

/**
 * A security identity: an unsigned 32-bit number.
 *
 *     31      24 23      16 15              0
 *     ┌─────────┬──────────┬────────────────┐
 *     │  scope  │ cluster  │  within cluster│   255 clusters (16 bits each)
 *     └─────────┴──────────┴────────────────┘
 *
 * Scope 0: reserved (below 256) or allocated by a cluster. Scope 1 (bit 24): node-local, for CIDRs. Scope 2:
 * node-local, for remote nodes. In a mesh of 511 clusters, the cluster id has nine bits and the lower part fifteen.
 */
export type NumericIdentity = number & { readonly [brand]: 'NumericIdentity' };
declare const brand: unique symbol;

export const MAX_IDENTITY = 0xffff_ffff;

/** Returns true if `value` is a valid identity: an integer in [0, 2³²). */
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
  return value as NumericIdentity; // a literal of RESERVED_IDENTITIES below; all are in range
}

/** The identities with the same meaning in every cluster, by name. */
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

/** Returns the name of a reserved identity, for example `host` for 1; `undefined` if it has none. */
export function reservedIdentityName(identity: number): string | undefined {
  return RESERVED_NAMES.get(identity);
}

/** The first identity that is not reserved. */
export const MINIMAL_ALLOCATED_IDENTITY = 256;

/** Scope bits of node-local identities: CIDRs, and remote nodes. */
export const LOCAL_IDENTITY_SCOPE: number = 1 << 24;
export const REMOTE_NODE_IDENTITY_SCOPE: number = 2 << 24;

/** Returns the scope byte of an identity (0, `LOCAL_IDENTITY_SCOPE`, …) as an unsigned number. */
export function identityScope(identity: number): number {
  return (identity & 0xff00_0000) >>> 0;
}

/** Maximum number of clusters of a mesh. It determines the number of cluster bits in an identity. */
export type MaxConnectedClusters = 255 | 511;

/**
 * Throws a `UsageError` unless `clusterID` is an integer from `min` to `maxClusters`.
 *
 * @param name the argument, for the message
 */
export function requireClusterID(
  name: string,
  clusterID: number,
  maxClusters: MaxConnectedClusters = 255,
  min: 0 | 1 = 0,
): void {
  requireArgument(
    Number.isInteger(clusterID) && clusterID >= min && clusterID <= maxClusters,
    `${name} must be an integer from ${min} to ${maxClusters}, not ${clusterID}`,
  );
}

/** Returns the number of bits of an identity within its cluster: 16, or 15 in a mesh of 511 clusters. */
function clusterIdentityBits(maxClusters: MaxConnectedClusters): 15 | 16 {
  return maxClusters === 511 ? 15 : 16;
}

/** Returns the cluster id of an identity of scope 0; 0 for reserved identities and for a cluster without id. */
export function clusterIDOf(identity: number, maxClusters: MaxConnectedClusters = 255): number {
  return (identity & 0x00ff_ffff) >>> clusterIdentityBits(maxClusters);
}

/** The identities that a cluster may allocate, inclusive. */
export interface IdentityRange {
  readonly min: number;
  readonly max: number;
}

/**
 * Returns the identities of a cluster, without the reserved ones: all numbers with its id, as in Cilium (pkg/identity,
 * `GetMinimalAllocationIdentity`). Only in a cluster with id 0, which is in no mesh, some of them are reserved.
 * Throws a `UsageError` unless `clusterID` is an integer from 0 to `maxClusters`.
 */
export function clusterIdentityRange(
  clusterID: number,
  maxClusters: MaxConnectedClusters = 255,
): IdentityRange {
  requireClusterID('clusterIdentityRange: clusterID', clusterID, maxClusters);
  const bits = clusterIdentityBits(maxClusters);
  const base = clusterID << bits;
  return { min: Math.max(base, MINIMAL_ALLOCATED_IDENTITY), max: base + (1 << bits) - 1 };
}
