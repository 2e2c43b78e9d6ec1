import type { CopiedResource, MeshResource } from '../kvstore/codec/keys.ts';
import type { DatapathDocument } from './datapath-document.ts';

/** How far a kvstore was read. */
export interface ReadProgress {
  readonly revision?: number | undefined;
  /** Bytes received and not yet applied. */
  readonly queuedBytes?: number | undefined;
  /**
   * 99 of 100 changes since the kvstore was connected were applied within this time after their arrival, in
   * milliseconds: one of `LATENCY_BOUNDS_MS`, or null if above all of them. Absent if there was no change. Items of
   * lists are not counted.
   */
  readonly p99Ms?: number | null | undefined;
}

/** States of the watch of a resource. `stopped`: its kvstore is not followed. For the others see `WatchState`. */
export const STORE_STATES = [
  'listing',
  'watching',
  'waiting',
  'forbidden',
  'ended',
  'diverged',
  'stopped',
] as const;

/** The failures of a retried operation. */
interface FailureFields {
  readonly failures: number;
  /** The last failure, even if a later attempt succeeded. */
  readonly lastFailure?: string | undefined;
  /** ISO 8601. */
  readonly lastFailureAt?: string | undefined;
}

/** Status of one resource read from a cluster. */
export interface StoreDocument extends FailureFields, ReadProgress {
  readonly resource: CopiedResource;
  readonly state: (typeof STORE_STATES)[number];
  readonly complete: boolean;
  readonly keys: number;
  readonly rejected: number;
  /** Number of lists. All except the first are relists. */
  readonly lists: number;
}

export interface ClusterDetailDocument extends ClusterDocument {
  readonly stores: readonly StoreDocument[];
  /** The configuration of the cluster in its kvstore; absent until it is read, and for clusters older than 1.13. */
  readonly config?:
    | {
        readonly id: number;
        /** Capabilities by name, unknown ones included. */
        readonly capabilities: Readonly<Record<string, boolean | number | string>>;
      }
    | undefined;
}

/** Status of a cluster of the mesh. */
export interface ClusterDocument extends FailureFields, ReadProgress {
  readonly name: string;
  readonly local: boolean;
  readonly id: number;
  readonly state: string;
  readonly ready: boolean;
  readonly knownAt?: string | undefined;
  readonly keys: Readonly<Partial<Record<MeshResource, number>>>;
  /** Resources whose initial sync is not done. */
  readonly missing: readonly MeshResource[];
  /** Values rejected since the cluster joined. */
  readonly rejected: number;
  /** True if the kvstore answers. */
  readonly connected: boolean;
  /** Time of the last change of `connected`, to true or to false. */
  readonly connectionChangedAt: string;
  /** True if its services were withdrawn because their TTL has ended; undefined for the local cluster. */
  readonly servicesExpired?: boolean | undefined;
  /** Heartbeat in the kvstore; undefined if it was not read. */
  readonly heartbeat?: 'never' | 'fresh' | 'stale' | undefined;
}

/** A step of the agent's start. */
export interface StepDocument {
  readonly name: string;
  /**
   * `overdue`: it made no progress in time, so the start continued without it. `hanging`: it did not stop in time.
   */
  readonly state: 'pending' | 'running' | 'done' | 'overdue' | 'failed' | 'stopping' | 'stopped' | 'hanging';
  readonly ms?: number | undefined;
  /** Time since the last progress of a running step. */
  readonly idleMs?: number | undefined;
  /** Pending conditions of a running step. */
  readonly waitsFor: readonly string[];
  readonly failure?: string | undefined;
}

/** State of the checkpoints, which an agent restores after a restart. */
export interface CheckpointDocument {
  readonly folder: string;
  readonly restored: readonly {
    readonly cluster: string;
    readonly knownAt: string;
    readonly ageSeconds: number;
  }[];
  readonly written: number;
  /** Size of the last checkpoint. */
  readonly bytes?: number | undefined;
  /** ISO 8601. */
  readonly writtenAt?: string | undefined;
  readonly failure?: string | undefined;
}

