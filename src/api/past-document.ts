import type { Uncertainty } from '../history/types.ts';

/** The interval of the held changes, ISO 8601. */
export interface HeldDocument {
  readonly from: string;
  readonly to: string;
}

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
