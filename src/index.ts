/**
 * The public surface of `datapath-cache`: three engines that know what is where, what feeds them, and the types
 * of what they take and give. Anything else is an inside matter and may change in any version.
 */

// ── What feeds the engines ─────────────────────────────────────────────────────────────────────────────────
export { ConfigFolder } from './agent/config-folder.ts';
// ── What they have in common ───────────────────────────────────────────────────────────────────────────────
export { AssertionError } from './base/assert.ts';
export type { Clock, Random, Timer } from './base/clock.ts';
export type { Rejection, RejectionStatus } from './base/rejection.ts';
export { RejectionLog } from './base/rejection.ts';
export type { Unsubscribe } from './base/subscription.ts';
export { systemClock } from './base/system-clock.ts';
export type { TurnGateOptions } from './base/turn-gate.ts';
export { TurnGate } from './base/turn-gate.ts';
export type { AddClusterOutcome, ClusterMeshOptions, ClusterMeshStatus } from './clustermesh/cluster-mesh.ts';
export { ClusterMesh } from './clustermesh/cluster-mesh.ts';
export type { RemoteClusterState, RemoteClusterStatus } from './clustermesh/cluster-status.ts';
export type { ConfigFile, ConfigListing } from './clustermesh/config-directory.ts';
export type {
  ConfigFollowerOptions,
  ConfigFollowerStatus,
  ConfigSource,
} from './clustermesh/config-follower.ts';
export { ConfigFollower } from './clustermesh/config-follower.ts';
export type { IPSink, MeshEngines, NodeSink, ServiceSink } from './clustermesh/engines.ts';
export type { ConnectKvstore } from './clustermesh/followed-cluster.ts';
export type { GlobalServices } from './clustermesh/global-services.ts';
export type { OwnClusterOptions, OwnClusterStatus } from './clustermesh/own-cluster.ts';
export { OwnCluster } from './clustermesh/own-cluster.ts';
export type { SyncDeadline, SyncingClusters, SyncProgress } from './clustermesh/sync-deadline.ts';
// ── What the engines tell: a datapath, and recording ones ──────────────────────────────────────────────────
export type { Datapath, DatapathEngines, ServiceHandler } from './datapath/datapath.ts';
export { connectDatapath } from './datapath/datapath.ts';
export type { IPCacheRecord } from './datapath/recording-ipcache-listener.ts';
export { RecordingIPCacheListener } from './datapath/recording-ipcache-listener.ts';
export type { NodeRecord } from './datapath/recording-node-handler.ts';
export { RecordingNodeHandler } from './datapath/recording-node-handler.ts';
export type { ServiceRecord } from './datapath/recording-service-handler.ts';
export { RecordingServiceHandler } from './datapath/recording-service-handler.ts';
export type { Label, Labels } from './identity/labels.ts';
export { formatLabels, parseLabels } from './identity/labels.ts';
export type {
  IdentityRange,
  MaxConnectedClusters,
  NumericIdentity,
  ReservedIdentityName,
} from './identity/numeric-identity.ts';
export {
  clusterIdentityRange,
  RESERVED_IDENTITIES,
  reservedIdentityName,
} from './identity/numeric-identity.ts';
export type { RemoteIdentityCache } from './identity/remote-identity-cache.ts';
export type { Source } from './identity/source.ts';
export { SOURCES } from './identity/source.ts';
// ── Engines ────────────────────────────────────────────────────────────────────────────────────────────────
export type { ReadOptions } from './ipcache/change-hub.ts';
export type { ChangeBatch } from './ipcache/change-reader.ts';
export { IPCache } from './ipcache/ipcache.ts';
export type { NamedPortSets } from './ipcache/named-port-index.ts';
export { IPCacheSnapshot } from './ipcache/snapshot.ts';
export type { CountedOutcome, FamilyCounts, IPCacheOptions, IPCacheStatus } from './ipcache/status.ts';
export type {
  Claim,
  ClaimWriter,
  DecidingRule,
  DeleteOptions,
  DeleteOutcome,
  ExplainedClaim,
  Explanation,
  IPCacheChange,
  IPCacheEntry,
  IPCacheListener,
  K8sMetadata,
  KeyedEntry,
  NamedPorts,
  OwnerChange,
  OwnerListener,
  UpsertOutcome,
  Writer,
} from './ipcache/types.ts';
export type { WaitingClaim } from './ipcache/waiting-claims.ts';
export type { Parsed, ParseOptions } from './k8s/field-reader.ts';
export type { EndpointSliceID } from './k8s/parse-endpoint-slice.ts';
export { parseEndpointSlice, parseEndpointSliceID } from './k8s/parse-endpoint-slice.ts';
export { parseEndpoints } from './k8s/parse-endpoints.ts';
export { parseService, parseServiceID } from './k8s/parse-service.ts';
export type {
  AllocatedIdentity,
  IdentityAllocatorOptions,
  IdentityListener,
  ReleaseOutcome,
} from './kvstore/allocator/identity-allocator.ts';
export { IdentityAllocator } from './kvstore/allocator/identity-allocator.ts';
export type {
  BackendStatus,
  DeleteOptions as KvstoreDeleteOptions,
  KvstoreBackend,
  KvstoreLock,
  LeaseLostListener,
  ListOptions,
  Watch,
  WatchEvent,
  WatchOptions,
  WatchState,
  WatchStatus,
  WriteOptions,
} from './kvstore/backend.ts';
export type { ClusterCapabilities, ClusterConfig } from './kvstore/codec/cluster-config.ts';
export type { MeshResource } from './kvstore/codec/keys.ts';
export type { ValueLimits } from './kvstore/codec/value.ts';
export { VALUE_LIMITS } from './kvstore/codec/value.ts';
export type { KvstoreErrorCode } from './kvstore/errors.ts';
export { KvstoreError } from './kvstore/errors.ts';
export type { EtcdBackendOptions, OpenEtcdOptions } from './kvstore/etcd/etcd-backend.ts';
export { EtcdBackend } from './kvstore/etcd/etcd-backend.ts';
export type { EtcdConfig, EtcdTLS } from './kvstore/etcd/etcd-config.ts';
export { EtcdConfigError } from './kvstore/etcd/etcd-config-file.ts';
export type {
  Collection,
  GarbageCollectorOptions,
  GarbageCollectorStatus,
} from './kvstore/gc/garbage-collector.ts';
export { GarbageCollector, identityCollection, lockCollection } from './kvstore/gc/garbage-collector.ts';
export type { HeartbeatStatus, KvstoreHealthOptions, KvstoreHealthStatus } from './kvstore/health.ts';
export { Heartbeat, KvstoreHealth } from './kvstore/health.ts';
export type { MemoryBackendOptions } from './kvstore/memory/memory-backend.ts';
export { MemoryBackend } from './kvstore/memory/memory-backend.ts';
export type { MemoryServerOptions, ServerSnapshot } from './kvstore/memory/memory-server.ts';
export { MemoryServer } from './kvstore/memory/memory-server.ts';
export type { RateLimitOptions } from './kvstore/rate-limit.ts';
export type { SharedStoreOptions, SharedStoreStatus } from './kvstore/store/shared-store.ts';
export { SharedStore } from './kvstore/store/shared-store.ts';
export type { SyncStoreOptions, SyncStoreStatus } from './kvstore/store/sync-store.ts';
export { SyncStore } from './kvstore/store/sync-store.ts';
export type {
  StoreDecoder,
  StoreObserver,
  WatchStoreOptions,
  WatchStoreRun,
  WatchStoreStatus,
} from './kvstore/store/watch-store.ts';
export { WatchStore } from './kvstore/store/watch-store.ts';
export type { CallOptions, EndpointStatus, KeyValue } from './kvstore/transport.ts';
export type { NodeAddress, NodeName } from './net/cluster-node.ts';
export type { BackendZone, ClusterService, ClusterServiceKey } from './net/cluster-service.ts';
export type { Decoded } from './net/fields.ts';
export type { PortProtocol } from './net/port.ts';
export { PROTOCOL_NUMBERS, protocolName, protocolNumber } from './net/port.ts';
export { Prefix } from './net/prefix.ts';
export type { NodeConfiguration } from './nodemanager/address-claims.ts';
export { tunnelEndpoint } from './nodemanager/address-claims.ts';
export type { AppliedOutcome } from './nodemanager/handler-feeds.ts';
export type { Node } from './nodemanager/node.ts';
export type { LostAddress, NodeIPCache } from './nodemanager/node-addresses.ts';
export type { NodeCheckpoint } from './nodemanager/node-checkpoint.ts';
export type {
  HandlerFailure,
  HandlerFault,
  HandlerResult,
  HandlerStatus,
  NodeCall,
  NodeHandler,
} from './nodemanager/node-handler.ts';
export type { NodeIDPair } from './nodemanager/node-ids.ts';
export { MAX_NODE_ID, NodeIDs, NodeIDsExhaustedError } from './nodemanager/node-ids.ts';
export { NodeManager } from './nodemanager/node-manager.ts';
export type {
  NodeManagerOptions,
  NodeSubscribeOptions,
  NodeWithdrawal,
} from './nodemanager/node-manager-options.ts';
export type { NodeFields, NodeSpec, PlainNode } from './nodemanager/node-spec.ts';
export { nodeFullName } from './nodemanager/node-spec.ts';
export type {
  CountedNodeOutcome,
  NodeDeleteOutcome,
  NodeExplanation,
  NodeHandlerState,
  NodeManagerStatus,
  NodeUpdateOutcome,
} from './nodemanager/node-status.ts';
export type { AnnouncedService } from './servicecache/announcement.ts';
export type {
  Backend,
  BackendFields,
  BackendState,
  Backends,
  EndpointSlice,
  EndpointSliceFields,
  Endpoints,
  Ports,
} from './servicecache/backend.ts';
export { createBackend, createEndpointSlice } from './servicecache/backend.ts';
export type { ServiceEvent, ServiceListener } from './servicecache/events.ts';
export type {
  BackendVerdict,
  ExplainedBackend,
  ExplainedOrigin,
  ServiceExplanation,
} from './servicecache/explain.ts';
export type { FrontendMatch } from './servicecache/frontend-index.ts';
export type { Frontend, FrontendKind, NodePortOptions } from './servicecache/frontends.ts';
export { formatFrontend, frontendsOf } from './servicecache/frontends.ts';
export type { BackendSelection, SelectionContext } from './servicecache/selection.ts';
export { selectBackends } from './servicecache/selection.ts';
export type {
  Addressing,
  Service,
  ServiceAffinity,
  ServiceFields,
  ServicePort,
  ServiceType,
  TrafficDistribution,
  TrafficPolicy,
} from './servicecache/service.ts';
export { createService } from './servicecache/service.ts';
export type {
  MergeOutcome,
  RemoveOutcome,
  ServiceCacheOptions,
  UpdateServiceOutcome,
} from './servicecache/service-cache.ts';
export { ServiceCache } from './servicecache/service-cache.ts';
export type { ServiceID } from './servicecache/service-id.ts';
export { formatServiceID, parseServiceIDFrom } from './servicecache/service-id.ts';
export type { ServiceSource, StreamedServiceEvent } from './servicecache/service-stream.ts';
export { ServiceStream, ServiceStreamClosedError } from './servicecache/service-stream.ts';
export type { ServiceCacheStatus, ServiceCounts } from './servicecache/status.ts';
