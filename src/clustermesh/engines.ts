import type { Source } from '../identity/source.ts';
import type { Claim, DeleteOptions, Writer } from '../ipcache/types.ts';
import type { ClusterNode } from '../net/cluster-node.ts';
import type { ClusterService, ClusterServiceKey } from '../net/cluster-service.ts';

/** Where IPs and their identities go; `IPCache` is one. Outcomes are the engine's to count. */
export interface IPSink {
  upsert(key: string, claim: Claim): unknown;
  delete(key: string, by: DeleteOptions): unknown;
  withdraw(by: Writer): unknown;
  batch<T>(write: () => T): T;
}

/** Where remote clusters' services go; `ServiceCache` is one. */
export interface ServiceSink {
  mergeExternalServiceUpdate(service: ClusterService): unknown;
  mergeExternalServiceDelete(service: ClusterServiceKey): unknown;
  withdrawCluster(cluster: string): unknown;
}

/** Where nodes go; `NodeManager` is one. */
export interface NodeSink {
  nodeUpdated(node: ClusterNode & { readonly source: Source }): unknown;
  nodeDeleted(node: { readonly cluster: string; readonly name: string; readonly source: Source }): unknown;
  withdraw(by: { readonly source: Source; readonly cluster: string }): unknown;
}

/** The engines that a mesh feeds. One that is left out gets nothing, and its keys are not watched. */
export interface MeshEngines {
  readonly ipcache?: IPSink | undefined;
  readonly services?: ServiceSink | undefined;
  readonly nodes?: NodeSink | undefined;
  /**
   * As the node manager is configured (SEMANTICS 4); default true. A peer that says `host` of an IP means *its*
   * host, which is a `remote-node` here; without remote-node identities all nodes are `host`.
   */
  readonly remoteNodeIdentities?: boolean | undefined;
}
