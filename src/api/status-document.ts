import type { MeshResource } from '../kvstore/codec/keys.ts';
import type { DatapathDocument } from './datapath-document.ts';

/** One cluster of the mesh, as plain data. */
export interface ClusterDocument {
  readonly name: string;
  readonly own: boolean;
  /** 0 when it has none, or is not known yet. */
  readonly id: number;
  readonly state: string;
  /** Whether what is known of it is complete and follows its kvstore now. */
  readonly ready: boolean;
  /** While it is not, but was before: when that was, ISO 8601. What was known then is served. */
  readonly knownAt?: string | undefined;
  /** Keys that are held, by resource; a resource that is not followed is left out. */
  readonly keys: Readonly<Partial<Record<MeshResource, number>>>;
  /** Resources that have not been complete yet. */
  readonly missing: readonly MeshResource[];
  /** Values rejected since the cluster joined. */
  readonly rejected: number;
  /** Whether its kvstore answers now. */
  readonly connected: boolean;
  /** Since when `connected` is what it is, ISO 8601. */
  readonly connectedSince: string;
  readonly failures: number;
  /** It may have been overcome since. */
  readonly lastFailure?: string | undefined;
  readonly lastFailureAt?: string | undefined;
}

/** A step of the agent's start. */
export interface StepDocument {
  readonly name: string;
  /**
   * `overdue`: it stood still for so long that the start went on without it. `hanging`: it was to stop, and was left
   * behind.
   */
  readonly state: 'pending' | 'running' | 'done' | 'overdue' | 'failed' | 'stopping' | 'stopped' | 'hanging';
  /** How long it took, or has taken so far. */
  readonly ms?: number | undefined;
  /** While it lasts: since it came further. */
  readonly idleMs?: number | undefined;
  /** While it lasts: what it waits for, a sentence each. */
  readonly waitsFor: readonly string[];
  readonly failure?: string | undefined;
}

/** What an agent keeps of what it knows, for after a restart. */
export interface CheckpointDocument {
  readonly folder: string;
  /** Clusters of which something is only restored, and when that was known. */
  readonly restored: readonly {
    readonly cluster: string;
    readonly knownAt: string;
    readonly ageSeconds: number;
  }[];
  /** Checkpoints since the agent was started. */
  readonly written: number;
  /** Of the last one. */
  readonly bytes?: number | undefined;
  /** ISO 8601. */
  readonly writtenAt?: string | undefined;
  /** Why the last attempt has failed. */
  readonly failure?: string | undefined;
}

/** A kind of Kubernetes object that is followed. */
export interface KindDocument {
  /** Plural: `ciliumendpoints`. */
  readonly name: string;
  /** What its reflector is doing; `resting`: a kvstore says it, or it is not asked for. */
  readonly state: 'listing' | 'watching' | 'waiting' | 'missing' | 'forbidden' | 'stopped' | 'resting';
  /** Whether all that there is has been applied or refused. */
  readonly complete: boolean;
  /** Objects that say something. */
  readonly objects: number;
  /** Objects and fields that were refused. */
  readonly rejected: number;
  readonly events: number;
  /** ISO 8601. */
  readonly lastEventAt?: string | undefined;
  /** Lists that were completed: all but the first are relists. */
  readonly lists: number;
  readonly bookmarks: number;
  /** Since the server said anything of it: what is known may be so old. */
  readonly lagMs?: number | undefined;
  readonly failures: number;
  readonly lastFailure?: string | undefined;
}

/** A Kubernetes API server that is followed. */
export interface KubernetesDocument {
  readonly server: string;
  /** Whether all that is waited for has been applied. */
  readonly synced: boolean;
  /** Whether Kubernetes says it (`following`), or a kvstore does (`resting`). */
  readonly handover: Readonly<Record<'nodes' | 'ip' | 'identities', 'following' | 'withdrawing' | 'resting'>>;
  readonly kinds: readonly KindDocument[];
}

/** How an agent stands, as plain data: fit for JSON. */
export interface StatusDocument {
  readonly cluster: string;
  readonly clusterID: number;
  readonly kvstore: string;
  /** Of the start, in order. */
  readonly steps: readonly StepDocument[];
  /** How long the first sync took; undefined while it lasts. */
  readonly syncedMs?: number | undefined;
  /** The own cluster first, the others by name. */
  readonly clusters: readonly ClusterDocument[];
  /** What is wrong with the files of `--kvstore-config` and `--clustermesh-config` now, a sentence for each. */
  readonly configProblems: readonly string[];
  /** With a Kubernetes API server, once it is followed. */
  readonly kubernetes?: KubernetesDocument | undefined;
  /** With `--state-dir`. */
  readonly checkpoint?: CheckpointDocument | undefined;
  /** With `--datapath`. */
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
    /** The last ones, oldest first. */
    readonly recent: readonly string[];
  };
}
