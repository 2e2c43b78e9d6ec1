/**
 * The entry `datapath-cache/formats`: the formats of a cluster in the kvstore of Cilium: names of keys, and
 * encoders and decoders of their values. With a `SyncStore` a program publishes a cluster that every Cilium can follow;
 * with a `WatchStore` it reads one. Encoders write the bytes that Cilium writes. Decoders accept any bytes and return a
 * value, or a rejection that names field and value.
 */

export { UsageError } from './base/arguments.ts';
export type { Rejection } from './base/rejection.ts';
export type {
  ClusterCapabilities,
  ClusterConfig,
  EndpointSlicesExportMode,
} from './kvstore/codec/cluster-config.ts';
export { decodeClusterConfig, encodeClusterConfig } from './kvstore/codec/cluster-config.ts';
export {
  decodeClusterEndpointSlice,
  encodeClusterEndpointSlice,
} from './kvstore/codec/cluster-endpoint-slice.ts';
export { decodeClusterService, encodeClusterService } from './kvstore/codec/cluster-service.ts';
export type { IdentityLabels } from './kvstore/codec/identity.ts';
export {
  decodeIdentity,
  decodeIdentityNumber,
  encodeIdentity,
  encodeIdentityNumber,
} from './kvstore/codec/identity.ts';
export type { IPIdentityPair } from './kvstore/codec/ip-identity-pair.ts';
export { decodeIPIdentityPair, encodeIPIdentityPair } from './kvstore/codec/ip-identity-pair.ts';
export type { CopiedResource, KeyLayout, MeshResource, ParsedKey } from './kvstore/codec/keys.ts';
export {
  CLUSTER_CONFIG_PREFIX,
  clusterConfigKey,
  endpointSliceKey,
  HEARTBEAT_KEY,
  IDENTITIES_PREFIX,
  identityKey,
  identityValueKey,
  ipKey,
  MESH_RESOURCES,
  nodeKey,
  parseKvstoreKey,
  resourcePrefix,
  serviceExportKey,
  serviceKey,
  syncedKey,
  syncedPrefix,
} from './kvstore/codec/keys.ts';
export type { NodeWriter } from './kvstore/codec/node.ts';
export { decodeNode, encodeNode } from './kvstore/codec/node.ts';
export type { PodMetadata } from './kvstore/codec/pod-metadata.ts';
export type { PortConfiguration } from './kvstore/codec/ports.ts';
export { decodeServiceExport, encodeServiceExport } from './kvstore/codec/service-export.ts';
export { decodeTimestamp, encodeTimestamp } from './kvstore/codec/timestamp.ts';
export type {
  EncodedValue,
  FormatVersion,
  ParsedJson,
  ValueDecoder,
  ValueLimits,
} from './kvstore/codec/value.ts';
export { decodeInPieces, VALUE_LIMITS } from './kvstore/codec/value.ts';
export type {
  ClusterEndpointSlice,
  ClusterEndpointSliceKey,
  EndpointConditions,
  SliceAddressType,
  SliceEndpoint,
  SlicePort,
} from './model/cluster-endpoint-slice.ts';
export { SERVICE_NAME_LABEL } from './model/cluster-endpoint-slice.ts';
export type { ClusterNode, NodeAddress, NodeName } from './model/cluster-node.ts';
export type { BackendZone, ClusterService, ClusterServiceKey } from './model/cluster-service.ts';
export type { Label, Labels } from './model/labels.ts';
export { formatLabels, parseLabels } from './model/labels.ts';
export type { IdentityRange, MaxConnectedClusters, NumericIdentity } from './model/numeric-identity.ts';
export { clusterIdentityRange } from './model/numeric-identity.ts';
export type {
  ExportedPort,
  ExportedService,
  ServiceExport,
} from './model/service-export.ts';
export type { Decoded } from './net/fields.ts';
export type { PortProtocol } from './net/port.ts';
export { PROTOCOL_NUMBERS, protocolName, protocolNumber } from './net/port.ts';
