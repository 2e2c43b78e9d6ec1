/** The exports that all kvstore backends share. Part of the entries `etcd` and `testing`. */

export { UsageError } from './base/arguments.ts';
export type { Clock, Random, Timer } from './base/clock.ts';
export type { Failure } from './base/failure.ts';
export type { FaultListener } from './base/guard.ts';
export type { LatencyStatus } from './base/latency-histogram.ts';
export { LATENCY_BOUNDS_MS } from './base/latency-histogram.ts';
export type { RateLimitOptions } from './base/rate-limit.ts';
export type { Unsubscribe } from './base/subscription.ts';
export type { SupervisorStatus, TaskStatus } from './base/supervisor.ts';
export type { TurnGate, TurnGateOptions } from './base/turn-gate.ts';
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
export type { KvstoreErrorCode } from './kvstore/session/errors.ts';
export { KvstoreError } from './kvstore/session/errors.ts';
export type { WatchLimits } from './kvstore/watch/watch-limits.ts';
