import { assert } from '../base/assert.ts';
import type { Clock } from '../base/clock.ts';
import type { TurnGate } from '../base/turn-gate.ts';
import { EFFECT } from '../ipcache/claims/claim-state.ts';
import type { IPCache } from '../ipcache/ipcache.ts';
import { addressBits, type Family, maskWords } from '../net/address-words.ts';
import { copyRegister, formatKey, type PrefixRegister, parseKey, prefixRegister } from '../net/prefix.ts';
import { DamagedError } from './byte-buffer.ts';
import type { ChangeLog } from './change-log.ts';
import { ChangedPrefixes, type VisibleClaim } from './changed-prefixes.ts';
import { type Cut, isLaterThan, momentOf, unheldMoment } from './cut.ts';
import type { SegmentArchive, StoredSegment } from './disk/segment-archive.ts';
import { type DocumentChange, type PastFields, undoChange } from './document-change.ts';
import { EndedState } from './ended-state.ts';
import {
  currentLife,
  endedLives,
  isFloorOf,
  isLostBetween,
  isUndoUncertain,
  type Life,
  type SegmentPart,
  uncertaintyAt,
} from './lives.ts';
import {
  type ClaimsByKey,
  changesOfKeys,
  claimsByKey,
  keysOf,
  type PastPrefix,
  PastState,
  type TimelineChange,
} from './prefix-timeline.ts';
import { changeAt, inRange, prefixRecord, type RecordPlace, recordAt, textRecord } from './records.ts';
import { type ClaimChange, KIND, keyHash, type Segment, textHash } from './segment.ts';
import type {
  DocumentMoment,
  Held,
  HistoryRange,
  HistoryRecord,
  Moment,
  PrefixRecord,
  Uncertainty,
  When,
} from './types.ts';

/** Records that are read in one step: 1 to 2 ms, because each is decoded and undone. */
const PER_SLICE = 128;

const NONE: readonly StoredSegment[] = [];

/** Options of {@link PastReader}. */
export interface PastReaderOptions {
  readonly ipcache: IPCache;
  readonly clock: Clock;
  readonly gate: TurnGate;
  /** Undefined before the start. */
  readonly log: () => ChangeLog | undefined;
  /** Undefined if nothing is stored. */
  readonly archive: () => SegmentArchive | undefined;
}

/** The place of a moment between the records of all lives. */
interface LifeCut extends Cut {
  /** Index of its life. */
  readonly life: number;
}

/** The prefixes that changed after a moment; see {@link PastReader.changedSince}. */
export interface ChangedSince extends Pick<Moment, 'at' | 'certain' | 'reason' | 'held'> {
  /** The visible claim of the moment by CIDR; undefined: there was none. Prefixes that are not contained are as they are now. */
  readonly prefixes: ReadonlyMap<string, VisibleClaim | undefined>;
}

/** A question: the lives when it was asked, and whether a segment could not be read since. */
interface Reading {
  readonly lives: readonly Life[];
  readonly nextSequence: number;
  isLost: boolean;
}

/** A moment that was asked for. Without `cut`, it is not held. */
interface Asked {
  readonly cut: LifeCut | undefined;
  readonly reason: Uncertainty | undefined;
}

/**
 * Answers like `History`, also from the segments on disk: those of the current process and of earlier ones. Work is done in slices
 * of a `TurnGate`. An answer is as of the call: later changes have no influence. If a segment cannot be read, it is dropped, and
 * the answer is not certain (`lost`).
 */
export class PastReader {
  readonly #options: PastReaderOptions;
  /** The ended lives of a list of stored segments. */
  #ended: { readonly stored: readonly StoredSegment[]; readonly lives: readonly Life[] } | undefined;

  /** @internal */
  constructor(options: PastReaderOptions) {
    this.#options = options;
  }

  /** The interval of the held changes. Between two processes there are no changes. */
  get held(): Held {
    return this.#heldBy(this.#read());
  }

