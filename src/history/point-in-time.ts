import { type Check, matching, NUMBER, objectWith } from '../base/arguments.ts';
import type { PrefixRegister } from '../net/prefix.ts';
import type { ChangeLog } from './change-log.ts';
import { isBeforeFirstRecord, type Life, uncertaintyAt } from './lives.ts';
import { cidrOf, type IsLater, type PastPrefix } from './prefix-timeline.ts';
import type { Certainty, PastClaim, PrefixMoment, RetainedInterval, Uncertainty } from './types.ts';

/** A point between two records of a life. The state at the point is the state after all earlier records. */
export interface PointInTime {
  /** Milliseconds since the life began. */
  readonly lifeMs: number;
  /** Sequence number of the first later record. If undefined, the records with a time after `lifeMs` are later. */
  readonly endSequence: number | undefined;
}

/** A point in one of several lives. */
export interface PointInLives extends PointInTime {
  /** Index of the life in a list of lives. */
  readonly life: number;
}

export interface RequestedMoment<P extends PointInTime = PointInTime> {
  /** Undefined if the moment is not retained. */
  readonly point: P | undefined;
  /** Why answers are not certain; undefined if they are certain. */
  readonly reason: Uncertainty | undefined;
}

/** The result for a moment that is not retained. */
export const NOT_RETAINED: RequestedMoment<never> = { point: undefined, reason: 'not-retained' };

const SEQUENCE = objectWith({ sequence: NUMBER });

export const WHEN: Check = matching(
  'must be a time in milliseconds or { sequence }',
  (value) => typeof value === 'number' || SEQUENCE(value) === undefined,
);

/**
 * Returns the point of a wall time in the lives, which are ordered, oldest first, and why answers for it are not
 * certain. `now` is the present wall time.
 */
export function pointOfWall(
  lives: readonly Life[],
  when: number,
  now: number,
): RequestedMoment<PointInLives> {
  if (!Number.isFinite(when)) return NOT_RETAINED;
  let point: PointInLives | undefined;
  let times = 0;
  // The newest moment counts: a clock that was set back has shown `when` several times.
  for (let life = lives.length - 1; life >= 0; life--) {
    const { clock, floorMs, endMs } = lives[life] as Life; // below the length
    for (const ms of clock.timesOf(when).toReversed()) {
      if (ms < 0 || ms >= endMs) continue;
      times++;
      if (ms >= floorMs) point ??= { life, lifeMs: ms, endSequence: undefined };
    }
  }
  if (point === undefined) return pointOutside(lives, when);
  if (times > 1 || when > now) return { point, reason: 'clock' };
  return { point, reason: uncertaintyAt(lives[point.life] as Life, point) };
}

/**
 * Returns the point for a wall time that the clock of no life has shown: directly before the clock was set forward past
 * it, or the end of the life before it.
 */
function pointOutside(lives: readonly Life[], when: number): RequestedMoment<PointInLives> {
  for (let life = lives.length - 1; life >= 0; life--) {
    const { clock, floorMs, endMs, afterEnd, isLive } = lives[life] as Life; // below the length
    if (clock.wallOf(floorMs) > when) continue;
    const skipped = clock.skippedAt(when, floorMs);
    if (skipped !== undefined && skipped < endMs)
      return { point: { life, lifeMs: skipped - 1, endSequence: undefined }, reason: 'clock' };
    if (isLive) continue;
    return { point: { life, lifeMs: endMs, endSequence: undefined }, reason: afterEnd };
  }
  return NOT_RETAINED;
}

/** Returns the point directly after a record in memory. */
export function pointOfSequence(log: ChangeLog, sequence: number): RequestedMoment {
  const [first] = log.segments;
  const isBeforeFirst = first !== undefined && isBeforeFirstRecord(first, sequence);
  const segment = log.segments.find((one) => sequence >= one.firstSequence && sequence < one.endSequence);
  if (segment === undefined && !isBeforeFirst) return NOT_RETAINED;
  const ms = segment === undefined ? log.floorMs : segment.msAt(segment.positionOf(sequence));
  const point = { lifeMs: ms, endSequence: sequence + 1 };
  return { point, reason: uncertaintyAt(log, point) };
}

/** Returns a test for records later than the point. It decodes records only in the segment of the point. */
export function isLaterThan({ lifeMs: ms, endSequence }: PointInTime): IsLater {
  if (endSequence === undefined) return (place) => place.ms > ms;
  return ({ segment, position }) =>
    segment.firstSequence >= endSequence ||
    (segment.endSequence > endSequence && position >= segment.positionOf(endSequence));
}

/** Returns the answer for a prefix at a moment that is not retained: no claims, not certain. */
export function unretainedMoment(
  key: Readonly<PrefixRegister>,
  retained: RetainedInterval,
  reason: Uncertainty | undefined,
): PrefixMoment {
  const none = { claims: [], effective: undefined, decidedBy: undefined };
  const times = { effectiveSince: undefined, effectiveUntil: undefined };
  const certainty = { certain: false, claimsComplete: false, reason, subjects: [] };
  return { at: retained.from, prefix: cidrOf(key), ...none, ...times, ...certainty, retained };
}

/** The claims on a prefix at a moment, and whether they are certain. */
export interface MomentParts {
  /** The moment in milliseconds of the life. */
  readonly ms: number;
  readonly past: PastPrefix;
  /** Converts a time of the life to wall time. */
  readonly wallOf: (ms: number) => number;
  readonly claimsComplete: boolean;
  readonly certainty: Certainty;
  readonly retained: RetainedInterval;
}

/** Returns the answer for a prefix at a retained moment. Its times are wall times. */
export function momentOf(
  key: Readonly<PrefixRegister>,
  { ms, past, wallOf, claimsComplete, certainty, retained }: MomentParts,
): PrefixMoment {
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
    claimsComplete,
    retained,
    ...certainty,
  };
}
