import { copyRegister, formatKey, type PrefixRegister } from '../net/prefix.ts';
import type { ChangeLog } from './change-log.ts';
import { isFloorOf, uncertaintyAt } from './lives.ts';
import type { PastPrefix } from './prefix-timeline.ts';
import type { RecordPlace } from './records.ts';
import type { Held, Moment, PastClaim, Uncertainty, When } from './types.ts';

/** A position between two records. It represents a moment, whose state is the state after all earlier records. */
export interface Cut {
  readonly ms: number;
  /** Sequence number of the first later record. If undefined, the records with a time after `ms` are later. */
  readonly endSequence: number | undefined;
}

/** The cut of a requested moment. */
export interface RequestedMoment<C extends Cut = Cut> {
  /** Undefined if the moment is not held. */
  readonly cut: C | undefined;
  /** Why answers are not certain; undefined if they are certain. */
  readonly reason: Uncertainty | undefined;
}

/** The result for a moment before the oldest held change. */
export const NOT_HELD: RequestedMoment<never> = { cut: undefined, reason: 'before-held' };

/** Returns the cut of a moment in memory. `now` is the wall time. The caller must have called `checkWall` of the log. */
export function cutIn(log: ChangeLog, when: When, now: number): RequestedMoment {
  if (typeof when === 'object') return cutOfSequence(log, when.sequence);
  const { clock } = log.life;
  const times = clock.timesOf(when);
  const ms = times.at(-1);
  if (ms === undefined) {
    // The clock was set forward over this time. The state is that of the moment when the clock was set.
    const piece = clock.pieces.find((one) => one.ms + one.offset > when);
    return { cut: { ms: (piece?.ms ?? log.life.now()) - 1, endSequence: undefined }, reason: 'clock' };
  }
  if (ms < log.floorMs || !Number.isFinite(ms)) return NOT_HELD;
  const cut = { ms, endSequence: undefined };
  const isUnclear = times.length > 1 || clock.isUnclear(ms) || when > now;
  return { cut, reason: isUnclear ? 'clock' : uncertaintyAt(log, cut) };
}

function cutOfSequence(log: ChangeLog, sequence: number): RequestedMoment {
  const [first] = log.segments;
  // The state before the first record has the preceding sequence number, unless a record of an earlier life has that number.
  const isFloor = first !== undefined && isFloorOf(first, sequence);
  const segment = log.segments.find((one) => sequence >= one.firstSequence && sequence < one.endSequence);
  if (segment === undefined && !isFloor) return NOT_HELD;
  const ms = segment === undefined ? log.floorMs : segment.msAt(segment.positionOf(sequence));
  const cut = { ms, endSequence: sequence + 1 };
  return { cut, reason: uncertaintyAt(log, cut) };
}

/** Returns a predicate: true if a record is later than the cut. It decodes records only in the segment of the cut. */
export function isLaterThan({ ms, endSequence }: Cut): (place: RecordPlace) => boolean {
  if (endSequence === undefined) return (place) => place.ms > ms;
  return ({ segment, position }) =>
    segment.firstSequence >= endSequence ||
    (segment.endSequence > endSequence && position >= segment.positionOf(endSequence));
}

function cidrOf(key: Readonly<PrefixRegister>): string {
  return formatKey({ ...copyRegister(key), form: 'cidr' });
}

/** Returns the answer for a prefix at a moment that is not held: no claims, not certain. */
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

/** The claims on a prefix at a moment, and how certain they are. */
export interface MomentParts {
  readonly ms: number;
  readonly past: PastPrefix;
  /** Converts a time of the life to wall time. */
  readonly wallOf: (ms: number) => number;
  readonly claimsComplete: boolean;
  /** Why the answer is not certain. */
  readonly reason: Uncertainty | undefined;
  readonly held: Held;
}

/** Returns the answer for a prefix at a held moment. Its times are wall times. */
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
