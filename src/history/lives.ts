import type { ChangeLog, UncertainSpan } from './change-log.ts';
import type { StoredSegment } from './disk/segment-archive.ts';
import { mayContain } from './key-filter.ts';
import { LifeClock } from './life-clock.ts';
import type { PointInTime } from './point-in-time.ts';
import type { Segment } from './segment.ts';
import { type Certainty, MAX_SUBJECTS, type Uncertainty } from './types.ts';

/** A segment in memory or on disk. */
export interface SegmentPart {
  /** Number of the segment in its life, from 0. */
  readonly number: number;
  readonly firstSequence: number;
  readonly endSequence: number;
  readonly startMs: number;
  readonly lastMs: number;
  /** End of the records that existed when the query started. */
  readonly endPosition: number;
  /** The segment on disk; undefined if it is in memory. */
  readonly stored: StoredSegment | undefined;
  /** Returns false only if it has no record of a key with this hash. */
  mayContain(hash: number): boolean;
  /** Returns true if it has a record of a prefix of this length. */
  hasLength(family: 4 | 6, length: number): boolean;
  /** Returns the segment, valid until `release`, which must be called once unless the promise rejects. */
  load(): Segment | Promise<Segment>;
  release(segment: Segment): void;
}

/** The inputs of the decision whether answers for a life are certain. */
export interface CertaintyInputs {
  /** True for the current life. */
  readonly isLive: boolean;
  readonly clock: LifeClock;
  readonly spans: readonly UncertainSpan[];
}

/** The retained records of one *life*, which is one process. Times are milliseconds since the life began. */
export interface Life extends CertaintyInputs {
  /** The state is retained from `floorMs`, inclusive, until `endMs`, exclusive. */
  readonly floorMs: number;
  readonly endMs: number;
  /** Why moments after the end are not certain. */
  readonly afterEnd: Uncertainty;
  /** Oldest first. */
  readonly parts: readonly SegmentPart[];
}

/** Returns the ended lives of stored segments, oldest first, without the life `currentNumber`. */
export function endedLives(stored: readonly StoredSegment[], currentNumber: number): readonly Life[] {
  const earlier = new Map<number, StoredSegment[]>();
  for (const segment of stored) {
    const { head, pieces } = segment.facts;
    // A process that ended between the first two writes of a file stored neither records nor a clock in it.
    if (head.life === currentNumber || pieces.length === 0) continue;
    const segments = earlier.get(head.life) ?? [];
    segments.push(segment);
    earlier.set(head.life, segments);
  }
  return Array.from(earlier.values(), endedLife);
}

/** Returns the current life with the number `life`: its segments in memory, and older ones on disk. */
export function currentLife(archived: readonly StoredSegment[], life: number, log: ChangeLog): Life {
  const { segments, floorMs } = log;
  const oldest = segments[0] as Segment; // there is always one
  const stored = archived.filter(({ facts, number }) => facts.head.life === life && number < oldest.number);
  const inMemory = log.spans.map((span) => ({ ...span }));
  const older = storedSpans(stored, inMemory, oldest.startMs);
  const parts = [...stored, ...segments.map(memoryPart)];
  const gaps = gapsOf(stored, oldest);
  return {
    isLive: true,
    clock: new LifeClock(log.life.clock.pieces),
    floorMs: stored[0]?.startMs ?? floorMs,
    endMs: Number.POSITIVE_INFINITY,
    afterEnd: 'clock',
    spans: [...inMemory, ...older, ...gaps],
    parts,
  };
}

function endedLife(stored: readonly StoredSegment[]): Life {
  const last = stored[stored.length - 1] as StoredSegment; // at least one
  const { pieces, endMs, torn } = last.facts;
  return {
    isLive: false,
    clock: new LifeClock(pieces),
    floorMs: stored[0]?.startMs ?? 0,
    endMs,
    afterEnd: torn ? 'lost' : 'agent-not-running',
    spans: [...storedSpans(stored), ...gapsOf(stored, undefined)],
    parts: stored,
  };
}

/**
 * Returns the uncertain intervals of stored segments, each once, without those in memory. Each segment contains the
 * intervals known when it was written. Of several copies of an interval, the newest is returned. If this copy has no
 * end, the interval ended before the next segment began, because that segment does not contain it.
 * `memoryStartMs`: the start of the records in memory.
 */
function storedSpans(
  stored: readonly StoredSegment[],
  inMemory: readonly UncertainSpan[] = [],
  memoryStartMs?: number,
): readonly UncertainSpan[] {
  const spans: UncertainSpan[] = [];
  const known = new Set(inMemory.map(spanKey));
  let nextMs = memoryStartMs;
  for (const { facts, startMs } of stored.toReversed()) {
    const unknown = facts.spans.filter((span) => !known.has(spanKey(span)));
    for (const span of unknown) {
      spans.push({ ...span, toMs: span.toMs ?? nextMs });
      known.add(spanKey(span));
    }
    nextMs = startMs;
  }
  return spans;
}

