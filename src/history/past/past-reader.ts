import {
  type Check,
  checkArguments,
  NUMBER,
  OBJECT,
  objectWith,
  optional,
  TEXT,
} from '../../base/arguments.ts';
import type { Clock } from '../../base/clock.ts';
import { showValue } from '../../base/show-value.ts';
import type { TurnGate } from '../../base/turn-gate.ts';
import { EFFECT } from '../../ipcache/claims/claim-state.ts';
import type { IPCache } from '../../ipcache/ipcache.ts';
import { addressBits } from '../../net/address-words.ts';
import { formatKey, type PrefixRegister, parseKey, prefixRegister } from '../../net/prefix.ts';
import type { ChangeLog } from '../change-log.ts';
import type { SegmentArchive, StoredSegment } from '../disk/segment-archive.ts';
import type { PastFields } from '../document-change.ts';
import {
  certaintyOf,
  currentLife,
  endedLives,
  isLostBetween,
  isUndoUncertain,
  type Life,
  type SegmentPart,
} from '../lives.ts';
import {
  isLaterThan,
  momentOf,
  type PointInLives,
  type RequestedMoment,
  unretainedMoment,
  WHEN,
} from '../point-in-time.ts';
import { covering, lengthsOf } from '../prefix-lengths.ts';
import {
  type ClaimsByKey,
  claimsByKey,
  keysOf,
  type PastPrefix,
  PastState,
  type TimelineChange,
} from '../prefix-timeline.ts';
import { KIND } from '../record-reader.ts';
import { mayOverlap, prefixRecord, RangeFilter, recordAt, textRecord } from '../records.ts';
import type {
  DocumentMoment,
  HistoryRange,
  HistoryRecord,
  PrefixMoment,
  PrefixRecord,
  RetainedInterval,
  Uncertainty,
  When,
} from '../types.ts';
import { type ChangedSince, prefixesChangedSince } from './changed-since.ts';
import { EarlierLifeState, ruleOfKnown } from './earlier-life-state.ts';
import { documentIn } from './past-documents.ts';
import { Reading } from './reading.ts';

const NO_SEGMENTS: readonly StoredSegment[] = [];

export interface PastReaderOptions {
  readonly ipcache: IPCache;
  readonly clock: Clock;
  readonly gate: TurnGate;
  /** Undefined before the start. */
  readonly log: () => ChangeLog | undefined;
  /** Undefined if nothing is stored. */
  readonly archive: () => SegmentArchive | undefined;
}

/**
 * Answers from memory and from the segments on disk, of the current process and of earlier ones. Work is done in slices
 * of a `TurnGate`. An answer reflects the records at the time of the query. A segment that cannot be read is
 * dropped, and the answer is not certain (`lost`). Between {@link History.open} and {@link History.start}, answers are
 * from the disk only.
 */
export class PastReader {
  readonly #options: PastReaderOptions;
  /** The lives of earlier processes, computed from these stored segments. */
  #ended: { readonly stored: readonly StoredSegment[]; readonly lives: readonly Life[] } | undefined;

  /** @internal */
  constructor(options: PastReaderOptions) {
    this.#options = options;
  }

  /** The interval of the retained changes. Between two processes there are no changes. */
  get retained(): RetainedInterval {
    return this.#newReading().retained;
  }

  /** Returns the wall time at which a record was written; undefined if the record is not retained. */
  async timeOf(sequence: number): Promise<number | undefined> {
    const reading = this.#newReading();
    const { point } = await reading.pointOf({ sequence });
    return point && reading.lifeOf(point).clock.wallOf(point.lifeMs);
  }

  /** See `History.at`. In an earlier life, only claims in records are known (`claimsComplete`). */
  async at(key: string, when: When): Promise<PrefixMoment | undefined> {
    const register = prefixRegister();
    if (!parseKey(key, register)) return undefined;
    const reading = this.#newReading();
    const current = this.#claimsOf(register);
    const requested = await reading.pointOf(when);
    return this.#moment(reading, register, requested, current);
  }

