import type { DelayStatus } from '../base/delay-counts.ts';
import type { RejectionStatus } from '../base/rejection.ts';
import type { Labels } from '../identity/labels.ts';
import type { IPCache } from '../ipcache/ipcache.ts';
import type { NodeManager } from '../nodemanager/node-manager.ts';
import type { ServiceCache } from '../servicecache/service-cache.ts';
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

/** What is read of a cluster's kvstore, one resource. */
export interface FollowedWatch {
  readonly cluster: string;
  readonly watch: WatchFigures;
}

/** What the API shows: the agent, as far as it can be asked. Reads only; each is synchronous. */
export interface ReadModel extends Knowledge {
  /** Every identity whose labels are known, in no order that is promised. */
  identities(): Iterable<KnownIdentity>;
  /** Of an identity whose labels are only restored. */
  readonly restoredIdentity: (identity: number) => RestoredDocument | undefined;
  /** Every watch that is being read. */
  watches(): Iterable<FollowedWatch>;
  status(): StatusDocument;
  rejections(): RejectionStatus;
}
