/**
 * The entry `datapath-cache/servicecache`: the ServiceCache alone, with the backends of each service, over all
 * clusters. Loads no module of Node, so it runs in browsers and workers. Its collections are those of the package
 * `immutable`.
 */

export type { List as ImmutableList, Map as ImmutableMap, Set as ImmutableSet } from 'immutable';
export * from './engine-exports.ts';
export type {
  ClusterEndpointSlice,
  ClusterEndpointSliceKey,
  EndpointConditions,
  SliceAddressType,
  SliceEndpoint,
  SlicePort,
} from './model/cluster-endpoint-slice.ts';
export { SERVICE_NAME_LABEL } from './model/cluster-endpoint-slice.ts';
export type { BackendZone, ClusterService, ClusterServiceKey } from './model/cluster-service.ts';
export type { PreferredSide } from './servicecache/affinity.ts';
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
export type { BackendClaim, Correlation } from './servicecache/correlation.ts';
export type { BackendChange, ServiceEvent, ServiceListener } from './servicecache/events.ts';
export { changedBackends } from './servicecache/events.ts';
export type {
  BackendVerdict,
  ExplainedBackend,
  ExplainedOrigin,
  ServiceExplanation,
} from './servicecache/explain.ts';
export type { FrontendMatch } from './servicecache/frontend-index.ts';
export type { Frontend, FrontendKind, NodePortOptions } from './servicecache/frontends.ts';
export { formatFrontend, frontendsOf } from './servicecache/frontends.ts';
export type { Origin } from './servicecache/origin-index.ts';
export type { ResolvedBackend } from './servicecache/resolve.ts';
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
  RemoteSliceID,
  RemoveOutcome,
  ServiceCacheOptions,
  UpdateServiceOutcome,
} from './servicecache/service-cache.ts';
export { ServiceCache } from './servicecache/service-cache.ts';
export type { ServiceID } from './servicecache/service-id.ts';
export { formatServiceID, parseServiceIDFrom } from './servicecache/service-id.ts';
export type { ServicePart } from './servicecache/service-parts.ts';
export type { Offer, ServiceState } from './servicecache/service-state.ts';
export type { ServiceSource, StreamedServiceEvent } from './servicecache/service-stream.ts';
export { ServiceStream, ServiceStreamClosedError } from './servicecache/service-stream.ts';
export type { StateObserver } from './servicecache/service-table.ts';
export type { ServiceCacheStatus, ServiceCounts } from './servicecache/status.ts';
