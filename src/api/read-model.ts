import type { DelayStatus } from '../base/delay-counts.ts';
import type { RejectionStatus } from '../base/rejection.ts';
import type { Labels } from '../identity/labels.ts';
import type { IPCache } from '../ipcache/ipcache.ts';
import type { NodeManager } from '../nodemanager/node-manager.ts';
import type { ServiceCache } from '../servicecache/service-cache.ts';
import type { DatapathStepDocument } from './datapath-document.ts';
import type { StatusDocument } from './status-document.ts';

/** How old something is that a checkpoint has said, and no source has said again. */
export interface RestoredDocument {
  /** When it was known, ISO 8601. */
  readonly knownAt: string;
  readonly ageSeconds: number;
}

/** An identity that some cluster has allocated, or a reserved one. */
export interface KnownIdentity {
  readonly identity: number;
  readonly labels: Labels;
  /** Whose identity it is; '' for a reserved one. */
  readonly cluster: string;
}

/** Says how old what is restored of a cluster (`''`: the own one) is; `undefined` when nothing of it is. */
export type RestoredOf = (cluster: string) => RestoredDocument | undefined;

/** What is where, and what identities are called. */
export interface Knowledge {
  readonly ipcache: IPCache;
  readonly services: ServiceCache;
  readonly nodes: NodeManager;
  /** The labels of an identity, where they are known. */
  readonly labelsOf: (identity: number) => Labels | undefined;
  readonly restoredOf: RestoredOf;
}

/** How the watch of one resource of a cluster does: of its `WatchStatus` what is measured. */
export interface WatchFigures {
  readonly queuedBytes: number;
  readonly listings: number;
  readonly resumptions: number;
  readonly failures: number;
  readonly delays: DelayStatus;
}

/** How the client of a cluster's kvstore does: of its `BackendStatus` what is measured. */
export interface KvstoreFigures {
  /** How many there were, by outcome: `ok`, or the code of an error. */
  readonly requests: Readonly<Record<string, number | undefined>>;
  readonly leases: number;
  readonly leasesLost: number;
}

/** How a cluster is followed: of its `RemoteClusterStatus` what is measured. */
export interface ClusterFigures {
  readonly name: string;
  readonly firstSyncMs: number | undefined;
  readonly lastSyncMs: number | undefined;
  /** Undefined while there is no client. */
  readonly kvstore: KvstoreFigures | undefined;
  /** One for each resource that is being read. */
  readonly watches: readonly WatchFigures[];
}

/** A datapath that an agent steers, as far as it can be asked. */
export interface DatapathModel {
  /** Where the kernel differs from the caches now, in the order in which it would be written. */
  diff(): Promise<readonly DatapathStepDocument[]>;
  /** Makes it equal; resolves to what has differed. */
  repair(): Promise<readonly DatapathStepDocument[]>;
}

/** What the API shows: the agent, as far as it can be asked. Reads only, but for repairs; each is synchronous. */
export interface ReadModel extends Knowledge {
  /** Undefined for an agent that steers none. */
  readonly datapath?: DatapathModel | undefined;
  /** Every identity whose labels are known, in no order that is promised. */
  identities(): Iterable<KnownIdentity>;
  /** Of an identity whose labels are only restored. */
  readonly restoredIdentity: (identity: number) => RestoredDocument | undefined;
  /** Every cluster that is followed. */
  figures(): Iterable<ClusterFigures>;
  status(): StatusDocument;
  rejections(): RejectionStatus;
}
