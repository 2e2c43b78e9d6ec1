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
export type { ApiErrorCode } from './k8s/client/api-error.ts';
export { ApiError } from './k8s/client/api-error.ts';
export type { ApiAnswer, ApiRequest, ApiTransport } from './k8s/client/api-transport.ts';
export type { ClientCertificate, ClusterAccess, Credentials, Pem } from './k8s/client/cluster-access.ts';
export type { InClusterOptions } from './k8s/client/in-cluster.ts';
export { inClusterAccess, isInCluster } from './k8s/client/in-cluster.ts';
export type { Kubeconfig, KubeconfigOptions } from './k8s/client/kubeconfig.ts';
export { KubeconfigError, readKubeconfig } from './k8s/client/kubeconfig.ts';
export type { ObjectReader, ObjectReaderOptions } from './k8s/client/object-reader.ts';
export type {
  ObjectPlace,
  ObjectWrite,
  ObjectWriter,
  ObjectWriterOptions,
  PatchOperation,
  WriteOutcome,
} from './k8s/client/object-writer.ts';
export { DryRunWriter, pointer } from './k8s/client/object-writer.ts';
export type { KubernetesClientOptions, KubernetesClientStatus } from './k8s/kubernetes-client.ts';
export { KubernetesClient } from './k8s/kubernetes-client.ts';
export type { ApiHttpServerOptions, ListenAddress } from './k8s/memory/api-http-server.ts';
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
export { identified } from './k8s/resource.ts';
