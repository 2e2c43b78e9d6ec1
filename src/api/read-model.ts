import type { LatencyStatus } from '../base/latency-histogram.ts';
import type { Rejection, RejectionStatus } from '../base/rejection.ts';
import type { History } from '../history/history.ts';
import type { IPCache } from '../ipcache/ipcache.ts';
import type { ExplainedClaim } from '../ipcache/types.ts';
import type { ClusterIdentity } from '../model/identity-cache.ts';
import type { Labels } from '../model/labels.ts';
import type { NodeManager } from '../nodemanager/node-manager.ts';
import type { EndpointSlice } from '../servicecache/backend.ts';
import type { Service } from '../servicecache/service.ts';
import type { ServiceCache } from '../servicecache/service-cache.ts';
import type { DatapathStepDocument, KernelEntryDocument } from './datapath-document.ts';
import type { OriginDocument } from './documents.ts';
import type { ClusterDetailDocument, StatusDocument } from './status-document.ts';

/** Age of state restored from a checkpoint, which no source has confirmed. */
export interface RestoredDocument {
  /** Time of the checkpointed state, ISO 8601. */
  readonly knownAt: string;
  readonly ageSeconds: number;
}

/** Returns the age of a cluster's restored state; `undefined` if it has none. The local cluster is `''`. */
export type RestoredOf = (cluster: string) => RestoredDocument | undefined;

/** The engines, and the labels of identities. */
export interface EngineViews {
  readonly ipcache: IPCache;
  readonly services: ServiceCache;
  readonly nodes: NodeManager;
  /** Returns the labels of an identity, if they are known. */
  readonly labelsOf: (identity: number) => Labels | undefined;
  readonly restoredOf: RestoredOf;
}

/** The fields of a `WatchStatus` for metrics. */
export interface WatchMetrics {
  readonly queuedBytes: number;
  readonly listings: number;
  readonly streams: number;
  readonly failures: number;
  readonly delays: LatencyStatus;
}

/** The fields of a `BackendStatus` for metrics. */
export interface KvstoreMetrics {
  /** Number of requests by outcome: `ok` or an error code. */
  readonly requests: Readonly<Record<string, number | undefined>>;
  readonly leases: number;
  readonly leasesLost: number;
}

/** The fields of a `RemoteClusterStatus` for metrics. */
export interface ClusterMetrics {
  readonly name: string;
  readonly firstSyncMs: number | undefined;
  readonly lastSyncMs: number | undefined;
  /** Undefined if there is no client. */
  readonly kvstore: KvstoreMetrics | undefined;
  /** One item per watched resource. */
  readonly watches: readonly WatchMetrics[];
}

/** The datapath as the API uses it. */
export interface DatapathModel {
  /** Returns the current entry of a prefix in the kernel; `undefined` if the datapath has no ipcache map. */
  kernelEntry(prefix: string): KernelEntryDocument | undefined;
  /** Returns the current differences between the kernel and the caches, in the order of their writes. */
  diff(): Promise<readonly DatapathStepDocument[]>;
  /** Makes the kernel equal to the caches. Resolves to the differences. */
  repair(): Promise<readonly DatapathStepDocument[]>;
}

/** A parsed Kubernetes object, or the first rejection if the object is unusable. */
export type ParsedManifest =
  | { readonly service: Service }
  | { readonly slice: EndpointSlice }
  | { readonly rejected: Rejection };

/** The agent's state as the API reads it. All methods are synchronous and read-only, except those of `datapath`. */
export interface ReadModel extends EngineViews {
  /** Undefined if no history is recorded. */
  readonly history?: History | undefined;
  /** Undefined if no datapath is configured. */
  readonly datapath?: DatapathModel | undefined;
  /** Parses a Kubernetes Service, Endpoints or EndpointSlice. Absent if the process reads no manifests. */
  readonly parseManifest?: ((object: Readonly<Record<string, unknown>>) => ParsedManifest) | undefined;
  /** Returns all identities with known labels, unordered. */
  identities(): Iterable<ClusterIdentity>;
  /** Returns the cluster that allocated an identity; empty for a reserved or unknown one. */
  readonly clusterOf: (identity: number) => string;
  /** Returns the origin of a current claim; not of one in the history. */
  readonly originOf: (claim: Pick<ExplainedClaim, 'key' | 'source' | 'owner' | 'k8s'>) => OriginDocument;
  /** Returns the age of an identity whose labels were restored and not confirmed. */
  readonly restoredIdentity: (identity: number) => RestoredDocument | undefined;
  /** Returns the names of the followed clusters, the local one first. */
  clusterNames(): readonly string[];
  /** Returns the status of a cluster with its stores; `undefined` if it is not followed. */
  cluster(name: string): ClusterDetailDocument | undefined;
  /** Returns the metrics of all followed clusters. */
  clusterMetrics(): Iterable<ClusterMetrics>;
  status(): StatusDocument;
  rejections(): RejectionStatus;
}
