/** A Kubernetes API server, as `datapath-cache/kubernetes`: what follows its objects. */

export type { Failure } from './base/failure.ts';
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
