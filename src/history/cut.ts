import { copyRegister, formatKey, type PrefixRegister } from '../net/prefix.ts';
import type { PastPrefix } from './prefix-timeline.ts';
import type { RecordPlace } from './records.ts';
import type { Held, Moment, PastClaim, Uncertainty } from './types.ts';

/** The place of a moment between the records. */
export interface Cut {
  readonly ms: number;
  /** The sequence number of the first later record. Undefined: records with a time after `ms` are later. */
  readonly endSequence: number | undefined;
}

/** Returns a function that tells if a record is later than a cut. It reads lengths only in the segment of the cut. */
export function isLaterThan({ ms, endSequence }: Cut): (place: RecordPlace) => boolean {
  if (endSequence === undefined) return (place) => place.ms > ms;
  return ({ segment, position }) =>
    segment.firstSequence >= endSequence ||
    (segment.endSequence > endSequence && position >= segment.positionOf(endSequence));
}

function cidrOf(key: Readonly<PrefixRegister>): string {
  return formatKey({ ...copyRegister(key), form: 'cidr' });
}

/** Returns the answer for a prefix at a moment that is not held. */
export function unheldMoment(
  key: Readonly<PrefixRegister>,
  held: Held,
  reason: Uncertainty | undefined,
): Moment {
  const none = { claims: [], effective: undefined, decidedBy: undefined };
  const times = { effectiveSince: undefined, effectiveUntil: undefined };
  const certainty = { certain: false, claimsComplete: false, reason };
  return { at: held.from, prefix: cidrOf(key), ...none, ...times, ...certainty, held };
}

/** The claims on a prefix at a moment, and what is known of them. */
export interface MomentParts {
  readonly ms: number;
  readonly past: PastPrefix;
  /** Returns the wall time of a time of the life. */
  readonly wallOf: (ms: number) => number;
  readonly claimsComplete: boolean;
  /** Why the answer is not certain. */
  readonly reason: Uncertainty | undefined;
  readonly held: Held;
}

/** Returns the answer for a prefix at a moment, with wall times. */
export function momentOf(
  key: Readonly<PrefixRegister>,
  { ms, past, wallOf, claimsComplete, reason, held }: MomentParts,
): Moment {
  const wall = (time: number | undefined): number | undefined =>
    time === undefined ? undefined : wallOf(time);
  const claims = past.claims.map(
    (claim): PastClaim => ({ ...claim, since: wall(claim.since), until: wall(claim.until) }),
  );
  return {
    at: wallOf(ms),
    prefix: cidrOf(key),
    claims,
    effective: claims[0],
    decidedBy: past.decidedBy,
    effectiveSince: wall(past.effectiveSince),
    effectiveUntil: wall(past.effectiveUntil),
    certain: reason === undefined,
    claimsComplete,
    reason,
    held,
  };
}
