import { MAX_SUBJECTS, type Uncertainty } from '../history/types.ts';

/** The interval for which the history has all changes, ISO 8601. */
export interface RetainedDocument {
  readonly from: string;
  readonly to: string;
}

const UNCERTAINTY_TEXTS: Readonly<Record<Uncertainty, string>> = {
  'not-retained': 'the history no longer contains the changes of that time',
  'cluster-incomplete': 'a cluster or a kind of Kubernetes objects was not read completely at that time',
  'agent-not-running': 'no agent was running at that time, or its recorded changes do not prove the answer',
  withdrawing: 'entries of a cluster were being removed at that time',
  lost: 'changes after that time were not recorded',
  clock: 'the system clock was changed around that time',
};

/**
 * Returns why an answer for the time `at` is not certain, as a clause without a full stop, with the incomplete clusters
 * or other subjects. Both times are ISO 8601 or milliseconds.
 */
export function uncertaintyText<T extends string | number>(
  reason: Uncertainty,
  {
    at,
    retained,
    subjects = [],
  }: {
    readonly at: T;
    readonly retained: { readonly to: T };
    readonly subjects?: readonly string[] | undefined;
  },
): string {
  if (reason === 'clock' && at > retained.to)
    return 'the clock of the agent has not reached that time, or was set back since';
  if (subjects.length === 0) return UNCERTAINTY_TEXTS[reason];
  const others = subjects.length < MAX_SUBJECTS ? '' : ' and others'; // in place of the last one
  const shown = subjects.slice(0, MAX_SUBJECTS - 1).join(', ');
  return `${UNCERTAINTY_TEXTS[reason]} (${shown}${others})`;
}

/** The moment of an answer, and its certainty. */
export interface PastDocument {
  /** ISO 8601. */
  readonly at: string;
  readonly certain: boolean;
  readonly reason?: Uncertainty | undefined;
  /** Present with a `reason` that has subjects: see `Certainty.subjects`. */
  readonly subjects?: readonly string[] | undefined;
  /** False for a time of an earlier process: other claims may have existed, because only recorded ones are known. */
  readonly claimsComplete?: false | undefined;
  readonly retained: RetainedDocument;
  /** The claim was effective from this time on; absent if that was before `retained.from`. */
  readonly effectiveSince?: string | undefined;
  /**
   * The claim was effective until this time. Absent if it still is effective, or was at the end of an earlier process.
   * Services and nodes have the end of the earlier process.
   */
  readonly effectiveUntil?: string | undefined;
}
