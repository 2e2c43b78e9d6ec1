import { type DocumentChange, EarlierDocument, type PastFields } from '../document-change.ts';
import { isLostBetween } from '../lives.ts';
import { isLaterThan, type PointInLives } from '../point-in-time.ts';
import { changeAt } from '../records.ts';
import type { Reading } from './reading.ts';

/** A service (`namespace/name`) or a node (`cluster/name`), and its current fields. */
interface CurrentDocument {
  readonly kind: 'service' | 'node';
  readonly key: string;
  readonly current: PastFields | undefined;
}

/** A change of a service or a node, and its time. */
interface DatedChange {
  readonly ms: number;
  readonly change: DocumentChange;
}

/** A service or a node at a moment. Times are milliseconds since the life began. */
interface FoundDocument {
  readonly document: PastFields | undefined;
  /** True if records prove the document. */
  readonly isKnown: boolean;
  readonly since: number | undefined;
  readonly until: number | undefined;
}

/** Returns a service or a node at a moment. */
export async function documentIn(
  reading: Reading,
  requested: CurrentDocument,
  point: PointInLives,
): Promise<FoundDocument> {
  const { kind, key, current } = requested;
  const life = reading.lifeOf(point);
  const isLater = isLaterThan(point);
  const later: DatedChange[] = [];
  const earlier: DatedChange[] = [];
  const undone = new EarlierDocument(current);
  let since: number | undefined;
  let until: number | undefined;
  for await (const places of reading.placesOf(life, kind, key)) {
    for (const place of places) {
      const change = changeAt(place);
      const { ms } = place;
      if (isLater(place)) {
        until = ms;
        if (life.isLive) undone.undo(change);
        else later.push({ ms, change });
      } else {
        since ??= ms;
        if (!life.isLive) earlier.push({ ms, change });
      }
    }
    if (life.isLive && since !== undefined) break;
  }
  if (life.isLive) return { document: undone.document, isKnown: true, since, until };
  const found = provenDocument(kind, later, earlier);
  if (found !== undefined) {
    const { document, ms } = found;
    const isLost = isLostBetween(life, Math.min(ms, point.lifeMs), Math.max(ms, point.lifeMs));
    return { document, isKnown: !isLost, since, until };
  }
  // Without proof, take the document at the beginning of the next life, and undo the later changes of this one.
  const next = point.life + 1;
  if (next >= reading.lives.length) return { document: undefined, isKnown: false, since, until };
  const after = await documentIn(reading, requested, { life: next, lifeMs: -1, endSequence: undefined });
  return { document: undoAll(after.document, later), isKnown: false, since, until };
}

/**
 * Returns a document at a moment of an ended life, computed from the nearest record that contains the whole document.
 * Such a record is the creation or the deletion of a service, or any record of a node. `later` and `earlier` are the
 * changes after and before the moment, newest first.
 */
function provenDocument(
  kind: 'service' | 'node',
  later: readonly DatedChange[],
  earlier: readonly DatedChange[],
): { readonly document: PastFields | undefined; readonly ms: number } | undefined {
  const isWhole = ({ change: { before, after } }: DatedChange): boolean =>
    kind === 'node' || before === undefined || after === undefined;
  const nearestEarlier = earlier.findIndex(isWhole);
  const start = earlier[nearestEarlier];
  if (start !== undefined) {
    // To apply a change again, undoes the reverse change.
    const redone = new EarlierDocument(start.change.after);
    for (const { change } of earlier.slice(0, nearestEarlier).reverse())
      redone.undo({ before: change.after, after: change.before });
    return { document: redone.document, ms: start.ms };
  }
  const nearestLater = later.findLastIndex(isWhole);
  const end = later[nearestLater];
  if (end === undefined) return undefined;
  return { document: undoAll(end.change.before, later.slice(nearestLater + 1)), ms: end.ms };
}

/** Undoes changes, newest first. Returns the document before them. */
function undoAll(document: PastFields | undefined, changes: readonly DatedChange[]): PastFields | undefined {
  const undone = new EarlierDocument(document);
  for (const { change } of changes) undone.undo(change);
  return undone.document;
}
