/**
 * The entry `datapath-cache/etcd`: the backend over an etcd, and its configuration. Only this entry and the main entry load
 * gRPC.
 */

export type { Clock, Random, Timer } from './base/clock.ts';
export type { Failure } from './base/failure.ts';
export type { LatencyStatus } from './base/latency-histogram.ts';
export type { RateLimitOptions } from './base/rate-limit.ts';
export type { Unsubscribe } from './base/subscription.ts';
export type { SupervisorStatus, TaskStatus } from './base/supervisor.ts';
export type { TurnGate, TurnGateOptions } from './base/turn-gate.ts';
export type { EtcdBackendOptions, OpenEtcdOptions } from './kvstore/etcd/etcd-backend.ts';
export { EtcdBackend } from './kvstore/etcd/etcd-backend.ts';
export type { EtcdConfig, EtcdTLS } from './kvstore/etcd/etcd-config.ts';
export { EtcdConfigError } from './kvstore/etcd/etcd-config.ts';
export type { KvstoreClient, KvstoreClientOptions } from './kvstore/kvstore-client.ts';
export type {
  BackendStatus,
  DeleteOptions as KvstoreDeleteOptions,
  KeyRead,
  KeyWrite,
  KvstoreBackend,
  KvstoreLock,
  LeaseLostListener,
  ListOptions,
  RetryTurns,
  Watch,
  WatchEvent,
  WatchOptions,
  WatchState,
  WatchStatus,
  WriteOptions,
  WrittenAll,
} from './kvstore/session/backend.ts';
export { MAX_COMPARED_WRITES, MAX_WRITES } from './kvstore/session/backend.ts';
export type { KvstoreErrorCode } from './kvstore/session/errors.ts';
export { KvstoreError } from './kvstore/session/errors.ts';
export type {
  CallOptions,
  EndpointStatus,
  KeyValue,
  LeaseID,
  ResponseHeader,
} from './kvstore/session/transport.ts';
export type { WatchLimits } from './kvstore/watch/watch-limits.ts';