  /** See `History.lookup`. */
  async lookup(ip: string, when: When): Promise<PrefixMoment | undefined> {
    const address = prefixRegister();
    if (!parseKey(ip, address) || address.form !== 'endpoint') return undefined;
    const reading = this.#newReading();
    const isRecorded = (length: number): boolean =>
      reading.lives.some(({ parts }) => parts.some((part) => part.hasLength(address.family, length)));
    const lengths = lengthsOf(this.#options.ipcache, address.family, isRecorded);
    const candidates = Array.from(covering(address, lengths), (key) => ({
      key,
      current: this.#claimsOf(key),
    }));
    const requested = await reading.pointOf(when);
    if (requested.point === undefined) return this.#moment(reading, address, requested, new Map());
    const life = reading.lifeOf(requested.point);
    // `candidates` omits lengths without a current or recorded prefix. In an earlier life, a prefix of such a length
    // may have existed without a record, because it did not change during that life.
    const unrecorded = life.isLive ? undefined : reasonUnproven(life, requested.point);
    const bits = addressBits(address.family);
    let ofAddress: PrefixMoment | undefined;
    let uncertainty: Uncertainty | undefined;
    for (const [index, { key, current }] of candidates.entries()) {
      const moment = await this.#moment(reading, key, requested, current);
      const omitsLonger = key.length < bits - index;
      uncertainty ??= moment.reason ?? (omitsLonger ? unrecorded : undefined);
      if (moment.effective !== undefined)
        return { ...moment, ...certaintyOf(life, requested.point, uncertainty ?? reading.lostReason) };
      ofAddress ??= moment; // the first candidate is the address itself
    }
    const omitsAny = candidates.length < bits + 1;
    uncertainty ??= reading.lostReason ?? (omitsAny ? unrecorded : undefined);
    return ofAddress && { ...ofAddress, ...certaintyOf(life, requested.point, uncertainty) };
  }

  /**
   * Returns the state at a moment of all prefixes that have changed since. Together with a snapshot taken at the call,
   * this is the whole state at the moment. Resolves to `earlier` if the moment is in an earlier process or not
   * retained, to `too-many` if more than `maxKeys` keys have changed. Costs a pass over all later records.
   */
  async changedSince(when: When, maxKeys: number): Promise<ChangedSince | 'earlier' | 'too-many'> {
    const reading = this.#newReading();
    const requested = await reading.pointOf(when);
    const { point } = requested;
    const life = point && reading.lifeOf(point);
    const log = this.#options.log();
    if (point === undefined || life?.isLive !== true || log === undefined) return 'earlier';
    return prefixesChangedSince(
      { ipcache: this.#options.ipcache, log, reading },
      { ...requested, point },
      maxKeys,
    );
  }

  /**
   * Yields the changes of the prefix of `key` in slices, newest first, each with the visible claim before and after it.
   * These claims are absent if a later change was not recorded, or if the record of an earlier life does not prove
   * both. Yields nothing if `key` is invalid.
   */
  async *of(key: string, range: HistoryRange = {}): AsyncGenerator<readonly PrefixRecord[], void, void> {
    const register = prefixRegister();
    if (!parseKey(key, register)) return;
    const reading = this.#newReading();
    const keys = keysOf(register);
    const wanted = new RangeFilter(range);
    const state = new PastState(this.#claimsOf(register));
    const undo = (life: Life, change: TimelineChange): PrefixRecord['effective'] => {
      const effective = state.undo(change);
      return reading.isLost || isUndoUncertain(life, change.ms) ? undefined : effective;
    };
    for (const life of reading.lives.toReversed()) {
      for await (const changes of reading.changesOf(life, keys)) {
        const slice: PrefixRecord[] = [];
        for (const change of changes) {
          const effective = life.isLive ? undo(life, change) : recordedEffect(change, keys.length);
          const record = prefixRecord(change, life.clock, effective);
          if (wanted.accepts(record.sequence, record.at, record)) slice.push(record);
        }
        yield slice;
        if (wanted.isFull) return;
      }
    }
  }

  /** Yields all records of a range in slices, newest first, without the visible claims of prefixes. */
  async *records(range: HistoryRange = {}): AsyncGenerator<readonly HistoryRecord[], void, void> {
    const reading = this.#newReading();
    const beforeSequence = Math.min(range.beforeSequence ?? Number.POSITIVE_INFINITY, reading.nextSequence);
    const bounded: HistoryRange = { ...range, beforeSequence };
    const wanted = new RangeFilter(bounded);
    for (const life of reading.lives.toReversed()) {
      const isWanted = (part: SegmentPart): boolean => mayOverlap(part, bounded, life.clock);
      for await (const { segment, heads } of reading.headsOf(life, isWanted)) {
        const slice: HistoryRecord[] = [];
        for (const { position, kind, ms, sequence } of heads) {
          if (kind === KIND.batch) continue;
          const at = life.clock.wallOf(ms);
          const isOfPrefix = bounded.identity !== undefined && kind === KIND.prefix;
          const claims = isOfPrefix ? segment.claimAt(position) : undefined;
          if (wanted.accepts(sequence, at, claims)) slice.push(recordAt(segment, position, sequence, at));
        }
        yield slice;
        if (wanted.isFull) return;
      }
    }
  }

  /** Returns a service or a node at a moment. `current` is its current document, undefined if it does not exist. */
  async documentAt(
    kind: 'service' | 'node',
    key: string,
    current: PastFields | undefined,
    when: When,
  ): Promise<DocumentMoment> {
    const reading = this.#newReading();
    const { point, reason } = await reading.pointOf(when);
    const retained = reading.retained;
    if (point === undefined) {
      const none = { document: undefined, since: undefined, until: undefined };
      return { at: retained.from, ...none, certain: false, reason, subjects: [], retained };
    }
    const life = reading.lifeOf(point);
    const { document, isKnown, since, until } = await documentIn(reading, { kind, key, current }, point);
    const wall = (ms: number | undefined): number | undefined =>
      ms === undefined ? undefined : life.clock.wallOf(ms);
    const uncertainty = reason ?? reading.lostReason ?? (isKnown ? undefined : 'agent-not-running');
    const end = life.isLive ? undefined : life.endMs;
    const times = { at: life.clock.wallOf(point.lifeMs), since: wall(since), until: wall(until ?? end) };
    return { ...times, document, ...certaintyOf(life, point, uncertainty), retained };
  }

  /** Yields the changes of a service or a node in slices, newest first. */
  async *documentsOf(
    kind: 'service' | 'node',
    key: string,
    range: HistoryRange = {},
  ): AsyncGenerator<readonly HistoryRecord[], void, void> {
    const reading = this.#newReading();
    const wanted = new RangeFilter(range);
    for (const life of reading.lives.toReversed()) {
      for await (const places of reading.placesOf(life, kind, key)) {
        const slice: HistoryRecord[] = [];
        for (const { segment, position, ms } of places) {
          const sequence = segment.sequenceOf(position);
          const at = life.clock.wallOf(ms);
          if (wanted.accepts(sequence, at))
            slice.push(textRecord(segment, position, { sequence, at, kind: KIND[kind] }));
        }
        yield slice;
        if (wanted.isFull) return;
      }
    }
  }

  #newReading(): Reading {
    const { gate, clock } = this.#options;
    const log = this.#options.log();
    const archive = this.#options.archive();
    const shared = {
      gate,
      now: (): number => clock.wallTime(),
      drop: (segment: StoredSegment): void => this.#options.archive()?.drop(segment),
    };
    const { stored, life } = archive ?? { stored: NO_SEGMENTS, life: 0 };
    if (this.#ended?.stored !== stored) this.#ended = { stored, lives: endedLives(stored, life) };
    const { lives } = this.#ended;
    if (log === undefined) return new Reading({ ...shared, lives, nextSequence: archive?.nextSequence ?? 0 });
    log.noticeClockStep();
    const current = currentLife(stored, life, log);
    return new Reading({ ...shared, lives: [...lives, current], nextSequence: log.nextSequence });
  }

  #claimsOf(key: Readonly<PrefixRegister>): ClaimsByKey {
    return claimsByKey(keysOf(key), (text) => this.#options.ipcache.claimsOf(text));
  }

  async #moment(
    reading: Reading,
    key: Readonly<PrefixRegister>,
    { point, reason }: RequestedMoment<PointInLives>,
    current: ClaimsByKey,
  ): Promise<PrefixMoment> {
    const retained = reading.retained;
    if (point === undefined) return unretainedMoment(key, retained, reason);
    const life = reading.lifeOf(point);
    const { past, isKnown } = await this.#pastIn(reading, keysOf(key), point, current);
    const uncertainty = reason ?? reading.lostReason ?? (isKnown ? undefined : reasonUnproven(life, point));
    const wallOf = (ms: number): number => life.clock.wallOf(ms);
    const certainty = certaintyOf(life, point, uncertainty);
    const known = { claimsComplete: life.isLive, certainty, retained };
    return momentOf(key, { ms: point.lifeMs, past, wallOf, ...known });
  }

  async #pastIn(
    reading: Reading,
    keys: readonly PrefixRegister[],
    point: PointInLives,
    current: ClaimsByKey,
  ): Promise<KnownPast> {
    const life = reading.lifeOf(point);
    if (!life.isLive) return this.#pastInEnded(reading, keys, point, current);
    const state = new PastState(current);
    const isLater = isLaterThan(point);
    for await (const changes of reading.changesOf(life, keys))
      for (const change of changes) {
        if (isLater(change)) state.undo(change);
        else if (state.findStarts(change)) return { past: state.result(), isKnown: true };
      }
    return { past: state.result(), isKnown: true };
  }

  /** Like {@link PastReader.#pastIn}, for a moment of an ended life. */
  async #pastInEnded(
    reading: Reading,
    keys: readonly PrefixRegister[],
    point: PointInLives,
    current: ClaimsByKey,
  ): Promise<KnownPast> {
    const life = reading.lifeOf(point);
    const state = new EarlierLifeState(keys.map(formatKey));
    const isLater = isLaterThan(point);
    for await (const changes of reading.changesOf(life, keys))
      for (const change of changes) state.add(change, isLater(change));
    const past = state.result(point.lifeMs, (fromMs, toMs) => isLostBetween(life, fromMs, toMs));
    if (state.hasRecords) return { past, isKnown: past.isKnown };
    // Without a record, use the state of the next life before its first change (-1).
    const next: PointInLives = { life: point.life + 1, lifeMs: -1, endSequence: undefined };
    if (next.life >= reading.lives.length) return { past, isKnown: false };
    const later = await this.#pastIn(reading, keys, next, current);
    const claims = later.past.claims.map((claim) => ({ ...claim, since: undefined, until: undefined }));
    const unknown = { effectiveSince: undefined, effectiveUntil: undefined };
    return { past: { claims, decidedBy: ruleOfKnown(claims), ...unknown }, isKnown: false };
  }
}

