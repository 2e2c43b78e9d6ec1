/**
 * The entry `datapath-cache/testing`, for tests of programs that use this library: a kvstore and an API server in the
 * process, both with the faults of real ones.
 */

export type { RuntimeOptions } from './base/system-clock.ts';
export type { ApiHttpServerOptions, ListenAddress } from './k8s/memory/api-http-server.ts';
export { ApiHttpServer } from './k8s/memory/api-http-server.ts';
export type { ApiFault, FaultScope, ServedAnswer, ServedRequest } from './k8s/memory/faults.ts';
export { Faults } from './k8s/memory/faults.ts';
export type { MemoryApiServerOptions } from './k8s/memory/memory-api-server.ts';
export { MemoryApiServer } from './k8s/memory/memory-api-server.ts';
export { MemoryApiTransport } from './k8s/memory/memory-api-transport.ts';
export type { ObjectStoreSnapshot } from './k8s/memory/object-store.ts';
export type { ResourceType } from './k8s/memory/resource-types.ts';
export { CLUSTER_TYPES } from './k8s/memory/resource-types.ts';
export type { KubernetesObject } from './k8s/resource.ts';
export type { ApiAnswer, ApiRequest, ApiTransport } from './k8s/rest/api-transport.ts';
export type { KeyRange, WatchedKeys } from './kvstore/codec/key-range.ts';
export type { BackendOptions, KvstoreClientOptions } from './kvstore/kvstore-client.ts';
export { KvstoreClient } from './kvstore/kvstore-client.ts';
export type { LinkState } from './kvstore/memory/faulty-link.ts';
export { FaultyLink } from './kvstore/memory/faulty-link.ts';
export { FaultyMemoryBackend } from './kvstore/memory/faulty-memory-backend.ts';
export { FaultyMemoryServer } from './kvstore/memory/faulty-memory-server.ts';
export type { MemoryBackendOptions } from './kvstore/memory/memory-backend.ts';
export { MemoryBackend } from './kvstore/memory/memory-backend.ts';
export type { MemoryServerOptions, ServerSnapshot } from './kvstore/memory/memory-server.ts';
export { MemoryServer } from './kvstore/memory/memory-server.ts';
export type {
  CallOptions,
  Compare,
  EndpointStatus,
  KeyValue,
  LeaseID,
  RangeRequest,
  RangeResponse,
  ResponseHeader,
  Transport,
  TransportEvent,
  TxnRequest,
  TxnResponse,
  WatchObserver,
  WatchRequest,
  WatchStream,
  WriteOperation,
} from './kvstore/session/transport.ts';
export * from './kvstore-exports.ts';
