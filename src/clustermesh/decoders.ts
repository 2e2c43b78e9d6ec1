import {
  decodeClusterEndpointSlice,
  decodeLargeEndpointSlice,
} from '../kvstore/codec/cluster-endpoint-slice.ts';
import { decodeClusterService } from '../kvstore/codec/cluster-service.ts';
import { decodeIdentity, type IdentityLabels } from '../kvstore/codec/identity.ts';
import {
  addressSpaceOf,
  decodeIPIdentityPair,
  type IPIdentityPair,
} from '../kvstore/codec/ip-identity-pair.ts';
import { scanIdentity, scanIPIdentityPair } from '../kvstore/codec/ip-pair-scanner.ts';
import { decodeNode } from '../kvstore/codec/node.ts';
import { decodeServiceExport } from '../kvstore/codec/service-export.ts';
import { VALUE_LIMITS, type ValueDecoder, type ValueLimits } from '../kvstore/codec/value.ts';
import type { StoreScanner, WatchStoreOptions } from '../kvstore/stores/watch-store.ts';
import type { ClusterEndpointSlice } from '../model/cluster-endpoint-slice.ts';
import { clusterLabelFault } from '../model/cluster-label.ts';
import type { ClusterNode } from '../model/cluster-node.ts';
import type { ClusterService } from '../model/cluster-service.ts';
import { formatLabels } from '../model/labels.ts';
import {
  clusterIdentityRange,
  type IdentityRange,
  type MaxConnectedClusters,
  MINIMAL_ALLOCATED_IDENTITY,
} from '../model/numeric-identity.ts';
import type { ServiceExport } from '../model/service-export.ts';
import { type Decoded, rejectedAs } from '../net/fields.ts';

/** Limits of a cluster's values. They are read for every key, because a handshake may change them. */
export interface ClusterLimits {
  /** The cluster's id; undefined if it is unknown or the cluster has none. */
  readonly clusterID: number | undefined;
  /** The identities that its values may contain, in addition to reserved ones; undefined if all are allowed. */
  readonly identities: IdentityRange | undefined;
}

/** The limits of a cluster from before 1.13 and of the local one: everything is allowed. */
export const NO_LIMITS: ClusterLimits = { clusterID: undefined, identities: undefined };

/** Returns the limits of a cluster with this id; {@link NO_LIMITS} if it is 0. */
export function clusterLimits(clusterID: number, max?: MaxConnectedClusters): ClusterLimits {
  return clusterID === 0 ? NO_LIMITS : { clusterID, identities: clusterIdentityRange(clusterID, max) };
}

/** Splits `<namespace>/<name>`. Returns `undefined` if the text has another form. */
export function splitServiceName(text: string): { namespace: string; name: string } | undefined {
  const [namespace = '', name = '', more] = text.split('/');
  return namespace === '' || name === '' || more !== undefined ? undefined : { namespace, name };
}

function isAllowed(identity: number, range: IdentityRange | undefined): boolean {
  if (range === undefined || identity < MINIMAL_ALLOCATED_IDENTITY) return true;
  return identity >= range.min && identity <= range.max;
}

function identityRejection(
  identity: number,
  field: string,
  limits: ClusterLimits,
  at: string,
): Decoded<never> | undefined {
  const range = limits.identities;
  if (range === undefined || isAllowed(identity, range)) return undefined;
  const reason = `must be reserved or in the range of the cluster, ${range.min} to ${range.max}`;
  return rejectedAs('identity-out-of-range', field, identity, reason, at);
}

function clusterIDRejection(
  id: number,
  field: string,
  { clusterID }: ClusterLimits,
  at: string,
  isOptional = true,
): Decoded<never> | undefined {
  if (clusterID === undefined || id === clusterID || (id === 0 && isOptional)) return undefined;
  return rejectedAs('cluster-id-mismatch', field, id, `must be the id of the cluster, ${clusterID}`, at);
}

/**
 * Returns a decoder of IPs. It rejects identities that the cluster may not use, and address spaces of other clusters.
 */
export function ipDecoder(
  limits: () => ClusterLimits,
  valueLimits?: ValueLimits,
): ValueDecoder<IPIdentityPair> {
  return (name, value, at) => {
    const decoded = decodeIPIdentityPair(name, value, at, valueLimits);
    if (!decoded.ok) return decoded;
    const current = limits();
    return (
      clusterIDRejection(addressSpaceOf(decoded.value), 'key', current, at) ??
      identityRejection(decoded.value.identity, 'ID', current, at) ??
      decoded
    );
  };
}