function spanKey({ reason, subject, fromMs }: UncertainSpan): string {
  return `${reason} ${fromMs} ${subject}`;
}

/** Returns the intervals without records between stored segments, and between the last one and `next`. */
function gapsOf(
  stored: readonly StoredSegment[],
  next: { readonly number: number; readonly startMs: number } | undefined,
): readonly UncertainSpan[] {
  return stored.flatMap((segment, index): readonly UncertainSpan[] => {
    const following = stored[index + 1] ?? next;
    if (following === undefined) return [];
    const { endMs } = segment.facts;
    const isAdjacent = following.number === segment.number + 1 && following.startMs <= endMs;
    return isAdjacent ? [] : [{ reason: 'lost', subject: '', fromMs: endMs, toMs: following.startMs + 1 }];
  });
}

function memoryPart(segment: Segment): SegmentPart {
  const { number, firstSequence, endSequence, startMs, lastMs, filter } = segment;
  return {
    number,
    firstSequence,
    endSequence,
    startMs,
    lastMs,
    endPosition: segment.length,
    stored: undefined,
    mayContain: (hash) => filter === undefined || mayContain(filter, hash),
    hasLength: (family, length) => segment.hasLength(family, length),
    load: () => segment,
    release: () => {},
  };
}

/**
 * Returns why answers for a moment of a life are not certain; undefined if they are. An answer for an ended life is
 * read from a record before or after the moment: the caller must also check that no change between this record and the
 * moment was lost ({@link isLostBetween}).
 */
export function uncertaintyAt(life: CertaintyInputs, point: PointInTime): Uncertainty | undefined {
  if (point.endSequence === undefined && life.clock.isUnclear(point.lifeMs)) return 'clock';
  return life.spans.find((span) => affects(span, life, point))?.reason;
}

/** Returns whether answers for a moment of a life are certain. `reason`: why they are not. */
export function certaintyOf(
  life: CertaintyInputs,
  point: PointInTime,
  reason: Uncertainty | undefined,
): Certainty {
  const subjects = new Set<string>();
  if (reason !== undefined)
    for (const span of life.spans) {
      if (span.reason !== reason || span.subject === '' || !affects(span, life, point)) continue;
      subjects.add(span.subject);
      if (subjects.size === MAX_SUBJECTS) break;
    }
  return { certain: reason === undefined, reason, subjects: [...subjects] };
}

/** Returns true if answers for a moment of a life are not certain because of an interval. */
function affects(
  { reason, fromMs, toMs = Number.POSITIVE_INFINITY }: UncertainSpan,
  { isLive }: CertaintyInputs,
  { lifeMs: ms, endSequence }: PointInTime,
): boolean {
  // The record with this sequence number may precede the end of the interval, although both have the same time.
  const isBefore = ms < toMs || (endSequence !== undefined && ms === toMs);
  // In the current life, the state is computed backwards from now, so a lost change affects all moments before it.
  return isBefore && (reason === 'lost' ? isLive : ms >= fromMs);
}

/**
 * Returns true if undoing the later changes may not lead to the claims at a time of the current life: a later change
 * was lost, or the confirmation or release of a restored claim was not recorded.
 */
export function isUndoUncertain({ spans }: CertaintyInputs, ms: number): boolean {
  return spans.some(
    (span) => (span.reason === 'lost' || isRelease(span)) && ms <= (span.toMs ?? Number.POSITIVE_INFINITY),
  );
}

/** Returns true for an interval added by `ChangeLog.skipRestored`: it begins with the life, and has an end. */
function isRelease({ reason, fromMs, toMs }: UncertainSpan): boolean {
  return reason === 'cluster-incomplete' && fromMs === 0 && toMs !== undefined;
}

/**
 * Returns true if a sequence number, which means the moment directly after its record, is the last one before the first
 * retained record of a life, and belongs to this life: its record was dropped from the history. If the first record of
 * the life is retained, the number belongs to the previous life, except 0, which belongs to no record.
 */
export function isBeforeFirstRecord(
  { number, firstSequence }: Pick<SegmentPart, 'number' | 'firstSequence'>,
  sequence: number,
): boolean {
  return sequence === firstSequence - 1 && (number > 0 || sequence === 0);
}

/** Returns true if changes of a life may be missing between two times, both included. */
export function isLostBetween({ spans }: Life, fromMs: number, toMs: number): boolean {
  return spans.some(
    (span) =>
      span.reason === 'lost' && span.fromMs <= toMs && (span.toMs ?? Number.POSITIVE_INFINITY) >= fromMs,
  );
}