  #heldBy({ lives }: Reading): Held {
    const now = this.#options.clock.wallTime();
    const from = lives.reduce((oldest, life) => Math.min(oldest, life.clock.wallOf(life.floorMs)), now);
    return { from, to: now };
  }

  /** Returns the wall time of the record with a sequence number; undefined if it is not held. */
  async timeOf(sequence: number): Promise<number | undefined> {
    const reading = this.#read();
    const { cut } = await this.#cutOf(reading, { sequence });
    return cut && this.#lifeOf(reading, cut).clock.wallOf(cut.ms);
  }

  /** See `History.at`. In an earlier life, only claims that a record names are known (`claimsComplete`). */
  async at(key: string, when: When): Promise<Moment | undefined> {
    const register = prefixRegister();
    if (!parseKey(key, register)) return undefined;
    const reading = this.#read();
    const now = this.#claimsOf(register);
    const asked = await this.#cutOf(reading, when);
    return this.#moment(reading, register, asked, now);
  }

  /** See `History.lookup`. */
  async lookup(ip: string, when: When): Promise<Moment | undefined> {
    const address = prefixRegister();
    if (!parseKey(ip, address) || address.form !== 'endpoint') return undefined;
    const reading = this.#read();
    const candidates = Array.from(covering(address, this.#lengths(reading, address.family)), (key) => ({
      key,
      now: this.#claimsOf(key),
    }));
    const asked = await this.#cutOf(reading, when);
    if (asked.cut === undefined) return this.#moment(reading, address, asked, new Map());
    const life = this.#lifeOf(reading, asked.cut);
    // In an earlier life, a prefix of any length may have existed before the records and ended after them.
    const unknown = life.isLive ? undefined : this.#unknown(life, asked.cut);
    let none: Moment | undefined;
    let uncertainty: Uncertainty | undefined;
    for (const [index, { key, now }] of candidates.entries()) {
      const moment = await this.#moment(reading, key, asked, now);
      const isSkipped = key.length !== addressBits(key.family) - index;
      uncertainty ??= moment.reason ?? (isSkipped ? unknown : undefined);
      const reason = uncertainty ?? (reading.isLost ? 'lost' : undefined);
      const judged = { ...moment, certain: reason === undefined, reason };
      if (moment.effective !== undefined) return judged;
      // The first candidate is the prefix of the address itself.
      none = { ...judged, ...(none && { prefix: none.prefix }) };
    }
    const isComplete = candidates.length > addressBits(address.family);
    const reason = none?.reason ?? (isComplete ? undefined : unknown);
    return none && { ...none, certain: reason === undefined, reason };
  }

  /**
   * Returns the prefixes that changed after a moment of the current process, as they were then: together with a snapshot that was
   * taken at the call, all prefixes of the moment. Resolves to `earlier` if the moment is not in the current process, to
   * `too-many` if more than `maxKeys` keys have changed. Costs a pass over all later records.
   */
  async changedSince(when: When, maxKeys: number): Promise<ChangedSince | 'earlier' | 'too-many'> {
    const reading = this.#read();
    const asked = await this.#cutOf(reading, when);
    const { cut } = asked;
    const life = cut && this.#lifeOf(reading, cut);
    if (cut === undefined || life?.isLive !== true) return 'earlier';
    const { ipcache } = this.#options;
    const changed = new ChangedPrefixes((key) => ipcache.claimsOf(key));
    const register = prefixRegister();
    const isLater = isLaterThan(cut);
    for (const part of life.parts.toReversed()) {
      if (part.lastMs < cut.ms) break;
      const segment = await this.#load(reading, part);
      if (segment === undefined) continue;
      let read = 0;
      for (const { position, kind, ms } of segment.newestHeads()) {
        if (++read % PER_SLICE === 0) await this.#pass();
        if (kind !== KIND.prefix || position >= part.endPosition) continue;
        if (!isLater({ segment, position, ms })) break;
        changed.addOlder(...claimChange(segment, position, register));
      }
      if (changed.size > maxKeys) return 'too-many';
    }
    const prefixes = new Map<string, VisibleClaim | undefined>();
    let next = this.#addLater(reading, changed, reading.nextSequence);
    for (const [prefix, claim] of changed.visible()) {
      prefixes.set(prefix, claim);
      if (prefixes.size % PER_SLICE !== 0) continue;
      await this.#pass();
      next = this.#addLater(reading, changed, next);
    }
    const log = this.#options.log();
    // Changes may have been lost since the question.
    const reason = asked.reason ?? (reading.isLost ? 'lost' : log && uncertaintyAt(log, cut));
    const certainty = { certain: reason === undefined, reason, held: this.#heldBy(reading) };
    return { at: life.clock.wallOf(cut.ms), ...certainty, prefixes };
  }

  /** Adds the changes from a sequence number on, because they are not in the claims of now. Returns the next sequence number. */
  #addLater(reading: Reading, changed: ChangedPrefixes, from: number): number {
    const log = this.#options.log();
    if (log === undefined) return from;
    if ((log.segments[0]?.firstSequence ?? from) > from) reading.isLost = true;
    const register = prefixRegister();
    for (const segment of log.segments) {
      if (segment.endSequence <= from) continue;
      const positions: number[] = [];
      for (const { position, kind, sequence } of segment.newestHeads()) {
        if (sequence < from) break;
        if (kind === KIND.prefix) positions.push(position);
      }
      for (const position of positions.reverse())
        changed.addNewer(...claimChange(segment, position, register));
    }
    return log.nextSequence;
  }

  /** See `History.of`. Yields slices. In an earlier life, `effective` is present only if the record proves both sides. */
  async *of(key: string, range: HistoryRange = {}): AsyncGenerator<readonly PrefixRecord[], void, void> {
    const register = prefixRegister();
    if (!parseKey(key, register)) return;
    const reading = this.#read();
    const keys = keysOf(register);
    const isInRange = inRange(range);
    let rest = range.limit ?? Number.POSITIVE_INFINITY;
    const state = new PastState(this.#claimsOf(register));
    for (const life of reading.lives.toReversed()) {
      let visibleAfter = state.visible();
      for await (const changes of this.#changesOf(reading, life, keys)) {
        const slice: PrefixRecord[] = [];
        for (const change of changes) {
          let effective: PrefixRecord['effective'];
          if (life.isLive) {
            state.undo(change);
            const visibleBefore = state.visible();
            if (!reading.isLost && !isUndoUncertain(life, change.ms))
              effective = { before: visibleBefore, after: visibleAfter };
            visibleAfter = visibleBefore;
          } else if (change.effect === EFFECT.was + EFFECT.is && isVisible(change, keys.length))
            effective = { before: change.before, after: change.after };
          const record = prefixRecord(change, life.clock, effective);
          if (isInRange(record) && rest-- > 0) slice.push(record);
        }
        yield slice;
        if (rest <= 0) return;
      }
    }
  }

  /** See `History.records`. Yields slices. */
  async *records(range: HistoryRange = {}): AsyncGenerator<readonly HistoryRecord[], void, void> {
    const reading = this.#read();
    const before = Math.min(range.before ?? Number.POSITIVE_INFINITY, reading.nextSequence);
    const isInRange = inRange({ ...range, before });
    let rest = range.limit ?? Number.POSITIVE_INFINITY;
    for (const life of reading.lives.toReversed()) {
      for (const part of life.parts.toReversed()) {
        if (part.firstSequence >= before) continue;
        if (range.since !== undefined && part.endSequence <= range.since) continue;
        if (range.from !== undefined && life.clock.wallOf(part.lastMs) < range.from) continue;
        if (range.to !== undefined && life.clock.wallOf(part.startMs) > range.to) continue;
        const segment = await this.#load(reading, part);
        if (segment === undefined) continue;
        let slice: HistoryRecord[] = [];
        let read = 0;
        for (const { position, kind, ms, sequence } of segment.newestHeads()) {
          if (++read % PER_SLICE === 0) {
            yield slice;
            slice = [];
            await this.#pass();
          }
          if (kind === KIND.batch) continue;
          const at = life.clock.wallOf(ms);
          if (!isInRange({ sequence, at })) continue;
          slice.push(recordAt(segment, position, sequence, at));
          if (--rest <= 0) break;
        }
        yield slice;
        if (rest <= 0) return;
      }
    }
  }

  /** See `History.documentAt`. */
  async documentAt(
    kind: 'service' | 'node',
    key: string,
    current: PastFields | undefined,
    when: When,
  ): Promise<DocumentMoment> {
    const reading = this.#read();
    const { cut, reason } = await this.#cutOf(reading, when);
    const held = this.#heldBy(reading);
    if (cut === undefined) {
      const none = { document: undefined, since: undefined, until: undefined };
      return { at: held.from, ...none, certain: false, reason, held };
    }
    const life = this.#lifeOf(reading, cut);
    const { document, isKnown, since, until } = await this.#documentIn(reading, { kind, key, current }, cut);
    const wall = (ms: number | undefined): number | undefined =>
      ms === undefined ? undefined : life.clock.wallOf(ms);
    const uncertainty = reason ?? (reading.isLost ? 'lost' : isKnown ? undefined : 'agent-not-running');
    const times = { at: life.clock.wallOf(cut.ms), since: wall(since), until: wall(until) };
    return { ...times, document, certain: uncertainty === undefined, reason: uncertainty, held };
  }

  /** See `History.documentsOf`. Yields slices. */
  async *documentsOf(
    kind: 'service' | 'node',
    key: string,
    range: HistoryRange = {},
  ): AsyncGenerator<readonly HistoryRecord[], void, void> {
    const reading = this.#read();
    const isInRange = inRange(range);
    let rest = range.limit ?? Number.POSITIVE_INFINITY;
    for (const life of reading.lives.toReversed()) {
      for await (const places of this.#placesOf(reading, life, kind, key)) {
        const slice: HistoryRecord[] = [];
        for (const { segment, position, ms } of places) {
          const place = { sequence: segment.sequenceOf(position), at: life.clock.wallOf(ms) };
          if (!isInRange(place) || rest-- <= 0) continue;
          slice.push(textRecord(segment, position, { ...place, kind: KIND[kind] }));
        }
        yield slice;
        if (rest <= 0) return;
      }
    }
  }

  #read(): Reading {
    const changes = this.#options.log();
    const archive = this.#options.archive();
    if (changes === undefined) return { lives: [], nextSequence: 0, isLost: false };
    changes.checkWall();
    const { stored, life } = archive ?? { stored: NONE, life: 0 };
    if (this.#ended?.stored !== stored) this.#ended = { stored, lives: endedLives(stored, life) };
    const lives = [...this.#ended.lives, currentLife(stored, life, changes)];
    return { lives, nextSequence: changes.nextSequence, isLost: false };
  }

  #lifeOf({ lives }: Reading, { life }: Pick<LifeCut, 'life'>): Life {
    const found = lives[life];
    assert(found !== undefined, 'a moment is in a held life');
    return found;
  }

  #claimsOf(key: Readonly<PrefixRegister>): ClaimsByKey {
    return claimsByKey(keysOf(key), (text) => this.#options.ipcache.claimsOf(text));
  }

  #pass(): Promise<boolean> {
    const { gate } = this.#options;
    return gate.pass(gate.slice);
  }

  /** Returns the place of a moment between the records, and why answers for it are not certain. */
  async #cutOf(reading: Reading, when: When): Promise<Asked> {
    if (typeof when === 'object') return this.#cutOfSequence(reading, when.sequence);
    const { lives } = reading;
    let cut: LifeCut | undefined;
    let times = 0;
    for (let life = lives.length - 1; life >= 0; life--) {
      const { clock, floorMs, endMs } = lives[life] as Life; // below the length
      for (const ms of clock.timesOf(when).toReversed()) {
        if (ms < 0 || ms >= endMs) continue;
        times++;
        if (ms >= floorMs) cut ??= { life, ms, endSequence: undefined };
      }
    }
    if (cut === undefined) return outsideOf(lives, when);
    if (times > 1 || when > this.#options.clock.wallTime()) return { cut, reason: 'clock' };
    return { cut, reason: uncertaintyAt(this.#lifeOf(reading, cut), cut) };
  }

  async #cutOfSequence(reading: Reading, sequence: number): Promise<Asked> {
    for (const [index, life] of reading.lives.entries()) {
      const [first] = life.parts;
      // Directly before the first record.
      const isFloor = first !== undefined && isFloorOf(first, sequence);
      const part = life.parts.find(
        ({ firstSequence, endSequence }) => sequence >= firstSequence && sequence < endSequence,
      );
      if (part === undefined && !isFloor) continue;
      const segment = part && (await this.#load(reading, part));
      if (part !== undefined && segment === undefined) break;
      const ms = segment === undefined ? life.floorMs : segment.msAt(segment.positionOf(sequence));
      const cut = { life: index, ms, endSequence: sequence + 1 };
      return { cut, reason: uncertaintyAt(life, cut) };
    }
    return { cut: undefined, reason: 'before-held' };
  }

  /** Loads a segment. Returns undefined if it cannot be read; it is dropped then. */
  async #load(reading: Reading, part: SegmentPart): Promise<Segment | undefined> {
    try {
      return await part.load();
    } catch {
      // Its moments are reported as lost.
      if (part.stored !== undefined) this.#options.archive()?.drop(part.stored);
      reading.isLost = true;
      return undefined;
    }
  }

  /** Yields the changes of the keys of a prefix in a life, newest first, in slices. */
  async *#changesOf(
    reading: Reading,
    life: Life,
    keys: readonly PrefixRegister[],
  ): AsyncGenerator<readonly TimelineChange[], void, void> {
    const hashes = keys.map(keyHash);
    for (const part of life.parts.toReversed()) {
      if (!hashes.some((hash) => part.mayContain(hash))) continue;
      const segment = await this.#load(reading, part);
      if (segment === undefined) continue;
      yield* this.#slices(reading, part, changesOfKeys(segment, keys));
    }
  }

  /** Yields the places of the records of a service or a node in a life, newest first, in slices. */
  async *#placesOf(
    reading: Reading,
    life: Life,
    kind: 'service' | 'node',
    key: string,
  ): AsyncGenerator<readonly RecordPlace[], void, void> {
    const hash = textHash(KIND[kind], key);
    for (const part of life.parts.toReversed()) {
      if (!part.mayContain(hash)) continue;
      const segment = await this.#load(reading, part);
      if (segment !== undefined) yield* this.#slices(reading, part, placesIn(segment, kind, key));
    }
  }

  /** Yields what a segment contains in slices, without what was recorded after the question. */
  async *#slices<T extends { readonly position: number }>(
    reading: Reading,
    part: SegmentPart,
    items: Iterator<T, void, void>,
  ): AsyncGenerator<readonly T[], void, void> {
    for (let isMore = true; isMore; ) {
      const slice: T[] = [];
      try {
        while (slice.length < PER_SLICE) {
          const { value } = items.next();
          if (value === undefined) {
            isMore = false;
            break;
          }
          if (value.position < part.endPosition) slice.push(value);
        }
      } catch (error) {
        if (!(error instanceof DamagedError) || part.stored === undefined) throw error;
        this.#options.archive()?.drop(part.stored);
        reading.isLost = true;
        isMore = false;
      }
      yield slice;
      if (isMore) await this.#pass();
    }
  }

  async #moment(
    reading: Reading,
    key: Readonly<PrefixRegister>,
    { cut, reason }: Asked,
    now: ClaimsByKey,
  ): Promise<Moment> {
    const held = this.#heldBy(reading);
    if (cut === undefined) return unheldMoment(key, held, reason);
    const life = this.#lifeOf(reading, cut);
    const { past, isKnown } = await this.#pastIn(reading, keysOf(key), cut, now);
    const uncertainty = reason ?? (reading.isLost ? 'lost' : isKnown ? undefined : this.#unknown(life, cut));
    const wallOf = (ms: number): number => life.clock.wallOf(ms);
    const known = { claimsComplete: life.isLive, reason: uncertainty, held };
    return momentOf(key, { ms: cut.ms, past, wallOf, ...known });
  }

  /** Returns why nothing proves a claim of an earlier life. */
  #unknown(life: Life, { ms }: LifeCut): Uncertainty {
    return isLostBetween(life, ms, ms) ? 'lost' : 'agent-not-running';
  }

  /** Returns the claims on a prefix at a moment, and whether the visible one is known. */
  async #pastIn(
    reading: Reading,
    keys: readonly PrefixRegister[],
    cut: LifeCut,
    now: ClaimsByKey,
  ): Promise<{ readonly past: PastPrefix; readonly isKnown: boolean }> {
    const { lives } = reading;
    const asked = this.#lifeOf(reading, cut);
    if (!asked.isLive) {
      const state = new EndedState(keys.map(formatKey));
      const isLater = isLaterThan(cut);
      for await (const changes of this.#changesOf(reading, asked, keys))
        for (const change of changes) state.add(change, isLater(change));
      const past = state.result(cut.ms, (fromMs, toMs) => isLostBetween(asked, fromMs, toMs));
      if (state.hasRecords) return { past, isKnown: past.isKnown };
      // The state at the beginning of the next life.
      const next: LifeCut = { life: cut.life + 1, ms: -1, endSequence: undefined };
      if (next.life >= lives.length) return { past, isKnown: false };
      const later = await this.#pastIn(reading, keys, next, now);
      const claims = later.past.claims.map((claim) => ({ ...claim, since: undefined, until: undefined }));
      const unknown = { effectiveSince: undefined, effectiveUntil: undefined };
      return { past: { claims, decidedBy: later.past.decidedBy, ...unknown }, isKnown: false };
    }
    const state = new PastState(now);
    const isLater = isLaterThan(cut);
    for await (const changes of this.#changesOf(reading, asked, keys))
      for (const change of changes) {
        if (isLater(change)) state.undo(change);
        else if (state.note(change)) return { past: state.result(), isKnown: true };
      }
    return { past: state.result(), isKnown: true };
  }

  /** Returns a service or node at a moment, and whether the records prove it. */
  async #documentIn(
    reading: Reading,
    asked: {
      readonly kind: 'service' | 'node';
      readonly key: string;
      readonly current: PastFields | undefined;
    },
    cut: LifeCut,
  ): Promise<{
    readonly document: PastFields | undefined;
    readonly isKnown: boolean;
    readonly since: number | undefined;
    readonly until: number | undefined;
  }> {
    const { kind, key, current } = asked;
    const life = this.#lifeOf(reading, cut);
    const isLater = isLaterThan(cut);
    const later: DatedChange[] = [];
    const earlier: DatedChange[] = [];
    let document = current;
    let [since, until]: (number | undefined)[] = [];
    for await (const places of this.#placesOf(reading, life, kind, key)) {
      for (const place of places) {
        const change = changeAt(place);
        const wasLater = isLater(place);
        if (wasLater) until = place.ms;
        else since ??= place.ms;
        if (!life.isLive) (wasLater ? later : earlier).push({ ms: place.ms, change });
        else if (wasLater) document = undoChange(document, change);
      }
      if (life.isLive && since !== undefined) break;
    }
    if (life.isLive) return { document, isKnown: true, since, until };
    const found = provenDocument(kind, later, earlier);
    const isHeld =
      found !== undefined && !isLostBetween(life, Math.min(found.ms, cut.ms), Math.max(found.ms, cut.ms));
    if (found !== undefined) return { document: found.document, isKnown: isHeld, since, until };
    const next = cut.life + 1;
    if (next >= reading.lives.length) return { document: undefined, isKnown: false, since, until };
    const after = await this.#documentIn(reading, asked, { life: next, ms: -1, endSequence: undefined });
    document = after.document;
    for (const { change } of later) document = undoChange(document, change);
    return { document, isKnown: false, since, until };
  }

  /** Returns the lengths of current and recorded prefixes, longest first. */
  #lengths({ lives }: Reading, family: Family): readonly number[] {
    const { ipv4, ipv6 } = this.#options.ipcache.status();
    const cidrs: Readonly<Record<string, number>> = (family === 4 ? ipv4 : ipv6).cidrs;
    const bits = addressBits(family);
    const all = Array.from({ length: bits + 1 }, (_, index) => bits - index);
    return all.filter(
      (length) =>
        length === bits ||
        cidrs[length] !== undefined ||
        lives.some(({ parts }) => parts.some((part) => part.hasLength(family, length))),
    );
  }
}

