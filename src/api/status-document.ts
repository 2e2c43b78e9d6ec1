import type { CopiedResource, MeshResource } from '../kvstore/codec/keys.ts';
import type { DatapathDocument } from './datapath-document.ts';

export interface ReadProgress {
  /** All changes up to this revision of the kvstore were received; absent before the first list. */
  readonly revision?: number | undefined;
  /** Bytes that were received and are not yet applied. */
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

/** Status of one resource that is read from a cluster. */
export interface StoreDocument extends ReadProgress {
  readonly resource: CopiedResource;
  readonly state: (typeof STORE_STATES)[number];
  /** True if its list was complete once. */
  readonly complete: boolean;
  readonly keys: number;
  /** Number of keys whose current value is rejected. */
  readonly rejected: number;
  /** Number of lists. All except the first are relists. */
  readonly lists: number;
  readonly failures: number;
  /** The last failure, even if a later attempt succeeded. */
  readonly lastFailure?: string | undefined;
  readonly lastFailureAt?: string | undefined;
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
export interface ClusterDocument extends ReadProgress {
  readonly name: string;
  readonly local: boolean;
  /** 0 if the cluster has no id or it is not known yet. */
  readonly id: number;
  readonly state: string;
  /** True if the state of the cluster is complete and its kvstore answers. */
  readonly ready: boolean;
  /** Last time the cluster was ready, ISO 8601, if it is not ready now. The state of that time is served. */
  readonly knownAt?: string | undefined;
  /** Number of keys by resource. Resources that are not followed are absent. */
  readonly keys: Readonly<Partial<Record<MeshResource, number>>>;
  /** Resources that have not been complete yet. */
  readonly missing: readonly MeshResource[];
  /** Values rejected since the cluster joined. */
  readonly rejected: number;
  /** True if the kvstore answers. */
  readonly connected: boolean;
  /** Time of the last change of `connected`, ISO 8601. */
  readonly connectedSince: string;
  readonly failures: number;
  /** The last failure, even if a later attempt succeeded. */
  readonly lastFailure?: string | undefined;
  readonly lastFailureAt?: string | undefined;
}

/** A step of the agent's start. */
export interface StepDocument {
  readonly name: string;
  /**
   * `overdue`: no progress within the time limit, so the start continued without the step. `hanging`: the step did not
   * stop in time and was abandoned.
   */
  readonly state: 'pending' | 'running' | 'done' | 'overdue' | 'failed' | 'stopping' | 'stopped' | 'hanging';
  /** Duration of the step; if it is running, its duration so far. */
  readonly ms?: number | undefined;
  /** Time since the last progress, if the step is running. */
  readonly idleMs?: number | undefined;
  /** Pending conditions of a running step, one sentence each. */
  readonly waitsFor: readonly string[];
  readonly failure?: string | undefined;
}

/** State of the checkpoints, which an agent restores after a restart. */
export interface CheckpointDocument {
  readonly folder: string;
  /** Clusters with restored state that is not confirmed, and its age. */
  readonly restored: readonly {
    readonly cluster: string;
    readonly knownAt: string;
    readonly ageSeconds: number;
  }[];
  /** Number of checkpoints written since the start of the agent. */
  readonly written: number;
  /** Size of the last checkpoint. */
  readonly bytes?: number | undefined;
  /** ISO 8601. */
  readonly writtenAt?: string | undefined;
  /** Failure of the last attempt. */
  readonly failure?: string | undefined;
}

/** Status of a kind of Kubernetes objects. */
export interface KindDocument {
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
  /** The resource version up to which changes were received; absent before the first list. */
  readonly resourceVersion?: string | undefined;
  /** Number of completed lists. All except the first are relists. */
  readonly lists: number;
  readonly bookmarks: number;
  /** Time since the last message of the server for this kind: the maximum age of the state. */
  readonly lagMs?: number | undefined;
  /** Time since changes are no longer received because a list or watch failed. */
  readonly behindMs?: number | undefined;
  /** Time until the next attempt after a failure. */
  readonly retryInMs?: number | undefined;
  readonly failures: number;
  /** The last failure, even if a later attempt succeeded. */
  readonly lastFailure?: string | undefined;
  /** ISO 8601. */
  readonly lastFailureAt?: string | undefined;
}

/** Status of a followed Kubernetes API server. */
export interface KubernetesDocument {
  readonly server: string;
  /** True if the initial lists of all required kinds have been applied. */
  readonly synced: boolean;
  /** Source of each group of data: Kubernetes (`following`) or a kvstore (`resting`). */
  readonly handover: Readonly<Record<'nodes' | 'ip' | 'identities', 'following' | 'withdrawing' | 'resting'>>;
  readonly kinds: readonly KindDocument[];
}

/** Status of the recorded history. */
export interface HistoryStatusDocument {
  /** Oldest time of which the state can be queried, ISO 8601; absent before the end of the initial sync. */
  readonly heldFrom?: string | undefined;
  /** Number of records that are held. */
  readonly held: number;
  /** Memory of the records in bytes, and its maximum. */
  readonly bytes: number;
  readonly maxBytes: number;
  /** Records by kind since the start of the agent. */
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
  /** Files that could not be read and were dropped. */
  readonly damaged: number;
  /** Failure of the last write, if it failed. Changes are then held in memory only. */
  readonly failure?: string | undefined;
}

export interface TapeDocument {
  readonly folder: string;
  /** Size of the files in bytes, and its maximum. */
  readonly bytes: number;
  readonly maxBytes: number;
  /** Lines since the start, and those that were lost because of a failure. */
  readonly lines: number;
  readonly lost: number;
  /** Failure of the last write, if it failed. Input is then not recorded. */
  readonly failure?: string | undefined;
}

/** Status of an agent as JSON. */
export interface StatusDocument {
  readonly cluster: string;
  readonly clusterID: number;
  readonly kvstore: string;
  /** Steps of the start, in order. */
  readonly steps: readonly StepDocument[];
  /** Duration of the initial sync; undefined until it is done. */
  readonly syncedMs?: number | undefined;
  /** Clusters by name, the local cluster first. */
  readonly clusters: readonly ClusterDocument[];
  /** Current problems of the files of `--kvstore-config` and `--clustermesh-config`, one sentence each. */
  readonly configProblems: readonly string[];
  /** Present if a Kubernetes API server is followed. */
  readonly kubernetes?: KubernetesDocument | undefined;
  /** Present with `--state-dir`. */
  readonly checkpoint?: CheckpointDocument | undefined;
  /** Present if a history is recorded. */
  readonly history?: HistoryStatusDocument | undefined;
  /** Present with `--tape`. */
  readonly tape?: TapeDocument | undefined;
  /** Present with `--datapath`. */
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
    readonly unknown: number;
    readonly listenerFaults: number;
  };
  readonly rejected: {
    readonly total: number;
    readonly byReason: Readonly<Record<string, number>>;
    /** The last rejections, oldest first. */
    readonly recent: readonly string[];
  };
}

/** The part of the status that `/v1/clustermesh` returns. */
export type ClustermeshDocument = Pick<
  StatusDocument,
  'cluster' | 'clusterID' | 'clusters' | 'configProblems' | 'steps'
>;
