import type { Clock } from '../base/clock.ts';
import { copyRegister, type PrefixRegister } from '../net/prefix.ts';
import { GatheredChanges } from './gathered-changes.ts';
import { type LifeClock, RunningLife } from './life-clock.ts';
import type { CertaintyInputs } from './lives.ts';
import { type ClaimChange, KIND, type TextChange, WITHDRAWAL } from './record-reader.ts';
import { Segment } from './segment.ts';
import type { ChangeCause, MarkKind, Uncertainty } from './types.ts';

/**
 * Limits of the size of a segment, which is a sixteenth of the memory limit, or of the disk limit if that is lower.
 */
const MAX_SEGMENT_BYTES: number = 4 << 20;
const MIN_SEGMENT_BYTES: number = 16 << 10;
const SEGMENTS_IN_LIMIT = 16;

/** Prefix changes are lost if more than `MAX_RATE` arrived in each of the last `FAST_SECONDS` seconds. */
const MAX_RATE = 20_000;
const FAST_SECONDS = 5;

/** Larger steps of the wall clock are recorded as marks. */
const MARKED_STEP_MS = 1000;

/** Memory that is reserved for the current segment, in segment sizes, because its buffer may be half empty. */
const RESERVED_SEGMENTS = 2;

/** An interval of uncertain answers, for all prefixes and documents. Times are milliseconds since the life began. */
export interface UncertainSpan {
  readonly reason: Uncertainty;
  /** The cause: a cluster, a kind of Kubernetes objects, or the key of a lost document; empty if there is none. */
  readonly subject: string;
  /** Inclusive. */
  readonly fromMs: number;
  /** Exclusive; undefined if the interval has not ended. */
  toMs: number | undefined;
}

/** Options of a {@link ChangeLog} whose segments are also stored on disk. */
export interface ChangeLogDisk {
  readonly maxBytes: number;
  /** Sequence number of the first record. Numbers continue from life to life. */
  readonly firstSequence: number;
  /** Called when a segment is full. Must not throw. */
  readonly onSealed: () => void;
}

/** Returns the size in bytes at which a segment is full: at most a sixteenth of the memory, and of the disk. */
function segmentSize(maxMemory: number, maxDisk = Number.POSITIVE_INFINITY): number {
  const most = Math.min(MAX_SEGMENT_BYTES, Math.floor(Math.min(maxMemory, maxDisk) / SEGMENTS_IN_LIMIT));
  return Math.max(MIN_SEGMENT_BYTES, most);
}

/**
 * Returns true if two causes are equal. Consecutive changes with equal causes share a batch head, the record of the
 * cause.
 */
function sameCause(a: ChangeCause | undefined, b: ChangeCause | undefined): boolean {
  if (a === b) return true;
  const isSame = a?.store === b?.store && a?.revision === b?.revision && a?.kind === b?.kind;
  return isSame && a?.withdrawal === b?.withdrawal;
}

/** Counts of the records of a history. */
export interface ChangeLogCounts {
  /** Records by kind since the start. */
  readonly records: Readonly<Record<'prefix' | 'service' | 'node' | 'mark' | 'batch', number>>;
  /**
   * Changes that were not recorded: too many per second for several seconds (`rate`), or a document too large for a
   * segment (`size`).
   */
  readonly lost: Readonly<Record<'rate' | 'size', number>>;
  /** Memory of the records and their indexes in bytes. */
  readonly bytes: number;
  /** Number of changes and marks in memory. */
  readonly recordsInMemory: number;
}

/**
 * The records of the current life, in segments, the oldest dropped first so that they fit into the memory. The last
 * changes of prefixes are encoded together, at the latest when the segments are read.
 */