/**
 * Returns true if the effective claims of a key are those of its prefix, too. A full-length prefix has two keys: the claim of the
 * endpoint is visible, and the other one only if there is none (I4).
 */
function isVisible({ key, before, after }: TimelineChange, keys: number): boolean {
  const isEndpoint = !key.includes('/');
  return keys === 1 || (isEndpoint && before !== undefined && after !== undefined);
}

/** Returns the key and the change of a record. */
function claimChange(
  segment: Segment,
  position: number,
  register: PrefixRegister,
): readonly [key: string, change: ClaimChange] {
  const change = segment.claimAt(position, register);
  return [formatKey(register), change];
}

/** A change of a service or a node, and its time. */
interface DatedChange {
  readonly ms: number;
  readonly change: DocumentChange;
}

/** Returns the place of a time that is in no life: at the end of the one before, or where its clock was set forward. */
function outsideOf(lives: readonly Life[], when: number): Asked {
  for (let life = lives.length - 1; life >= 0; life--) {
    const { clock, floorMs, endMs, afterEnd, isLive } = lives[life] as Life; // below the length
    if (clock.wallOf(floorMs) > when) continue;
    // The clock was set forward over this time: the state is that of the moment at which it was set.
    const piece = clock.pieces.find(({ ms, offset }) => ms > floorMs && ms < endMs && ms + offset > when);
    if (piece !== undefined && clock.timesOf(when).length === 0)
      return { cut: { life, ms: piece.ms - 1, endSequence: undefined }, reason: 'clock' };
    if (isLive) continue;
    return { cut: { life, ms: endMs, endSequence: undefined }, reason: afterEnd };
  }
  return { cut: undefined, reason: 'before-held' };
}

