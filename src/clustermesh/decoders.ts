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
  isPlainPair,
} from '../kvstore/codec/ip-identity-pair.ts';
import { scanIdentity, scanIPIdentityPair } from '../kvstore/codec/ip-pair-scanner.ts';
import type { CopiedResource } from '../kvstore/codec/keys.ts';
import { decodeNode } from '../kvstore/codec/node.ts';
import { decodeServiceExport } from '../kvstore/codec/service-export.ts';
import {
  type EncodedValue,
  VALUE_LIMITS,
  type ValueDecoder,
  type ValueLimits,
} from '../kvstore/codec/value.ts';
import type { StoreScanner, WatchStoreOptions } from '../kvstore/stores/watch-store.ts';
import type { ClusterEndpointSlice } from '../model/cluster-endpoint-slice.ts';
import { clusterLabelFault } from '../model/cluster-label.ts';
import type { ClusterNode } from '../model/cluster-node.ts';
import type { ClusterService, ClusterServiceKey } from '../model/cluster-service.ts';
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
  /** The identities allowed in its values, in addition to reserved ones; undefined if all are allowed. */
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

export interface ClusterDecodersOptions {
  readonly cluster: string;
  readonly limits: () => ClusterLimits;
  readonly valueLimits?: ValueLimits | undefined;
  /** True if the labels of identities may name any cluster. Default false. */
  readonly anyLabels?: boolean | undefined;
}

/** The decoders of the values of one cluster, by resource. They reject what the cluster may not publish. */
export class ClusterDecoders implements Readonly<Record<CopiedResource, ValueDecoder<unknown>>> {
  readonly #cluster: string;
  readonly #limits: () => ClusterLimits;
  readonly #valueLimits: ValueLimits;
  readonly #anyLabels: boolean;

  constructor({ cluster, limits, valueLimits = VALUE_LIMITS, anyLabels = false }: ClusterDecodersOptions) {
    this.#cluster = cluster;
    this.#limits = limits;
    this.#valueLimits = valueLimits;
    this.#anyLabels = anyLabels;
  }