export class ChangeLog implements CertaintyInputs {
  readonly isLive = true;
  readonly life: RunningLife;
  readonly #maxMemory: number;
  readonly #segmentBytes: number;
  #segments: Segment[];
  readonly #gathered = new GatheredChanges();
  #spans: UncertainSpan[] = [];
  readonly #records: Record<keyof ChangeLogCounts['records'], number> = {
    prefix: 0,
    service: 0,
    node: 0,
    mark: 0,
    batch: 0,
  };
  #cause: ChangeCause | undefined;
  #lastCause: ChangeCause | undefined;
  /** Time of the newest record that was dropped. States before this time are not retained. */
  #floorMs: number;
  // The rate of prefix changes. `#fastSeconds` is the number of fast seconds directly before the current one.
  #secondEndMs = 1000;
  #changesInSecond = 0;
  #fastSeconds = 0;
  #lostByRate = 0;
  #lostBySize = 0;
  /** The current interval of changes lost by their rate, and their number. */
  #rateLoss: UncertainSpan | undefined;
  #rateLossCount = 0;
  /**
   * By cluster, empty for the local one: the interval from the start of the life to the last confirmation or release of
   * one of its restored claims. Answers for this interval may lack these claims.
   */
  readonly #restored = new Map<string, UncertainSpan>();
  /** Begins when the recording ended. */
  #recordingEnd: UncertainSpan | undefined;
  /** Sum of the steps of the wall clock since the last {@link ChangeLog.markClockSteps}, in milliseconds. */
  #clockSteps = 0;
  #stateVersion = 0;
  #mustRoll = false;
  /** Time of the last change of a prefix. */
  #changeMs = 0;
  readonly #disk: ChangeLogDisk | undefined;

  constructor(clock: Clock, maxMemory: number, disk?: ChangeLogDisk) {
    this.life = new RunningLife(clock);
    this.#maxMemory = maxMemory;
    this.#disk = disk;
    this.#segmentBytes = segmentSize(maxMemory, disk?.maxBytes);
    this.#floorMs = this.life.now();
    this.#segments = [this.#newSegment(0, disk?.firstSequence ?? 1, this.#floorMs)];
  }

  /** Size in bytes at which a segment is full. */
  get segmentBytes(): number {
    return this.#segmentBytes;
  }

  /** A number that increases with each change of {@link ChangeLog.spans} or of {@link ChangeLog.clock}. */
  get stateVersion(): number {
    return this.#stateVersion;
  }

  /** Compares the wall time with the time of the life, and adjusts the clock of the life if the wall clock was set. */
  noticeClockStep(): void {
    const step = this.life.noticeClockStep();
    if (step === 0) return;
    this.#clockSteps += step;
    this.#stateVersion++;
  }

  /** Notices a clock step, and adds a mark if the sum of the steps since the last call is large. */
  markClockSteps(): void {
    this.noticeClockStep();
    if (Math.abs(this.#clockSteps) > MARKED_STEP_MS)
      this.addMark('clock-set', '', `${(this.#clockSteps / 1000).toFixed(1)} s`);
    this.#clockSteps = 0;
  }

  /** Ends the recording. Answers can then not be computed backwards from the current state any more. */
  end(): void {
    this.#recordingEnd ??= this.beginSpan('lost', '');
  }

  /** Time from which on (inclusive) changes are missing; undefined while changes are recorded. */
  get endedMs(): number | undefined {
    return this.#recordingEnd?.fromMs;
  }

  /** The intervals that are stored for later processes: all but the one that begins when the recording ends. */
  get storedSpans(): readonly UncertainSpan[] {
    return this.#spans.filter((span) => span !== this.#recordingEnd);
  }

  /** Begins a new segment with the next record, even if the current one is not full. */
  roll(): void {
    this.#mustRoll = true;
  }

  /** The segments in memory, oldest first. Records are appended to the last one. */
  get segments(): readonly Segment[] {
    this.#encode();
    return this.#segments;
  }

  /** Time of the life since which states are retained. */
  get floorMs(): number {
    this.#encode();
    return this.#floorMs;
  }

  get clock(): LifeClock {
    return this.life.clock;
  }

  get spans(): readonly UncertainSpan[] {
    this.#encode();
    return this.#spans;
  }

  get nextSequence(): number {
    this.#encode();
    return this.#current.endSequence;
  }

  counts(): ChangeLogCounts {
    this.#encode();
    return {
      records: { ...this.#records },
      lost: { rate: this.#lostByRate, size: this.#lostBySize },
      bytes: this.#segments.reduce((sum, segment) => sum + segment.memory, 0),
      recordsInMemory: this.#segments.reduce((sum, segment) => sum + segment.changes, 0),
    };
  }

  /** Sets the cause of the next changes; undefined if they have none. */
  setCause(cause: ChangeCause | undefined): void {
    this.#cause = cause;
  }

  /**
   * Appends a change of a prefix; counts it as lost if changes arrive too fast. `continues`: true if the change has the
   * time of the previous one.
   */
  addClaim(key: Readonly<PrefixRegister>, change: ClaimChange, continues = false): void {
    const ms = continues ? this.#changeMs : this.life.now();
    this.#changeMs = ms;
    if (this.#countAndLimit(ms)) {
      this.#lose(ms);
      return;
    }
    const { writer, before, after, effect } = change;
    const cause = this.#cause;
    this.#gathered.add({ ms, cause, key: copyRegister(key), writer, before, after, effect });
    this.#records.prefix++;
    if (this.#gathered.isFull) this.#encode();
  }

  /** Appends a change of a service or a node. `before` and `after` are JSON. */
  addDocument(kind: 'service' | 'node', key: string, change: TextChange): void {
    const { before = '', after = '' } = change;
    if (this.loseIfTooLarge(key, before.length + after.length)) return;
    const ms = this.life.now();
    this.#encode();
    this.#segmentFor(ms, this.#cause).addText(ms, KIND[kind], key, change);
    this.#records[kind]++;
  }

  /** Returns true if a change of a document with JSON of this length is too large; it is then counted as lost. */
  loseIfTooLarge(key: string, length: number): boolean {
    if (length <= this.#segmentBytes / 2) return false;
    this.#lostBySize++;
    this.endSpan(this.beginSpan('lost', key));
    this.addMark('lost', key, '1');
    return true;
  }

  addMark(mark: MarkKind, subject: string, detail = '', ms: number = this.life.now()): void {
    this.#encode();
    this.#segmentWithRoom(ms).addText(ms, KIND.mark, mark, {
      writer: subject,
      before: undefined,
      after: detail,
    });
    this.#records.mark++;
  }

  beginSpan(reason: Uncertainty, subject: string): UncertainSpan {
    const span = { reason, subject, fromMs: this.life.now(), toMs: undefined };
    this.#spans.push(span);
    this.#stateVersion++;
    return span;
  }

  /** Ends an interval; states from now on are certain again. */
  endSpan(span: UncertainSpan): void {
    span.toMs = this.life.now();
    this.#stateVersion++;
  }

  /**
   * Notes without a record that a restored claim of a cluster was confirmed or released. Later records are not linked
   * to earlier ones. Answers for earlier moments are not certain, because they have the claim that confirms it in its
   * place.
   */
  skipRestored(cluster: string, continues = false): void {
    if (!continues) this.#changeMs = this.life.now();
    this.#encode();
    this.#current.unlink();
    this.#stateVersion++;
    const known = this.#restored.get(cluster);
    if (known !== undefined && this.#spans.includes(known)) known.toMs = this.#changeMs;
    else {
      const times = { fromMs: 0, toMs: this.#changeMs };
      const span = { reason: 'cluster-incomplete', subject: cluster, ...times } as const;
      this.#restored.set(cluster, span);
      this.#spans.push(span);
    }
  }

  get #current(): Segment {
    return this.#segments[this.#segments.length - 1] as Segment; // there is always one
  }

  /** Appends the gathered changes of prefixes. */
  #encode(): void {
    if (this.#gathered.isEmpty) return;
    for (const change of this.#gathered.take(this.#current))
      this.#segmentFor(change.ms, change.cause).addClaim(change.ms, change.key, change);
  }

  /** Returns the segment for the next record, with the batch head of its cause. */
  #segmentFor(ms: number, cause: ChangeCause | undefined): Segment {
    const segment = this.#segmentWithRoom(ms);
    if (sameCause(this.#lastCause, cause)) return segment;
    const { store = '', revision = '', kind, withdrawal = false } = cause ?? {};
    const writer = withdrawal ? WITHDRAWAL : '';
    segment.addText(ms, KIND.batch, store, { writer, before: kind, after: revision });
    this.#records.batch++;
    this.#lastCause = cause;
    return segment;
  }

  /** Returns a segment with room, after dropping the oldest ones if a new one is needed. */
  #segmentWithRoom(ms: number): Segment {
    const current = this.#current;
    if (current.used < this.#segmentBytes && !this.#mustRoll) return current;
    this.#mustRoll = false;
    current.seal();
    const next = this.#newSegment(current.number + 1, current.endSequence, ms);
    this.#segments.push(next);
    this.#lastCause = undefined; // the new segment has no batch head
    this.#disk?.onSealed();
    const maxOtherBytes = this.#maxMemory - RESERVED_SEGMENTS * this.#segmentBytes;
    let memory = this.#segments.reduce((sum, segment) => sum + (segment === next ? 0 : segment.memory), 0);
    while (this.#segments.length > 1 && memory > maxOtherBytes) {
      const dropped = this.#segments.shift() as Segment; // more than one
      memory -= dropped.memory;
      this.#floorMs = Math.max(this.#floorMs, dropped.lastMs);
    }
    const floor = this.#floorMs;
    this.#spans = this.#spans.filter(
      (span) => span.toMs === undefined || span.toMs >= floor || span === this.#rateLoss,
    );
    return next;
  }

  #newSegment(number: number, firstSequence: number, startMs: number): Segment {
    const isStored = this.#disk !== undefined;
    return new Segment({ number, firstSequence, startMs, maxBytes: this.#segmentBytes, isStored });
  }

  /** Counts a change. Returns true if each of the last {@link FAST_SECONDS} seconds had more than {@link MAX_RATE}. */
  #countAndLimit(ms: number): boolean {
    if (ms >= this.#secondEndMs) {
      const isAdjacent = ms < this.#secondEndMs + 1000;
      this.#fastSeconds = isAdjacent && this.#changesInSecond > MAX_RATE ? this.#fastSeconds + 1 : 0;
      this.#secondEndMs = 1000 * (Math.floor(ms / 1000) + 1);
      this.#changesInSecond = 0;
      if (this.#fastSeconds < FAST_SECONDS) this.#endRateLoss(ms);
    }
    this.#changesInSecond++;
    return this.#fastSeconds >= FAST_SECONDS;
  }

  /** Counts a change that is not recorded, and extends the interval of lost changes to it. */
  #lose(ms: number): void {
    this.#rateLoss ??= this.beginSpan('lost', '');
    this.#rateLoss.toMs = ms;
    this.#stateVersion++;
    this.#lostByRate++;
    this.#rateLossCount++;
    this.#encode();
    this.#current.unlink();
  }

  #endRateLoss(ms: number): void {
    if (this.#rateLoss === undefined) return;
    this.addMark('lost', '', String(this.#rateLossCount), ms);
    this.#rateLoss = undefined;
    this.#rateLossCount = 0;
  }
}