/**
 * Returns a document at a moment of an ended life, from the nearest record that has all of it. `later` and `earlier` are newest first.
 * A record of a service has all of it if it was created or deleted; a record of a node always has.
 */
function provenDocument(
  kind: 'service' | 'node',
  later: readonly DatedChange[],
  earlier: readonly DatedChange[],
): { readonly document: PastFields | undefined; readonly ms: number } | undefined {
  const isWhole = ({ change: { before, after } }: DatedChange): boolean =>
    kind === 'node' || before === undefined || after === undefined;
  const left = earlier.findIndex(isWhole);
  const begun = earlier[left];
  if (begun !== undefined) {
    let document = begun.change.after;
    for (const { change } of earlier.slice(0, left).reverse())
      document = undoChange(document, { before: change.after, after: change.before });
    return { document, ms: begun.ms };
  }
  const right = later.findLastIndex(isWhole);
  const ended = later[right];
  if (ended === undefined) return undefined;
  let document = ended.change.before;
  for (const { change } of later.slice(right + 1)) document = undoChange(document, change);
  return { document, ms: ended.ms };
}

/** Yields the places of the records of a service or a node in a segment, newest first. */
export function* placesIn(
  segment: Segment,
  kind: 'service' | 'node',
  key: string,
): Generator<RecordPlace, void, void> {
  let at = segment.ofText(segment.newest(textHash(KIND[kind], key)), KIND[kind], key);
  while (at >= 0) {
    yield { segment, position: at, ms: segment.msAt(at) };
    at = segment.ofText(segment.previous(at), KIND[kind], key);
  }
}

/** Yields the prefixes that contain an address, longest first. */
export function* covering(
  address: Readonly<PrefixRegister>,
  lengths: readonly number[],
): Generator<PrefixRegister, void, void> {
  for (const length of lengths) {
    const key = copyRegister(address);
    maskWords(key, length);
    key.length = length;
    key.form = 'cidr';
    yield key;
  }
}
