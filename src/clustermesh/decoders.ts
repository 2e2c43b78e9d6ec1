import { type IdentityRange, MINIMAL_ALLOCATED_IDENTITY } from '../identity/numeric-identity.ts';
import { decodeClusterService } from '../kvstore/codec/cluster-service.ts';
import { decodeIdentity, type IdentityLabels } from '../kvstore/codec/identity.ts';
import { decodeIPIdentityPair, type IPIdentityPair } from '../kvstore/codec/ip-identity-pair.ts';
import { decodeNode } from '../kvstore/codec/node.ts';
import type { ValueDecoder, ValueLimits } from '../kvstore/codec/value.ts';
import type { ClusterNode } from '../net/cluster-node.ts';
import type { ClusterService } from '../net/cluster-service.ts';
import { type Decoded, rejectedAs } from '../net/fields.ts';

/** What is known of the cluster whose keys are read; asked at every key, because a handshake may change it. */
export interface ClusterLimits {
  /** The cluster's id; undefined while it is not known, or when the cluster has none. */
  readonly clusterID: number | undefined;
  /** The identities that it may name beside the reserved ones; undefined: any. */
  readonly identities: IdentityRange | undefined;
}

/** Nothing is known: a cluster from before 1.13, or the own one. */
export const NO_LIMITS: ClusterLimits = { clusterID: undefined, identities: undefined };

/** `<namespace>/<name>`, or `undefined` when it is not of that form. */
export function splitServiceName(text: string): { namespace: string; name: string } | undefined {
  const [namespace = '', name = '', more] = text.split('/');
  return namespace === '' || name === '' || more !== undefined ? undefined : { namespace, name };
}

function identityFault(
  identity: number,
  field: string,
  limits: ClusterLimits,
  at: string,
): Decoded<never> | undefined {
  const range = limits.identities;
  if (range === undefined || identity < MINIMAL_ALLOCATED_IDENTITY) return undefined;
  if (identity >= range.min && identity <= range.max) return undefined;
  const why = `is not reserved and outside the cluster's range ${range.min}-${range.max}`;
  return rejectedAs('identity-out-of-range', field, identity, why, at);
}

function clusterIDFault(
  id: number,
  field: string,
  { clusterID }: ClusterLimits,
  at: string,
): Decoded<never> | undefined {
  if (clusterID === undefined || id === clusterID || id === 0) return undefined;
  return rejectedAs('cluster-id-mismatch', field, id, `the cluster's id is ${clusterID}`, at);
}

/** IPs whose identity the cluster may name. */
export function ipDecoder(
  limits: () => ClusterLimits,
  valueLimits?: ValueLimits,
): ValueDecoder<IPIdentityPair> {
  return (name, value, at) => {
    const decoded = decodeIPIdentityPair(name, value, at, valueLimits);
    if (!decoded.ok) return decoded;
    return identityFault(decoded.value.identity, 'ID', limits(), at) ?? decoded;
  };
}

/** Nodes that name this cluster. */
export function nodeDecoder(
  cluster: string,
  limits: () => ClusterLimits,
  valueLimits?: ValueLimits,
): ValueDecoder<ClusterNode> {
  return (name, value, at) => {
    const decoded = decodeNode({ cluster, name }, value, at, valueLimits);
    if (!decoded.ok) return decoded;
    return clusterIDFault(decoded.value.clusterID, 'ClusterID', limits(), at) ?? decoded;
  };
}

/** Services that name this cluster. */
export function serviceDecoder(
  cluster: string,
  limits: () => ClusterLimits,
  valueLimits?: ValueLimits,
): ValueDecoder<ClusterService> {
  return (name, value, at) => {
    const parts = splitServiceName(name);
    if (parts === undefined) return rejectedAs('invalid-key', 'key', name, 'is not <namespace>/<name>', at);
    const decoded = decodeClusterService({ cluster, ...parts }, value, at, valueLimits);
    if (!decoded.ok) return decoded;
    return clusterIDFault(decoded.value.clusterID, 'clusterID', limits(), at) ?? decoded;
  };
}

/** Identities that the cluster may name. */
export function identityDecoder(
  limits: () => ClusterLimits,
  valueLimits?: ValueLimits,
): ValueDecoder<IdentityLabels> {
  return (name, value, at) => {
    const decoded = decodeIdentity(name, value, at, valueLimits);
    if (!decoded.ok) return decoded;
    return identityFault(decoded.value.id, 'key', limits(), at) ?? decoded;
  };
}
