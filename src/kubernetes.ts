/**
 * The entry `datapath-cache/kubernetes`: clients and reflectors of an API server, and the feed that writes its objects
 * into the engines.
 */

export type { RuntimeOptions } from './base/system-clock.ts';
export type { TurnGateOptions } from './base/turn-gate.ts';
export { TurnGate } from './base/turn-gate.ts';
export type { FedIPCache } from './k8s/feed/address-holders.ts';
export type { LabelledPod } from './k8s/feed/endpoint-labels.ts';
export type { KindStatus } from './k8s/feed/followed-kind.ts';
export type { HostIPsOptions } from './k8s/feed/host-ips.ts';
export { HostIPs } from './k8s/feed/host-ips.ts';
export type { ServiceSelection } from './k8s/feed/kinds.ts';
export type {
  HandoverResource,
  KindProgress,
  KubernetesFeedOptions,
  KubernetesFeedStatus,
} from './k8s/feed/kubernetes-feed.ts';
export { HANDOVER_RESOURCES, KubernetesFeed } from './k8s/feed/kubernetes-feed.ts';
export type { HandoverState } from './k8s/feed/kvstore-handover.ts';
export type { FedNodes } from './k8s/feed/node-readers.ts';
export type { CauseListener } from './k8s/feed/object-feed.ts';
export type { PrefixMetadata } from './k8s/feed/prefix-metadata.ts';
export type { FedServices } from './k8s/feed/service-readers.ts';
export type { KubernetesClientOptions, KubernetesClientStatus } from './k8s/kubernetes-client.ts';
export { KubernetesClient } from './k8s/kubernetes-client.ts';
export type {
  FollowedResource,
  FollowOptions,
  KubernetesObject,
  ObjectVersion,
  ResourceEvent,
  ResourceKind,
  ResourceSink,
  ResourceSource,
  ResourceState,
  ResourceStatus,
} from './k8s/resource.ts';
export { objectVersion } from './k8s/resource.ts';
export type { ApiErrorCode } from './k8s/rest/api-error.ts';
export { ApiError } from './k8s/rest/api-error.ts';
export type { ApiAnswer, ApiRequest, ApiTransport } from './k8s/rest/api-transport.ts';
export type { ClientCertificate, ClusterAccess, Credentials, Pem } from './k8s/rest/cluster-access.ts';
export type { InClusterOptions } from './k8s/rest/in-cluster.ts';
export { inClusterAccess, isInCluster } from './k8s/rest/in-cluster.ts';
export type { Kubeconfig, KubeconfigOptions } from './k8s/rest/kubeconfig.ts';
export { KubeconfigError, readKubeconfig } from './k8s/rest/kubeconfig.ts';
export type { ObjectReader, ObjectReaderOptions } from './k8s/rest/object-reader.ts';
export type {
  ObjectPlace,
  ObjectWrite,
  ObjectWriter,
  ObjectWriterOptions,
  PatchOperation,
  WriteOutcome,
} from './k8s/rest/object-writer.ts';
export { DryRunWriter, pointer } from './k8s/rest/object-writer.ts';
export type { WorldLabels } from './metadata/cidr-labels.ts';
export type { LocalIdentity } from './metadata/local-identities.ts';
export { LocalIdentities } from './metadata/local-identities.ts';
export type { MetadataLayerOptions, MetadataLayerStatus } from './metadata/metadata-layer.ts';
export { MetadataLayer } from './metadata/metadata-layer.ts';
export type { IdentityCache, IdentityListener } from './model/identity-cache.ts';
export type { LabelFilterOptions, LabelPrefix } from './model/label-filter.ts';
export { LabelFilter, LabelRuleError } from './model/label-filter.ts';
export type { Label, Labels } from './model/labels.ts';
export * from './nodemanager.ts';
export * from './servicecache.ts';
