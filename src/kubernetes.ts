/** A Kubernetes API server, as `datapath-cache/kubernetes`: what follows its objects. */

export type { Failure } from './base/failure.ts';
export {
  LabelFilter,
  type LabelFilterOptions,
  type LabelPrefix,
  LabelRuleError,
} from './identity/label-filter.ts';
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
export type { PrefixMetadata, WorldLabels } from './k8s/feed/prefix-metadata.ts';
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