/** Returns the fast form of {@link ipDecoder}, for values in the form that Go writes. */
export function ipScanner(
  limits: () => ClusterLimits,
  valueLimits: ValueLimits = VALUE_LIMITS,
): StoreScanner<IPIdentityPair> {
  return (name, buffer, from, to) => {
    const pair = scanIPIdentityPair(name, buffer, from, to, valueLimits);
    if (pair === undefined) return undefined;
    // The scanner leaves names with an address space to the decoder.
    return isAllowed(pair.identity, limits().identities) ? pair : undefined;
  };
}

/**
 * Returns a fast form of {@link ipDecoder} that creates no objects: true if the decoder accepts the value, and the
 * value has the form that Go writes.
 */
export function ipChecker(
  limits: () => ClusterLimits,
  valueLimits: ValueLimits = VALUE_LIMITS,
): (name: string, value: Uint8Array) => boolean {
  return (name, value) => {
    const identity = scanIdentity(name, value, valueLimits);
    return identity >= 0 && isAllowed(identity, limits().identities);
  };
}

/** Returns a decoder of nodes. It rejects nodes of other clusters. */
export function nodeDecoder(
  cluster: string,
  limits: () => ClusterLimits,
  valueLimits?: ValueLimits,
): ValueDecoder<ClusterNode> {
  return (name, value, at) => {
    const decoded = decodeNode({ cluster, name }, value, at, valueLimits);
    if (!decoded.ok) return decoded;
    return clusterIDRejection(decoded.value.clusterID, 'ClusterID', limits(), at) ?? decoded;
  };
}

/** Returns a decoder of services. It rejects services of other clusters. */
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
    return clusterIDRejection(decoded.value.clusterID, 'clusterID', limits(), at) ?? decoded;
  };
}

/**
 * Returns a decoder of endpoint slices. It rejects slices of other clusters; unlike a service, a slice always has the
 * id.
 */
export function sliceDecoder(
  cluster: string,
  limits: () => ClusterLimits,
  valueLimits?: ValueLimits,
): ValueDecoder<ClusterEndpointSlice> {
  return (name, value, at) => {
    const parts = splitServiceName(name);
    if (parts === undefined) return rejectedAs('invalid-key', 'key', name, 'is not <namespace>/<name>', at);
    const decoded = decodeClusterEndpointSlice({ cluster, ...parts }, value, at, valueLimits);
    return withClusterOfSlice(decoded, limits(), at);
  };
}

/** Returns a decoder of service exports. It rejects those of other clusters. */
export function exportDecoder(cluster: string, valueLimits?: ValueLimits): ValueDecoder<ServiceExport> {
  return (name, value, at) => {
    const parts = splitServiceName(name);
    if (parts === undefined) return rejectedAs('invalid-key', 'key', name, 'is not <namespace>/<name>', at);
    return decodeServiceExport({ cluster, ...parts }, value, at, valueLimits);
  };
}

/** Returns {@link sliceDecoder} in steps for large values, for `decodeLarge` of `WatchStoreOptions`. */
export function largeSliceDecoder(
  cluster: string,
  limits: () => ClusterLimits,
  valueLimits?: ValueLimits,
): NonNullable<WatchStoreOptions<ClusterEndpointSlice>['decodeLarge']> {
  function* check(steps: DecodeSteps, at: string): DecodeSteps {
    const decoded = yield* steps;
    return withClusterOfSlice(decoded, limits(), at);
  }
  return (name, value, at) => {
    const parts = splitServiceName(name);
    const steps = parts && decodeLargeEndpointSlice({ cluster, ...parts }, value, at, valueLimits);
    return steps && check(steps, at);
  };
}

type DecodeSteps = Generator<undefined, Decoded<ClusterEndpointSlice>>;

/** Returns a decoded slice, or a rejection if it has not the id of the cluster. */
function withClusterOfSlice(
  decoded: Decoded<ClusterEndpointSlice>,
  limits: ClusterLimits,
  at: string,
): Decoded<ClusterEndpointSlice> {
  if (!decoded.ok) return decoded;
  return clusterIDRejection(decoded.value.clusterID, 'clusterID', limits, at, false) ?? decoded;
}

/**
 * Returns a decoder of identities. It rejects identities outside the cluster's range, and those with labels of another
 * cluster, because policies would treat their pods as pods of that cluster.
 *
 * @param cluster undefined if the labels may name any cluster
 */
export function identityDecoder(
  cluster: string | undefined,
  limits: () => ClusterLimits,
  valueLimits?: ValueLimits,
): ValueDecoder<IdentityLabels> {
  return (name, value, at) => {
    const decoded = decodeIdentity(name, value, at, valueLimits);
    if (!decoded.ok) return decoded;
    const { id, labels } = decoded.value;
    const fault = cluster === undefined ? undefined : clusterLabelFault(labels, cluster);
    if (fault !== undefined)
      return rejectedAs('cluster-name-mismatch', 'value', formatLabels(labels), fault, at);
    return identityRejection(id, 'key', limits(), at) ?? decoded;
  };
}
