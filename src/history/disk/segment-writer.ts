import type { Clock } from '../../base/clock.ts';
import { type Failure, failureOf } from '../../base/failure.ts';
import type { StateSink } from '../../base/files/state-folder.ts';
import type { ChangeLog } from '../change-log.ts';
import type { Segment } from '../segment.ts';
import { type SegmentArchive, segmentName } from './segment-archive.ts';
import { endFrame, headBytes, type LifeState, recordsFrame, type SegmentHead } from './segment-file.ts';

/** Delay of the next attempt after a failure. */
const RETRY_MS = 10_000;

/**
 * Maximum size of a file, as a multiple of the size of a segment. Besides the records, the file has the index, and the
 * time and state of each flush.
 */
const MAX_FILE_SEGMENTS = 3;

interface OpenFile {
  /** Undefined after a failed write. The file then stays until the next file is created. */
  segment: Segment | undefined;
  readonly head: SegmentHead;
  readonly sink: StateSink;
  bytes: number;
  /** Number of bytes of records in the file. */
  recordBytes: number;
  /** `ChangeLog.stateVersion` of the last written state; -1 if none was written. */
  stateVersion: number;
}

/**
 * Appends the records of a life to files. Each {@link SegmentWriter.flush} appends the new records, and the index when
 * a segment is full. If a write fails, the whole segment is written again later, as long as it is in memory. Never
 * rejects.
 */
export class SegmentWriter {
  readonly #archive: SegmentArchive;
  readonly #log: ChangeLog;
  readonly #clock: Clock;
  readonly #life: number;
  /** Number of the oldest segment that is not complete on disk. */
  #nextNumber = 0;
  #file: OpenFile | undefined;
  #writing: Promise<void> = Promise.resolve();
  #isQueued = false;
  #failure: Failure | undefined;
  #retryAt = 0;

  constructor(archive: SegmentArchive, log: ChangeLog, clock: Clock) {
    this.#archive = archive;
    this.#log = log;
    this.#clock = clock;
    this.#life = archive.life;
  }

  /** Failure of the last write, if it failed. */
  get failure(): Failure | undefined {
    return this.#failure;
  }

  /** Size of the incomplete file. */
  get bytes(): number {
    return this.#file?.bytes ?? 0;
  }

  /** Writes what was recorded since the last call. Call it each second. */
  flush(): Promise<void> {
    if (this.#isQueued) return this.#writing;
    this.#isQueued = true;
    this.#writing = this.#writing.then(() => {
      this.#isQueued = false;
      return this.#write({ isLast: false });
    });
    return this.#writing;
  }

  /** Writes everything, completes the last segment and waits for the disk. Nothing is recorded afterwards. */
  async stop(): Promise<void> {
    await this.#writing;
    await this.#write({ isLast: true });
  }

  async #write({ isLast }: { readonly isLast: boolean }): Promise<void> {
    if (this.#clock.now() < this.#retryAt && !isLast) return;
    try {
      while (await this.#writeSegment(isLast));
      this.#failure = undefined;
    } catch (error) {
      this.#failure = failureOf(error, this.#clock);
      this.#retryAt = this.#clock.now() + RETRY_MS;
      if (this.#file !== undefined) this.#file.segment = undefined;
      await this.#file?.sink.close().catch(() => {});
    }
  }

  /** Writes the oldest incomplete segment. Returns true if it is complete and another one follows. */
  async #writeSegment(isLast: boolean): Promise<boolean> {
    const segment = this.#log.segments.find(({ number }) => number >= this.#nextNumber);
    if (segment === undefined) return false;
    const file = await this.#openFile(segment);
    // No `await` from here until the state is read: the state converts every time up to `endMs` into wall time, so no
    // step of the wall clock may be recorded in between.
    this.#log.noticeClockStep();
    const following = this.#log.segments.find(({ number }) => number > segment.number);
    const endMs = Math.min(endOf(segment, following), this.#log.endedMs ?? this.#log.life.now());
    const state = this.#state();
    const version = this.#log.stateVersion;
    const records = segment.bytesFrom(file.recordBytes);
    file.recordBytes += records.length;
    const changedState = version === file.stateVersion ? undefined : state;
    file.stateVersion = version;
    const { checksum } = this.#archive.disk;
    await append(file, recordsFrame(endMs, records, changedState, checksum));
    // The file grows even without records, because each flush appends the time. If it is large, begin the next segment.
    if (file.bytes - file.recordBytes > this.#log.segmentBytes / 2) this.#log.roll();
    if (following === undefined && !isLast) return false;
    const stopped = following === undefined;
    await append(file, endFrame(segment, { endMs, stopped, state }, checksum));
    await file.sink.sync();
    await file.sink.close();
    this.#file = undefined;
    this.#nextNumber = segment.number + 1;
    const { filter, lengths4, lengths6, count, lastMs } = segment.index();
    const { head, bytes } = file;
    const facts = { head, ...state, bytes, count, lastMs, endMs, stopped, torn: false };
    this.#archive.add({ ...facts, filter, lengths4, lengths6 });
    return !stopped;
  }

  /** Returns the file of a segment. Creates one if the open file belongs to another segment, or if none is open. */
  async #openFile(segment: Segment): Promise<OpenFile> {
    if (this.#file?.segment === segment) return this.#file;
    const { disk } = this.#archive;
    const { number, firstSequence, startMs } = segment;
    if (this.#file !== undefined) {
      // A write failed, or its segment left the memory before the file was complete.
      const { head, sink, segment } = this.#file;
      if (segment !== undefined) await sink.close();
      await disk.folder.remove(segmentName(head));
      this.#file = undefined;
    }
    const maxBytes = this.#log.segmentBytes;
    await this.#archive.makeRoom(MAX_FILE_SEGMENTS * maxBytes);
    const head = { life: this.#life, number, firstSequence, startMs, maxBytes };
    const name = segmentName(head);
    await disk.folder.remove(name);
    const sink = await disk.folder.create(name);
    const file = { segment, head, sink, bytes: 0, recordBytes: 0, stateVersion: -1 };
    this.#file = file;
    await append(file, headBytes(head, disk.checksum));
    return file;
  }

  #state(): LifeState {
    const { storedSpans, clock } = this.#log;
    return { pieces: [...clock.pieces], spans: storedSpans.map((span) => ({ ...span })) };
  }
}

/** Returns the time before which a segment has all changes; infinite if no segment follows. */
function endOf(segment: Segment, following: Segment | undefined): number {
  if (following === undefined) return Number.POSITIVE_INFINITY;
  const isAdjacent = following.number === segment.number + 1;
  return isAdjacent ? following.startMs : segment.lastMs;
}

async function append(file: OpenFile, bytes: Uint8Array): Promise<void> {
  file.bytes += bytes.length;
  await file.sink.write(bytes);
}
