import type { ChangeLog } from './change-log.ts';
import { type PastFields, UndoneDocument } from './document-change.ts';
import { isLaterThan, type PointInTime } from './point-in-time.ts';
import type { RecordPlace } from './prefix-timeline.ts';
import { KIND } from './record-reader.ts';
import { changeAt, mayOverlap, placesIn, recordAt, recordFilter, textRecord } from './records.ts';
import type { HistoryRange, HistoryRecord } from './types.ts';

/** A service (`namespace/name`) or a node (`cluster/name`). */
interface DocumentKey {
  readonly kind: 'service' | 'node';
  readonly key: string;
}

/** A service or a node, and its current fields. */
export interface CurrentDocument extends DocumentKey {
  readonly current: PastFields | undefined;
}

/** Yields the records of a range in memory, newest first, without the visible claims of prefixes. */
export function* memoryRecords(log: ChangeLog, range: HistoryRange): Generator<HistoryRecord, void, void> {
  const isInRange = recordFilter(range);
  const { clock } = log.life;
  let rest = range.limit ?? Number.POSITIVE_INFINITY;
  for (const segment of log.segments.toReversed()) {
    if (!mayOverlap(segment, range, clock)) continue;
    for (const { position, kind, ms, sequence } of segment.newestHeads()) {
      if (kind === KIND.batch) continue;
      const at = clock.wallOf(ms);
      if (!isInRange({ sequence, at })) continue;
      if (rest-- <= 0) return;
      yield recordAt(segment, position, sequence, at);
    }
  }
}

/** Yields the records of a service or a node in memory, newest first. */
export function* documentRecords(
  log: ChangeLog,
  requested: DocumentKey,
  range: HistoryRange,
): Generator<HistoryRecord, void, void> {
  const isInRange = recordFilter(range);
  let rest = range.limit ?? Number.POSITIVE_INFINITY;
  for (const { segment, position, ms } of placesOf(log, requested)) {
    const sequence = segment.sequenceOf(position);
    const at = log.life.clock.wallOf(ms);
    if (!isInRange({ sequence, at })) continue;
    if (rest-- <= 0) return;
    yield textRecord(segment, position, { sequence, at, kind: KIND[requested.kind] });
  }
}

/**
 * Returns a service or a node at a moment: its current fields, with the later changes undone. Times are milliseconds of
 * the life.
 */
export function documentBefore(
  log: ChangeLog,
  requested: CurrentDocument,
  point: PointInTime,
): {
  readonly document: PastFields | undefined;
  readonly since: number | undefined;
  readonly until: number | undefined;
} {
  const isLater = isLaterThan(point);
  const undone = new UndoneDocument(requested.current);
  let until: number | undefined;
  for (const place of placesOf(log, requested)) {
    if (!isLater(place)) return { document: undone.document, since: place.ms, until };
    undone.undo(changeAt(place));
    until = place.ms;
  }
  return { document: undone.document, since: undefined, until };
}

/** Yields the places of the records of a service or a node, newest first. */
function* placesOf(log: ChangeLog, { kind, key }: DocumentKey): Generator<RecordPlace, void, void> {
  for (const segment of log.segments.toReversed()) yield* placesIn(segment, kind, key);
}