  /** Rejects identities not allowed for the cluster, and address spaces of other clusters. */
  readonly ip: ValueDecoder<IPIdentityPair> = (name, value, at) => {
    const decoded = decodeIPIdentityPair(name, value, at, this.#valueLimits);
    if (!decoded.ok) return decoded;
    return (
      this.#foreignID(addressSpaceOf(decoded.value), 'key', at) ??
      this.#foreignIdentity(decoded.value.identity, 'ID', at) ??
      decoded
    );
  };

  /** The fast form of {@link ClusterDecoders.ip}, for values in the form of Go's encoder. */
  readonly scanIP: StoreScanner<IPIdentityPair> = (name, buffer, from, to) => {
    const pair = scanIPIdentityPair(name, buffer, from, to, this.#valueLimits);
    // The scanner leaves names with an address space to the decoder.
    return pair !== undefined && this.#isAllowed(pair.identity) ? pair : undefined;
  };

  /**
   * A fast form of {@link ClusterDecoders.ip} without new objects: returns true if the decoder accepts the value,
   * and the value has the form of Go's encoder.
   *
   * @param pair the pair of `value`; no other pair may have been encoded since
   */
  checkIP(pair: IPIdentityPair, value: Uint8Array): boolean {
    const isPlain = value.length <= this.#valueLimits.bytes && isPlainPair(pair);
    const identity = isPlain ? pair.identity : scanIdentity(pair.key, value, this.#valueLimits);
    return identity >= 0 && this.#isAllowed(identity);
  }

  readonly nodes: ValueDecoder<ClusterNode> = (name, value, at) =>
    this.#ofCluster(
      decodeNode({ cluster: this.#cluster, name }, value, at, this.#valueLimits),
      'ClusterID',
      at,
    );

  readonly services: ValueDecoder<ClusterService> = this.#namespaced((key, value, at) =>
    this.#ofCluster(decodeClusterService(key, value, at, this.#valueLimits), 'clusterID', at),
  );

  /** Unlike a service, a slice always has the id of its cluster. */
  readonly endpointslices: ValueDecoder<ClusterEndpointSlice> = this.#namespaced((key, value, at) =>
    this.#ofCluster(decodeClusterEndpointSlice(key, value, at, this.#valueLimits), 'clusterID', at, false),
  );

  /** {@link ClusterDecoders.endpointslices} in steps for large values, for `decodeLarge` of `WatchStoreOptions`. */
  readonly largeSlices: NonNullable<WatchStoreOptions<ClusterEndpointSlice>['decodeLarge']> = (
    name,
    value,
    at,
  ) => {
    const parts = splitServiceName(name);
    const key = parts && { cluster: this.#cluster, ...parts };
    const steps = key && decodeLargeEndpointSlice(key, value, at, this.#valueLimits);
    return steps && this.#checkSteps(steps, at);
  };

  readonly serviceexports: ValueDecoder<ServiceExport> = this.#namespaced((key, value, at) =>
    decodeServiceExport(key, value, at, this.#valueLimits),
  );

  /**
   * Rejects identities outside the cluster's range, and those with labels of another cluster, because policies would
   * treat their pods as pods of that cluster.
   */
  readonly identities: ValueDecoder<IdentityLabels> = (name, value, at) => {
    const decoded = decodeIdentity(name, value, at, this.#valueLimits);
    if (!decoded.ok) return decoded;
    const { id, labels } = decoded.value;
    const fault = this.#anyLabels ? undefined : clusterLabelFault(labels, this.#cluster);
    if (fault !== undefined)
      return rejectedAs('cluster-name-mismatch', 'value', formatLabels(labels), fault, at);
    return this.#foreignIdentity(id, 'key', at) ?? decoded;
  };

  /** Returns a decoder of values whose names are `<namespace>/<name>`. */
  #namespaced<T>(
    decode: (key: ClusterServiceKey, value: EncodedValue, at: string) => Decoded<T>,
  ): ValueDecoder<T> {
    return (name, value, at) => {
      const parts = splitServiceName(name);
      return parts === undefined
        ? rejectedAs('invalid-key', 'key', name, 'is not <namespace>/<name>', at)
        : decode({ cluster: this.#cluster, ...parts }, value, at);
    };
  }

  *#checkSteps(
    steps: Generator<undefined, Decoded<ClusterEndpointSlice>>,
    at: string,
  ): Generator<undefined, Decoded<ClusterEndpointSlice>> {
    return this.#ofCluster(yield* steps, 'clusterID', at, false);
  }

  /** Returns a decoded value, or a rejection if it does not have the id of the cluster. */
  #ofCluster<T extends { readonly clusterID: number }>(
    decoded: Decoded<T>,
    field: string,
    at: string,
    isOptional = true,
  ): Decoded<T> {
    return decoded.ok
      ? (this.#foreignID(decoded.value.clusterID, field, at, isOptional) ?? decoded)
      : decoded;
  }

  /** Returns the rejection of an id that is not that of the cluster. */
  #foreignID(id: number, field: string, at: string, isOptional = true): Decoded<never> | undefined {
    const { clusterID } = this.#limits();
    if (clusterID === undefined || id === clusterID || (id === 0 && isOptional)) return undefined;
    return rejectedAs('cluster-id-mismatch', field, id, `must be the id of the cluster, ${clusterID}`, at);
  }

  /** Returns the rejection of an identity that the cluster may not use. */
  #foreignIdentity(identity: number, field: string, at: string): Decoded<never> | undefined {
    const { identities: range } = this.#limits();
    if (range === undefined || this.#isAllowed(identity)) return undefined;
    const reason = `must be reserved or in the range of the cluster, ${range.min} to ${range.max}`;
    return rejectedAs('identity-out-of-range', field, identity, reason, at);
  }

  #isAllowed(identity: number): boolean {
    const { identities: range } = this.#limits();
    if (range === undefined || identity < MINIMAL_ALLOCATED_IDENTITY) return true;
    return identity >= range.min && identity <= range.max;
  }
}
