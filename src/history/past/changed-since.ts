import type { IPCache } from '../../ipcache/ipcache.ts';
import { formatKey, type PrefixRegister, prefixRegister } from '../../net/prefix.ts';
import type { ChangeLog } from '../change-log.ts';
import { ChangedPrefixes, type VisibleClaim } from '../changed-prefixes.ts';
import { certaintyOf, type SegmentPart, uncertaintyAt } from '../lives.ts';
import { isLaterThan, type PointInLives, type RequestedMoment } from '../point-in-time.ts';
import { type ClaimChange, KIND } from '../record-reader.ts';
import type { Segment } from '../segment.ts';
import type { Certainty, PrefixMoment } from '../types.ts';
import type { Reading } from './reading.ts';

/** Number of prefixes evaluated in one slice. */
const PREFIXES_PER_SLICE = 128;

/**
 * Number of changes since the query began that are added in one slice: about 3 ms. With one slice in each turn of 10
 * ms, changes are added ten times as fast as they can be recorded.
 */
const LATER_PER_SLICE = 2048;

/** The prefixes that changed after a moment; see {@link PastReader.changedSince}. */
export interface ChangedSince extends Certainty, Pick<PrefixMoment, 'at' | 'retained'> {
  /**
   * The visible claim at the moment by CIDR; undefined if there was none. All other prefixes have not changed since.
   */
  readonly prefixes: ReadonlyMap<string, VisibleClaim | undefined>;
}

/** The cache and the records of the current life. */
interface Sources {
  readonly ipcache: Pick<IPCache, 'claimsOf'>;
  readonly log: ChangeLog;
  readonly reading: Reading;
}

/** See {@link PastReader.changedSince}. The moment must be in the current life. */
export async function prefixesChangedSince(
  { ipcache, log, reading }: Sources,
  { point, reason: momentReason }: RequestedMoment<PointInLives> & { readonly point: PointInLives },
  maxKeys: number,
): Promise<ChangedSince | 'too-many'> {
  const changed = new ChangedPrefixes((key) => ipcache.claimsOf(key));
  await addOlder(reading, changed, point, maxKeys);
  if (changed.size > maxKeys) return 'too-many';
  const prefixes = new Map<string, VisibleClaim | undefined>();
  const visible = changed.visible();
  let next = reading.nextSequence;
  for (let isDone = false; !isDone; ) {
    next = addLater(log, reading, changed, next);
    // A slice reads the current claims, which include all changes, so all changes must have been added before.
    if (next === log.nextSequence) isDone = addSlice(visible, prefixes);
    if (!isDone) await reading.pass();
  }
  // Changes may have been lost since the query began.
  const reason = momentReason ?? reading.lostReason ?? uncertaintyAt(log, point);
  const at = reading.lifeOf(point).clock.wallOf(point.lifeMs);
  return { at, ...certaintyOf(log, point, reason), retained: reading.retained, prefixes };
}

/** Adds the changes after a point, newest first, until more than `maxKeys` keys have changed. */
async function addOlder(
  reading: Reading,
  changed: ChangedPrefixes,
  point: PointInLives,
  maxKeys: number,
): Promise<void> {
  const register = prefixRegister();
  const isLater = isLaterThan(point);
  const mayBeLater = ({ lastMs }: SegmentPart): boolean => lastMs >= point.lifeMs;
  for await (const { segment, heads } of reading.headsOf(reading.lifeOf(point), mayBeLater)) {
    for (const { position, kind, ms } of heads) {
      if (kind !== KIND.prefix) continue;
      if (!isLater({ segment, position, ms })) return;
      changed.addOlder(...claimChange(segment, position, register));
    }
    if (changed.size > maxKeys) return;
  }
}

function claimChange(
  segment: Segment,
  position: number,
  register: PrefixRegister,
): readonly [key: string, change: ClaimChange] {
  const change = segment.claimAt(position, register);
  return [formatKey(register), change];
}

/**
 * Adds at most {@link LATER_PER_SLICE} changes that were recorded since the query began, from a sequence number on.
 * Returns the next sequence number.
 */
function addLater(log: ChangeLog, reading: Reading, changed: ChangedPrefixes, from: number): number {
  const register = prefixRegister();
  let next = from;
  let added = 0;
  for (const segment of log.segments) {
    if (segment.endSequence <= next) continue;
    if (segment.firstSequence > next) reading.isLost = true;
    for (const { position, kind, sequence } of segment.headsFrom(next)) {
      if (kind === KIND.prefix) changed.addNewer(...claimChange(segment, position, register));
      next = sequence + 1;
      if (++added === LATER_PER_SLICE) return next;
    }
  }
  return next;
}

/** Adds the next {@link PREFIXES_PER_SLICE} prefixes. Returns true if there are no more. */
function addSlice(
  visible: Iterator<readonly [string, VisibleClaim | undefined], void, void>,
  prefixes: Map<string, VisibleClaim | undefined>,
): boolean {
  for (let i = 0; i < PREFIXES_PER_SLICE; i++) {
    const { value } = visible.next();
    if (value === undefined) return true;
    prefixes.set(...value);
  }
  return false;
}
