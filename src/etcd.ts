/**
 * The entry `datapath-cache/etcd`: the backend over an etcd, and its configuration. Only this entry and the main entry
 * load gRPC.
 */

export type { RuntimeOptions } from './base/system-clock.ts';
export type { EtcdBackendOptions, OpenEtcdOptions } from './kvstore/etcd/etcd-backend.ts';
export { EtcdBackend } from './kvstore/etcd/etcd-backend.ts';
export type { EtcdConfig, EtcdTLS } from './kvstore/etcd/etcd-config.ts';
export { EtcdConfigError } from './kvstore/etcd/etcd-config.ts';
export type { BackendOptions, KvstoreClient, KvstoreClientOptions } from './kvstore/kvstore-client.ts';
export { MAX_COMPARED_WRITES, MAX_WRITES } from './kvstore/session/backend.ts';
export type {
  CallOptions,
  EndpointStatus,
  KeyValue,
  LeaseID,
  ResponseHeader,
} from './kvstore/session/transport.ts';
export * from './kvstore-exports.ts';
