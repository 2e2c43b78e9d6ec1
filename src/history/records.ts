import { formatKey, prefixRegister } from '../net/prefix.ts';
import { parseJSON } from './claim-codec.ts';
import type { DocumentChange, PastFields } from './document-change.ts';
import type { LifeClock } from './life-clock.ts';
import type { SegmentPart } from './lives.ts';
import type { RecordPlace, TimelineChange } from './prefix-timeline.ts';
import { type ClaimChange, documentKeyHash, KIND, WITHDRAWAL } from './record-reader.ts';
import type { Segment } from './segment.ts';
import type {
  ChangeCause,
  DocumentRecord,
  HistoryRange,
  HistoryRecord,
  MarkKind,
  MarkRecord,
  PrefixRecord,
} from './types.ts';

/** Returns a record. That of a prefix has no effective claims (`effective`). */
export function recordAt(segment: Segment, position: number, sequence: number, at: number): HistoryRecord {
  const kind = segment.kindAt(position);
  if (kind !== KIND.prefix) return textRecord(segment, position, { sequence, at, kind });
  const key = prefixRegister();
  const { writer, before, after } = segment.claimAt(position, key);
  const cause = causeOf(segment, position);
  const claims = { key: formatKey(key), writer, before, after, effective: undefined };
  return { kind: 'prefix', sequence, at, ...claims, cause };
}

/** Returns the record of a mark, a service or a node. */
export function textRecord(
  segment: Segment,
  position: number,
  { sequence, at, kind }: { readonly sequence: number; readonly at: number; readonly kind: number },
): DocumentRecord | MarkRecord {
  const { key, writer, before, after } = segment.textAt(position);
  if (kind === KIND.mark)
    return { kind: 'mark', sequence, at, mark: key as MarkKind, subject: writer, detail: after ?? '' };
  const values = changeOfTexts(before, after);
  const name = kind === KIND.service ? 'service' : 'node';
  return { kind: name, sequence, at, key, writer, ...values, cause: causeOf(segment, position) };
}

export function prefixRecord(
  change: TimelineChange,
  clock: LifeClock,
  effective: PrefixRecord['effective'],
): PrefixRecord {
  const { key, writer, before, after, segment, position, ms } = change;
  return {
    kind: 'prefix',
    sequence: segment.sequenceOf(position),
    at: clock.wallOf(ms),
    key,
    writer,
    before,
    after,
    effective,
    cause: causeOf(segment, position),
  };
}

/** Returns the change of a service or a node. */
export function changeAt({ segment, position }: RecordPlace): DocumentChange {
  const { before, after } = segment.textAt(position);
  return changeOfTexts(before, after);
}

function changeOfTexts(before: string | undefined, after: string | undefined): DocumentChange {
  const fields = (text: string | undefined): PastFields | undefined =>
    text === undefined ? undefined : (parseJSON(text) as PastFields); // written by recordDocument
  return { before: fields(before), after: fields(after) };
}

/** Returns false only if no record of a segment is in a range. */
export function mayOverlap(
  segment: Pick<SegmentPart, 'firstSequence' | 'endSequence' | 'startMs' | 'lastMs'>,
  { from, to, fromSequence, beforeSequence }: HistoryRange,
  clock: LifeClock,
): boolean {
  const walls = clock.wallBounds(segment.startMs, segment.lastMs);
  return (
    (from === undefined || walls.to >= from) &&
    (to === undefined || walls.from <= to) &&
    (fromSequence === undefined || segment.endSequence > fromSequence) &&
    (beforeSequence === undefined || segment.firstSequence < beforeSequence)
  );
}

/** Selects the records of a range, at most `limit` of them. Records are passed newest first. */
export class RangeFilter {
  readonly #range: HistoryRange;
  #remaining: number;

  constructor(range: HistoryRange) {
    this.#range = range;
    this.#remaining = range.limit ?? Number.POSITIVE_INFINITY;
  }

  /** True if the limit is reached. */
  get isFull(): boolean {
    return this.#remaining <= 0;
  }

  /**
   * Returns true if a record is in the range and the limit is not reached. Counts the record then. `claims` are absent
   * for marks, services and nodes.
   */
  accepts(sequence: number, at: number, claims?: Pick<ClaimChange, 'before' | 'after'>): boolean {
    const { from, to, fromSequence, beforeSequence, identity } = this.#range;
    const isAccepted =
      !this.isFull &&
      (identity === undefined ||
        claims?.before?.identity === identity ||
        claims?.after?.identity === identity) &&
      (from === undefined || at >= from) &&
      (to === undefined || at <= to) &&
      (fromSequence === undefined || sequence >= fromSequence) &&
      (beforeSequence === undefined || sequence < beforeSequence);
    if (isAccepted) this.#remaining--;
    return isAccepted;
  }
}

function causeOf(segment: Segment, position: number): ChangeCause | undefined {
  const batch = segment.batchOf(position);
  if (batch < 0) return undefined;
  // A batch head uses the fields of a text record for the parts of the cause.
  const { key: store, writer, before: kind, after: revision = '' } = segment.textAt(batch);
  if (store === '') return undefined;
  return {
    store,
    revision,
    ...(kind !== undefined && { kind }),
    ...(writer === WITHDRAWAL && { withdrawal: true }),
  };
}

/** Yields the places of the records of a service or a node in a segment, newest first. */
export function* placesIn(
  segment: Segment,
  kind: 'service' | 'node',
  key: string,
): Generator<RecordPlace, void, void> {
  let at = segment.findDocument(segment.newest(documentKeyHash(KIND[kind], key)), KIND[kind], key);
  while (at >= 0) {
    yield { segment, position: at, ms: segment.msAt(at) };
    at = segment.findDocument(segment.previous(at), KIND[kind], key);
  }
}
