/**
 * The public surface of `datapath-cache`: the three engines, their sources and sinks, and their types. Everything else
 * in the package, except the other entries, may change in any version.
 */

export type { RecordedEngines } from './agent/recorded-documents.ts';
export { currentDocument, recordDocuments } from './agent/recorded-documents.ts';
export { StateFiles } from './agent/state-files.ts';
export type { StateFile, StateFolder, StateSink } from './base/files/state-folder.ts';
export type { RuntimeOptions } from './base/system-clock.ts';
export type { TurnGateOptions } from './base/turn-gate.ts';
export { TurnGate } from './base/turn-gate.ts';
export type { ClusterMeshOptions, ClusterMeshStatus } from './clustermesh/cluster-mesh.ts';
export { ClusterMesh } from './clustermesh/cluster-mesh.ts';
export type { AddClusterOutcome, ClusterSet, ClusterSetOptions } from './clustermesh/cluster-set.ts';
export type { ClusterPhase } from './clustermesh/cluster-state.ts';
export type {
  OnClusterChange,
  RemoteClusterState,
  RemoteClusterStatus,
} from './clustermesh/cluster-status.ts';
export type { ConfigFile, ConfigListing } from './clustermesh/config-directory.ts';
export type {
  ConfigFollowerOptions,
  ConfigFollowerStatus,
  ConfigSource,
} from './clustermesh/config-follower.ts';
export { ConfigFollower } from './clustermesh/config-follower.ts';
export type {
  ExportSink,
  IPSink,
  MeshCause,
  MeshEngines,
  NodeSink,
  ServiceSink,
} from './clustermesh/engines.ts';
export type { ConnectKvstore, FollowingOptions } from './clustermesh/followed-cluster.ts';
export type { IdentityResolverOptions, RestoredIdentities } from './clustermesh/identity-resolver.ts';
export { IdentityResolver } from './clustermesh/identity-resolver.ts';
export type { LocalClusterOptions, LocalClusterStatus } from './clustermesh/local-cluster.ts';
export { LocalCluster } from './clustermesh/local-cluster.ts';
export type { KeyVersion, ResourceStatuses } from './clustermesh/resource-stores.ts';
export type { ServiceFormat } from './clustermesh/service-format.ts';
export type { SyncDeadline, SyncMembers, SyncProgress } from './clustermesh/sync-deadline.ts';
export { waitForSync } from './clustermesh/sync-deadline.ts';
export type {
  ConnectDatapathOptions,
  Datapath,
  DatapathConnection,
  DatapathContent,
  DatapathEngines,
  DatapathSyncOutcome,
} from './datapath/datapath.ts';
export { connectDatapath } from './datapath/datapath.ts';
export * from './etcd.ts';
export type { ChangeLogCounts, UncertainSpan } from './history/change-log.ts';
export type { VisibleClaim } from './history/changed-prefixes.ts';
export type { Checksum } from './history/disk/frames.ts';
export type { HistoryDisk } from './history/disk/segment-archive.ts';
export type { DocumentChange, PastFields } from './history/document-change.ts';
export type { HistoryDiskStatus, HistoryOptions, HistoryStatus } from './history/history.ts';
export { History } from './history/history.ts';
export type { ChangedSince } from './history/past/changed-since.ts';
export type { PastReader } from './history/past/past-reader.ts';
export type {
  Certainty,
  ChangeCause,
  DocumentMoment,
  DocumentRecord,
  HistoryRange,
  HistoryRecord,
  MarkKind,
  MarkRecord,
  PastClaim,
  PrefixMoment,
  PrefixRecord,
  RetainedInterval,
  Uncertainty,
  When,
} from './history/types.ts';
export { UNCERTAINTIES } from './history/types.ts';
export type { EndpointSliceID } from './k8s/parse-endpoint-slice.ts';
export { parseEndpointSlice, parseEndpointSliceID } from './k8s/parse-endpoint-slice.ts';
export { parseEndpoints } from './k8s/parse-endpoints.ts';
export type { Parsed, ParseOptions } from './k8s/parse-object.ts';
export { parseService, parseServiceID } from './k8s/parse-service.ts';
export type {
  AllocatedIdentity,
  IdentityAllocatorListener,
  IdentityAllocatorOptions,
  IdentityAllocatorStatus,
} from './kvstore/allocator/identity-allocator.ts';
export { IdentityAllocator } from './kvstore/allocator/identity-allocator.ts';
export type { IdentityKeysOptions } from './kvstore/allocator/identity-keys.ts';
export type { ReleaseOutcome } from './kvstore/allocator/local-keys.ts';
export type {
  ClusterCapabilities,
  ClusterConfig,
  EndpointSlicesExportMode,
} from './kvstore/codec/cluster-config.ts';
export type { IPIdentityPair } from './kvstore/codec/ip-identity-pair.ts';
export type { CopiedResource, MeshResource } from './kvstore/codec/keys.ts';
export type { PodMetadata } from './kvstore/codec/pod-metadata.ts';
export type { ValueLimits } from './kvstore/codec/value.ts';
export { VALUE_LIMITS } from './kvstore/codec/value.ts';
export type { Collection } from './kvstore/gc/collections.ts';
export { identityCollection, lockCollection } from './kvstore/gc/collections.ts';
export type { GarbageCollectorOptions, GarbageCollectorStatus } from './kvstore/gc/garbage-collector.ts';
export { GarbageCollector } from './kvstore/gc/garbage-collector.ts';
export type { MemoryBackendOptions } from './kvstore/memory/memory-backend.ts';
export { MemoryBackend } from './kvstore/memory/memory-backend.ts';
export type { MemoryServerOptions, ServerSnapshot } from './kvstore/memory/memory-server.ts';
export { MemoryServer } from './kvstore/memory/memory-server.ts';
export type {
  HeartbeatOptions,
  HeartbeatStatus,
  KvstoreHealthOptions,
  KvstoreHealthStatus,
} from './kvstore/session/health.ts';
export { Heartbeat, KvstoreHealth } from './kvstore/session/health.ts';
export type {
  ReadOnlyBackendOptions,
  SourceChange,
  SourceEntry,
} from './kvstore/session/read-only-backend.ts';
export { ReadOnlyBackend } from './kvstore/session/read-only-backend.ts';
export type { RetryQueueStatus } from './kvstore/stores/retry-queue.ts';
export type {
  LocalKeyStore,
  SharedStoreOptions,
  SharedStoreStatus,
} from './kvstore/stores/shared-store.ts';
export { SharedStore } from './kvstore/stores/shared-store.ts';
export type { SyncStoreOptions, SyncStoreStatus } from './kvstore/stores/sync-store.ts';
export { SyncStore } from './kvstore/stores/sync-store.ts';
export type {
  StoreDecoder,
  StoreObserver,
  WatchStoreOptions,
  WatchStoreRun,
  WatchStoreStatus,
} from './kvstore/stores/watch-store.ts';
export { WatchStore } from './kvstore/stores/watch-store.ts';
export { ClusterNameError } from './model/cluster-name.ts';
export type { ClusterIdentity, IdentityCache, IdentityListener } from './model/identity-cache.ts';
export type { Label, Labels } from './model/labels.ts';
export { formatLabels, parseLabels } from './model/labels.ts';
export type {
  ExportedPort,
  ExportedService,
  ServiceExport,
} from './model/service-export.ts';
export type { Decoded } from './net/fields.ts';
export * from './nodemanager.ts';
export type { DutyRounds, DutyState, DutyStatus, PublishedKeys } from './operator/duty.ts';
export type {
  ClusterPublisherOptions,
  ClusterPublisherStatus,
  PublishedNode,
  PublishedResources,
  PublishedService,
  PublishedServiceExport,
} from './operator/publish/cluster-publisher.ts';
export { ClusterPublisher } from './operator/publish/cluster-publisher.ts';
export type { KeyOwner } from './operator/publish/mesh-keys.ts';
export type { PublishedPrefixStatus } from './operator/publish/published-prefix.ts';
export { ConfigFolder } from './process/config-folder.ts';
export type { CheckpointEngines, CheckpointHeader } from './restore/checkpoint.ts';
export { checkpointSections } from './restore/checkpoint.ts';
export type { CheckpointFault, Section, SectionKind } from './restore/checkpoint-file.ts';
export { SECTION } from './restore/checkpoint-file.ts';
export type { CheckpointerOptions, CheckpointerStatus } from './restore/checkpointer.ts';
export { Checkpointer } from './restore/checkpointer.ts';
export type { AddressOwner, AddressUse, ReservedAddress, ReserveOutcome } from './restore/ipam.ts';
export { DEFAULT_POOL, IPAM } from './restore/ipam.ts';
export type { ImportedState, RestorationOptions, RestoreOutcome } from './restore/restoration.ts';
export { Restoration } from './restore/restoration.ts';
export * from './servicecache.ts';
export type {
  NodeDifference,
  PrefixDifference,
  PrefixDifferenceKind,
  ServiceDifference,
  ServiceDifferenceKind,
} from './whatif/differences.ts';
export type { Edit } from './whatif/edits.ts';
export { EditError } from './whatif/edits.ts';
export type {
  EngineRevisions,
  WhatIfAnswer,
  WhatIfEngines,
  WhatIfOptions,
  WhatIfSummary,
} from './whatif/what-if.ts';
export { whatIf } from './whatif/what-if.ts';