/** Status of a kind of Kubernetes objects. */
export interface KindDocument extends FailureFields {
  /** Plural name, such as `ciliumendpoints`. */
  readonly name: string;
  /** State of its reflector. `resting`: a kvstore provides the data, or no consumer needs it. */
  readonly state: 'listing' | 'watching' | 'waiting' | 'missing' | 'forbidden' | 'stopped' | 'resting';
  /** True if all objects have been applied or rejected. */
  readonly complete: boolean;
  /** Number of objects with an effect. */
  readonly objects: number;
  /** Number of rejected objects and fields. */
  readonly rejected: number;
  readonly events: number;
  /** ISO 8601. */
  readonly lastEventAt?: string | undefined;
  readonly resourceVersion?: string | undefined;
  /** Number of completed lists. All except the first are relists. */
  readonly lists: number;
  readonly bookmarks: number;
  /** Time since the last message of the server for this kind. */
  readonly lagMs?: number | undefined;
  /** Time since a list or watch failed. Changes are not received until it succeeds. */
  readonly behindMs?: number | undefined;
  readonly retryInMs?: number | undefined;
}

/** Status of a followed Kubernetes API server. */
export interface KubernetesDocument {
  readonly server: string;
  /** True if the initial lists of all required kinds have been applied. */
  readonly synced: boolean;
  /**
   * Source of each group of data. `following`: Kubernetes. `resting`: a kvstore. `withdrawing`: a kvstore, and the
   * claims of Kubernetes are being deleted.
   */
  readonly handover: Readonly<Record<'nodes' | 'ip' | 'identities', 'following' | 'withdrawing' | 'resting'>>;
  readonly kinds: readonly KindDocument[];
}

export interface HistoryStatusDocument {
  /** Oldest time of which the state can be queried, ISO 8601; absent before the end of the initial sync. */
  readonly retainedFrom?: string | undefined;
  readonly recordsInMemory: number;
  /** Memory of the records in bytes, and its maximum. */
  readonly bytes: number;
  readonly maxBytes: number;
  /** Records since the start, by kind. */
  readonly records: Readonly<Record<string, number>>;
  /** Changes that were not recorded, by reason. */
  readonly lost: Readonly<Record<string, number>>;
  /** Present if the history is stored on disk. */
  readonly disk?: HistoryDiskDocument | undefined;
}

export interface HistoryDiskDocument {
  readonly folder: string;
  /** Size of the files in bytes, and its maximum. */
  readonly bytes: number;
  readonly maxBytes: number;
  /** Number of files that could not be read and were dropped. */
  readonly damaged: number;
  readonly failure?: string | undefined;
}

export interface TapeDocument {
  readonly folder: string;
  /** Size of the files in bytes, and its maximum. */
  readonly bytes: number;
  readonly maxBytes: number;
  /** Lines since the start, and lines lost because of a failure. */
  readonly lines: number;
  readonly lost: number;
  readonly failure?: string | undefined;
}

/** Status of an agent as JSON. */
export interface StatusDocument {
  readonly cluster: string;
  readonly clusterID: number;
  readonly kvstore: string;
  readonly steps: readonly StepDocument[];
  readonly syncedMs?: number | undefined;
  /** Clusters by name, the local cluster first. */
  readonly clusters: readonly ClusterDocument[];
  /** Current problems of `--kvstore-config`, `--clustermesh-config` and `--cluster-id`, one sentence each. */
  readonly configProblems: readonly string[];
  readonly kubernetes?: KubernetesDocument | undefined;
  readonly checkpoint?: CheckpointDocument | undefined;
  readonly history?: HistoryStatusDocument | undefined;
  readonly tape?: TapeDocument | undefined;
  readonly datapath?: DatapathDocument | undefined;
  readonly ipcache: {
    readonly prefixes: number;
    readonly shadowed: number;
    readonly overruled: number;
    readonly revision: number;
    readonly listenerFaults: number;
  };
  readonly nodes: {
    readonly nodes: number;
    readonly overruled: number;
    readonly heldBack: readonly string[];
  };
  readonly services: {
    readonly announced: number;
    readonly backends: number;
    readonly contested: number;
    /** Services with endpoints or remote offers, but without a Service. */
    readonly unknown: number;
    readonly listenerFaults: number;
  };
  readonly rejected: {
    readonly total: number;
    readonly byReason: Readonly<Record<string, number>>;
    /** The last rejections, oldest first. */
    readonly recent: readonly string[];
    /** Time of the last one, ISO 8601. Undefined if there is none, and from an agent of an earlier version. */
    readonly lastAt?: string | undefined;
  };
}

/** The part of the status in `/v1/clustermesh`. */
export type ClustermeshDocument = Pick<
  StatusDocument,
  'cluster' | 'clusterID' | 'clusters' | 'configProblems' | 'steps'
>;
