import type { ChangeLog, DoubtfulSpan } from './change-log.ts';
import type { StoredSegment } from './disk/segment-archive.ts';
import { mayContain } from './key-filter.ts';
import { LifeClock } from './life-clock.ts';
import type { Segment } from './segment.ts';
import type { Uncertainty } from './types.ts';

/** A segment in memory or on disk. */
export interface SegmentPart {
  readonly firstSequence: number;
  readonly endSequence: number;
  readonly startMs: number;
  readonly lastMs: number;
  /** Records from this position on were written after the question. */
  readonly endPosition: number;
  /** The segment on disk; undefined if it is in memory. */
  readonly stored: StoredSegment | undefined;
  /** Returns false if it has no record of a key with this hash. */
  mayContain(hash: number): boolean;
  /** Returns true if it has a record of a prefix of this length. */
  hasLength(family: 4 | 6, length: number): boolean;
  load(): Segment | Promise<Segment>;
}

/** The held records of one process. Times are milliseconds of the life. */
export interface Life {
  readonly isLive: boolean;
  readonly clock: LifeClock;
  /** Oldest time of which the state is held, and the time from which on, inclusively, it is not. */
  readonly floorMs: number;
  readonly endMs: number;
  /** Why moments after the end are not certain. */
  readonly afterEnd: Uncertainty;
  readonly spans: readonly DoubtfulSpan[];
  /** Oldest first. */
  readonly parts: readonly SegmentPart[];
}

/** Returns the held lives, oldest first; the last one is the current one. Later records are not part of them. */
export function livesOf(stored: readonly StoredSegment[], life: number, log: ChangeLog): readonly Life[] {
  const earlier = new Map<number, StoredSegment[]>();
  const current: StoredSegment[] = [];
  const [oldest] = log.segments;
  for (const segment of stored) {
    const { life: of } = segment.facts.head;
    if (of === life) {
      if (segment.number < (oldest?.number ?? 0)) current.push(segment);
    } else {
      const list = earlier.get(of) ?? [];
      list.push(segment);
      earlier.set(of, list);
    }
  }
  return [...Array.from(earlier.values(), endedLife), liveLife(current, log)];
}

function liveLife(stored: readonly StoredSegment[], log: ChangeLog): Life {
  const { segments, floorMs } = log;
  const held = log.spans.map((span) => ({ ...span }));
  const known = new Set(held.map(spanName));
  const older = stored.flatMap(({ facts }) => facts.spans).filter((span) => !known.has(spanName(span)));
  const memory = segments.map(memoryPart);
  const parts = [...stored.map(storedPart), ...memory];
  const gaps = gapsOf(stored, { number: segments[0]?.number ?? 0, startMs: segments[0]?.startMs ?? floorMs });
  return {
    isLive: true,
    clock: new LifeClock(log.life.clock.pieces),
    floorMs: stored[0]?.startMs ?? floorMs,
    endMs: Number.POSITIVE_INFINITY,
    afterEnd: 'clock',
    spans: [...held, ...older, ...gaps],
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
    spans: [...stored.flatMap(({ facts }) => facts.spans), ...gapsOf(stored, undefined)],
    parts: stored.map(storedPart),
  };
}

function spanName({ reason, subject, fromMs }: DoubtfulSpan): string {
  return `${reason} ${fromMs} ${subject}`;
}

/** Returns the intervals whose records are missing between segments, or between them and the oldest one in memory. */
function gapsOf(
  stored: readonly StoredSegment[],
  next: { readonly number: number; readonly startMs: number } | undefined,
): readonly DoubtfulSpan[] {
  return stored.flatMap((segment, index): readonly DoubtfulSpan[] => {
    const following = stored[index + 1] ?? next;
    if (following === undefined) return [];
    const { endMs } = segment.facts;
    const isNext = following.number === segment.number + 1 && following.startMs <= endMs;
    return isNext ? [] : [{ reason: 'lost', subject: '', fromMs: endMs, toMs: following.startMs + 1 }];
  });
}

function memoryPart(segment: Segment): SegmentPart {
  const { firstSequence, endSequence, startMs, lastMs, filter, length } = segment;
  return {
    ...{ firstSequence, endSequence, startMs, lastMs, endPosition: length, stored: undefined },
    mayContain: (hash) => filter === undefined || mayContain(filter, hash),
    hasLength: (family, length) => segment.hasLength(family, length),
    load: () => segment,
  };
}

function storedPart(stored: StoredSegment): SegmentPart {
  const { firstSequence, endSequence, startMs, lastMs } = stored;
  return {
    ...{ firstSequence, endSequence, startMs, lastMs, endPosition: Number.POSITIVE_INFINITY, stored },
    mayContain: (hash) => stored.mayContain(hash),
    hasLength: (family, length) => stored.hasLength(family, length),
    load: () => stored.load(),
  };
}

/** Returns why answers for a moment of a life are not certain. A loss between the moment and a record is judged by the question. */
export function doubtAt({ isLive, spans }: Life, ms: number): Uncertainty | undefined {
  return spans.find(({ reason, fromMs, toMs = Number.POSITIVE_INFINITY }) =>
    // In the current life, a lost change is missing when the state is computed backwards from now.
    reason === 'lost' ? isLive && ms < toMs : ms >= fromMs && ms < toMs,
  )?.reason;
}

/** Returns true if changes of a life may be missing between two times, both included. */
export function isLostBetween({ spans }: Life, fromMs: number, toMs: number): boolean {
  return spans.some(
    (span) =>
      span.reason === 'lost' && span.fromMs <= toMs && (span.toMs ?? Number.POSITIVE_INFINITY) >= fromMs,
  );
}
