/**
 * A Kubernetes API server, as `datapath-cache/kubernetes`: what follows its objects, and a server in this process to try
 * it with.
 */

export type { Clock, Random, Timer } from './base/clock.ts';
export type { Failure } from './base/failure.ts';
export type { FaultListener } from './base/guard.ts';
export type { Rejection } from './base/rejection.ts';
export type { TurnGateOptions } from './base/turn-gate.ts';
export { TurnGate } from './base/turn-gate.ts';
export {
  LabelFilter,
  type LabelFilterOptions,
  type LabelPrefix,
  LabelRuleError,
} from './identity/label-filter.ts';
export type { ApiErrorCode } from './k8s/client/api-error.ts';
export { ApiError } from './k8s/client/api-error.ts';
export type { ApiAnswer, ApiRequest, ApiTransport } from './k8s/client/api-transport.ts';
export type { ClientCertificate, ClusterAccess, Credentials, Pem } from './k8s/client/cluster-access.ts';
export type { InClusterOptions } from './k8s/client/in-cluster.ts';
export { inClusterAccess, isInCluster } from './k8s/client/in-cluster.ts';
export type { Kubeconfig, KubeconfigOptions } from './k8s/client/kubeconfig.ts';
export { KubeconfigError, readKubeconfig } from './k8s/client/kubeconfig.ts';
export type { LabelledPod } from './k8s/feed/endpoint-labels.ts';
export type { KindStatus } from './k8s/feed/followed-kind.ts';
export type { ServiceSelection } from './k8s/feed/kinds.ts';
export {
  type HandoverResource,
  type KindProgress,
  KubernetesFeed,
  type KubernetesFeedOptions,
  type KubernetesFeedStatus,
} from './k8s/feed/kubernetes-feed.ts';
export { KubernetesIdentities } from './k8s/feed/kubernetes-identities.ts';
export type { HandoverState } from './k8s/feed/kvstore-handover.ts';
export { OwnAddresses, type OwnAddressesOptions } from './k8s/feed/own-addresses.ts';
export type { PrefixMetadata } from './k8s/feed/prefix-metadata.ts';
export type { KubernetesClientOptions, KubernetesClientStatus } from './k8s/kubernetes-client.ts';
export { KubernetesClient } from './k8s/kubernetes-client.ts';
export type { ApiHttpServerOptions } from './k8s/memory/api-http-server.ts';
export { ApiHttpServer } from './k8s/memory/api-http-server.ts';
export type { ApiFault, FaultOrder, ServedAnswer, ServedRequest } from './k8s/memory/faults.ts';
export { Faults } from './k8s/memory/faults.ts';
export type { MemoryApiServerOptions } from './k8s/memory/memory-api-server.ts';
export { MemoryApiServer } from './k8s/memory/memory-api-server.ts';
export { MemoryApiTransport } from './k8s/memory/memory-api-transport.ts';
export type { StoreSnapshot } from './k8s/memory/object-store.ts';
export type { ResourceType } from './k8s/memory/resource-types.ts';
export { CLUSTER_TYPES } from './k8s/memory/resource-types.ts';
export type {
  FollowedResource,
  FollowOptions,
  KubernetesObject,
  ResourceEvent,
  ResourceKind,
  ResourceSink,
  ResourceSource,
  ResourceState,
  ResourceStatus,
} from './k8s/resource.ts';
export type { WorldLabels } from './metadata/cidr-labels.ts';
export { LocalIdentities, type LocalIdentity } from './metadata/local-identities.ts';
export {
  MetadataLayer,
  type MetadataLayerOptions,
  type MetadataLayerStatus,
} from './metadata/metadata-layer.ts';
