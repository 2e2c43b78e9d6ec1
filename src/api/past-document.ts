import type { Uncertainty } from '../history/types.ts';

/** The interval of the held changes, ISO 8601. */
export interface HeldDocument {
  readonly from: string;
  readonly to: string;
}

/** Why an answer is not certain, as a clause. */
export const UNCERTAINTY_TEXTS: Readonly<Record<Uncertainty, string>> = {
  'before-held': 'changes of that time are not held any more',
  'cluster-incomplete': 'a cluster had not delivered all its entries at that time',
  'agent-not-running': 'no agent was running at that time, or none recorded a change that proves it',
  withdrawing: 'entries of a cluster were being removed at that time',
  lost: 'changes after that time were not recorded',
  clock: 'the clock of the machine was set over that time, or the time is in the future',
};

/** The moment of an answer, and its certainty. */
export interface PastDocument {
  /** ISO 8601. */
  readonly at: string;
  readonly certain: boolean;
  /** Why the answer is not certain. */
  readonly reason?: Uncertainty | undefined;
  /** Present if other claims may have existed, because the moment is in the life of an earlier process. */
  readonly claimsComplete?: false | undefined;
  readonly held: HeldDocument;
  /** The claim was effective from this time on; absent if that was before the held changes. */
  readonly effectiveSince?: string | undefined;
  /** Until this time; absent if it still is. */
  readonly effectiveUntil?: string | undefined;
}