/** Returns why an answer in an earlier life is not certain if no record proves it. */
function reasonUnproven(life: Life, { lifeMs: ms }: PointInLives): Uncertainty {
  return isLostBetween(life, ms, ms) ? 'lost' : 'agent-not-running';
}

/** The claims on a prefix at a moment, and whether the visible one is known. */
interface KnownPast {
  readonly past: PastPrefix;
  readonly isKnown: boolean;
}

/**
 * Returns the visible claims before and after a change of an ended life, if its record proves both. A full-length
 * prefix has two keys: the claim of the CIDR is visible only if the endpoint has none (I4).
 */
function recordedEffect(
  { effect, key, before, after }: TimelineChange,
  keys: number,
): PrefixRecord['effective'] {
  const provesBoth = effect === EFFECT.before + EFFECT.after;
  if (!provesBoth) return undefined;
  const isEndpoint = !key.includes('/');
  const isVisible = keys === 1 || (isEndpoint && before !== undefined && after !== undefined);
  return isVisible ? { before, after } : undefined;
}

/** Accepts a bound of a range. NaN would exclude all records. */
const BOUND: Check = optional((value) =>
  typeof value === 'number' && !Number.isNaN(value)
    ? undefined
    : ` must be a number, not ${showValue(value)}`,
);
const RANGE: Check = optional(
  objectWith({
    from: BOUND,
    to: BOUND,
    fromSequence: BOUND,
    beforeSequence: BOUND,
    identity: BOUND,
    limit: BOUND,
  }),
);

checkArguments(PastReader, {
  at: { key: TEXT, when: WHEN },
  lookup: { ip: TEXT, when: WHEN },
  changedSince: { when: WHEN, maxKeys: NUMBER },
  of: { key: TEXT, range: RANGE },
  records: { range: RANGE },
  documentAt: { kind: TEXT, key: TEXT, current: optional(OBJECT), when: WHEN },
  documentsOf: { kind: TEXT, key: TEXT, range: RANGE },
});
