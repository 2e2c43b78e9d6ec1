import { type Check, FUNCTION, objectWith, optional } from '../base/arguments.ts';
import type { Claim, PrefixDeleteOptions, Writer } from '../ipcache/types.ts';
import type { ClusterEndpointSlice } from '../model/cluster-endpoint-slice.ts';
import type { ClusterNode } from '../model/cluster-node.ts';
import type { ClusterService, ClusterServiceKey } from '../model/cluster-service.ts';
import type { ServiceExport } from '../model/service-export.ts';
import type { Source } from '../model/source.ts';
import type { RemoteSliceID } from '../servicecache/service-cache.ts';
import type { MeshTap } from './mesh-tap.ts';

/** Receives IPs and their identities. `IPCache` implements it. The engine counts the outcomes. */
export interface IPSink {
  upsert(key: string, claim: Claim): unknown;
  delete(key: string, by: PrefixDeleteOptions): unknown;
  withdraw(by: Writer): unknown;
  batch<T>(write: () => T): T;
}

/** Receives the services of remote clusters. `ServiceCache` implements it. */
export interface ServiceSink {
  mergeExternalServiceUpdate(service: ClusterService): unknown;
  mergeExternalServiceDelete(service: ClusterServiceKey): unknown;
  mergeExternalSliceUpdate(slice: ClusterEndpointSlice): unknown;
  mergeExternalSliceDelete(slice: RemoteSliceID): unknown;
  withdrawCluster(cluster: string): unknown;
}

/** Receives nodes. `NodeManager` implements it. */
export interface NodeSink {
  nodeUpdated(node: ClusterNode & { readonly source: Source }): unknown;
  nodeDeleted(node: { readonly cluster: string; readonly name: string; readonly source: Source }): unknown;
  withdraw(by: { readonly source: Source; readonly cluster: string }): unknown;
}

/** Receives the service exports of remote clusters. */
export interface ExportSink {
  exportUpdated(service: ServiceExport): unknown;
  exportDeleted(service: ClusterServiceKey): unknown;
}

/** The kvstore event or the withdrawal which causes changes of the engines. */
export interface MeshCause {
  /** Name of the cluster. */
  readonly store: string;
  /** Revision of the event in the cluster's kvstore; empty if the state of the cluster is withdrawn. */
  readonly revision: string;
  /** True if the state of the cluster is withdrawn. */
  readonly withdrawal?: boolean | undefined;
}

/** The engines fed by a mesh. If one is absent, its keys are not watched. */
export interface MeshEngines {
  readonly ipcache?: IPSink | undefined;
  readonly services?: ServiceSink | undefined;
  readonly nodes?: NodeSink | undefined;
  /** Default: service exports are not watched, because agents do not need them. */
  readonly exports?: ExportSink | undefined;
  /** If false, identities are not watched. Default true. */
  readonly identities?: boolean | undefined;
  /**
   * Called with the cluster and the revision of each kvstore event before it is applied, and before each step of a
   * withdrawal; called with `undefined` after the batch or step. It must not throw. Default: none.
   */
  readonly onCause?: ((cause: MeshCause | undefined) => void) | undefined;
  /**
   * Called with true before the state of a cluster is withdrawn, and with false when the withdrawal is complete or
   * abandoned. The repetition of an interrupted withdrawal calls it with true again. It must not throw. Default: none.
   */
  readonly onWithdrawal?: ((cluster: string, isRunning: boolean) => void) | undefined;
  /**
   * @internal
   * Receives the input of the engines. Default: none.
   */
  readonly tap?: MeshTap | undefined;
  /**
   * The setting of the node manager (SEMANTICS 4); default true. The identity `host` from a peer means *its* host, so
   * it becomes `remote-node` here. If false, all nodes have the identity `host`.
   */
  readonly remoteNodeIdentities?: boolean | undefined;
}

export const MESH_ENGINES: Readonly<Record<string, Check>> = {
  ipcache: optional(objectWith({ upsert: FUNCTION, delete: FUNCTION, withdraw: FUNCTION, batch: FUNCTION })),
  services: optional(objectWith({ mergeExternalServiceUpdate: FUNCTION, withdrawCluster: FUNCTION })),
  nodes: optional(objectWith({ nodeUpdated: FUNCTION, nodeDeleted: FUNCTION, withdraw: FUNCTION })),
  exports: optional(objectWith({ exportUpdated: FUNCTION, exportDeleted: FUNCTION })),
  onCause: optional(FUNCTION),
  onWithdrawal: optional(FUNCTION),
};
