import type { CompleteClaim } from '../ipcache/row-reader.ts';
import type { ClaimWriter, DecidingRule } from '../ipcache/types.ts';
import type { PastFields } from './document-change.ts';

/** A moment: wall time in milliseconds since the Unix epoch, or directly after the record with this sequence number. */
export type When = number | { readonly sequence: number };

/** The interval of wall time for which changes are retained, in milliseconds since the Unix epoch. */
export interface RetainedInterval {
  readonly from: number;
  readonly to: number;
}

/**
 * Why an answer is not certain. `not-retained`: the history no longer contains the changes of that time. `lost`:
 * changes after that time were not recorded. `cluster-incomplete`: a cluster or a kind of Kubernetes objects was
 * incomplete. `withdrawing`: entries of a cluster were being removed. `agent-not-running`: no agent ran, or the records
 * of an earlier agent do not prove the answer. `clock`: the clock was changed around that time, or the time is in the
 * future.
 */
export const UNCERTAINTIES = [
  'not-retained',
  'cluster-incomplete',
  'agent-not-running',
  'withdrawing',
  'lost',
  'clock',
] as const;

/** One of {@link UNCERTAINTIES}. */
export type Uncertainty = (typeof UNCERTAINTIES)[number];

/** Whether an answer is certain, and why not. */
export interface Certainty {
  readonly certain: boolean;
  /** Present if the answer is not certain. */
  readonly reason: Uncertainty | undefined;
  /**
   * The causes of the reason: the incomplete or withdrawn clusters, the incomplete kinds of Kubernetes objects
   * (`Kubernetes pods`), or the keys of lost documents. At most 10; empty if there are none.
   */
  readonly subjects: readonly string[];
}

/** Maximum number of {@link Certainty.subjects}. */
export const MAX_SUBJECTS = 10;

/** A claim as it was at a moment. Times are wall time in milliseconds. */
export interface PastClaim extends CompleteClaim {
  /** Canonical key, as in `KeyedEntry`. */
  readonly key: string;
  /** True for the strongest claim of its key. It is not visible if the key is a CIDR which an endpoint shadows. */
  readonly effective: boolean;
  /** Time of the change that set the claim; undefined if it was set before the retained changes. */
  readonly since: number | undefined;
  /** Time of the change that ended the claim; undefined if the claim is live. */
  readonly until: number | undefined;
}

/** The claims on a prefix at a moment. Certain if it is proven that `effective` was effective, or that nothing was. */
export interface PrefixMoment extends Certainty {
  /** Wall time of the moment. */
  readonly at: number;
  /** Canonical CIDR of the prefix. */
  readonly prefix: string;
  /** All claims of that moment, the visible one first. Empty if there were none, or if the moment is not retained. */
  readonly claims: readonly PastClaim[];
  /** The effective claim of the visible key of the prefix: the first of `claims`. */
  readonly effective: PastClaim | undefined;
  /** Undefined if there were no claims, or if only one is known and `claimsComplete` is false. */
  readonly decidedBy: DecidingRule | undefined;
  /**
   * Time from which this claim was effective without interruption; undefined if that is before the retained changes, or
   * if the moment is not retained.
   */
  readonly effectiveSince: number | undefined;
  /** Time until which this claim was effective; undefined if it is effective now, or if the moment is not retained. */
  readonly effectiveUntil: number | undefined;
  /** False for a moment of an earlier process: only claims in records are known. */
  readonly claimsComplete: boolean;
  readonly retained: RetainedInterval;
}

/** The kvstore or Kubernetes list that a change came from, and its revision. */
export interface ChangeCause {
  /** Such as `atlantic` or `k8s`. */
  readonly store: string;
  /** Revision of the store; empty if unknown. */
  readonly revision: string;
  /** Kind of the Kubernetes object that changed. */
  readonly kind?: string | undefined;
  /** True if all state of the store was withdrawn, because its cluster left or was replaced. */
  readonly withdrawal?: boolean | undefined;
}

/** A change of one claim on a prefix. */
export interface PrefixRecord {
  readonly kind: 'prefix';
  readonly sequence: number;
  /** Wall time in milliseconds. */
  readonly at: number;
  readonly key: string;
  readonly writer: ClaimWriter;
  readonly before: CompleteClaim | undefined;
  readonly after: CompleteClaim | undefined;
  /**
   * `effective` of {@link PrefixMoment} before and after the change. Undefined in lists of all records, or if the
   * claims of that time are not certain.
   */
  readonly effective:
    | { readonly before: CompleteClaim | undefined; readonly after: CompleteClaim | undefined }
    | undefined;
  readonly cause: ChangeCause | undefined;
}

/** A change of a part of a service, or of a claim on a node. */
export interface DocumentRecord {
  readonly kind: 'service' | 'node';
  readonly sequence: number;
  readonly at: number;
  /** `namespace/name` of a service, `cluster/name` of a node. */
  readonly key: string;
  /** The cluster or the source that changed it. */
  readonly writer: string;
  /** The former values of the changed fields; undefined if the document is new. */
  readonly before: unknown;
  /** Their new values; undefined if the document was deleted. */
  readonly after: unknown;
  readonly cause: ChangeCause | undefined;
}

/** A service or a node at a moment. */
export interface DocumentMoment extends Certainty {
  /** Wall time of the moment. */
  readonly at: number;
  /** Its JSON fields; undefined if it did not exist, or if the moment is not retained. */
  readonly document: PastFields | undefined;
  /** Time of the last change before the moment; undefined if the history does not contain one. */
  readonly since: number | undefined;
  /**
   * Time of the first change after the moment. If there is none, the end of the records of an earlier process, or
   * undefined for the current one.
   */
  readonly until: number | undefined;
  readonly retained: RetainedInterval;
}

/**
 * The kind of a mark: start and stop of the recording; states of a cluster, from `joined` to `withdrawn`; a changed
 * setting; a failed call of a handler; a step of the wall clock; lost changes.
 */
export type MarkKind =
  | 'start'
  | 'stop'
  | 'joined'
  | 'left'
  | 'complete'
  | 'unreachable'
  | 'reachable'
  | 'withdrawing'
  | 'withdrawn'
  | 'setting'
  | 'handler-failed'
  | 'clock-set'
  | 'lost';

/** An event that is not the change of one entry. */
export interface MarkRecord {
  readonly kind: 'mark';
  readonly sequence: number;
  readonly at: number;
  readonly mark: MarkKind;
  /** The cluster, setting or handler; empty if there is none. */
  readonly subject: string;
  readonly detail: string;
}

/** One item of the history. */
export type HistoryRecord = PrefixRecord | DocumentRecord | MarkRecord;

/** A range of the history, newest first. */
export interface HistoryRange {
  /** Wall times in milliseconds, both inclusive; default: the retained interval. */
  readonly from?: number | undefined;
  readonly to?: number | undefined;
  /** Only records with this sequence number or a higher one. */
  readonly fromSequence?: number | undefined;
  /** Only records with lower sequence numbers. To continue, pass the number of the last record that was read. */
  readonly beforeSequence?: number | undefined;
  /**
   * Only changes of prefixes that had this identity before or after the change, in the changed claim. All records of
   * the range are decoded to find them, 1 µs each.
   */
  readonly identity?: number | undefined;
  /** Maximum number of records. */
  readonly limit?: number | undefined;
}
