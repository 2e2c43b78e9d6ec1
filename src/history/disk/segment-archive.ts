import type { StateFile, StateFolder } from '../../base/files/state-folder.ts';
import type { TurnGate } from '../../base/turn-gate.ts';
import { DamagedError } from '../../net/byte-buffer.ts';
import { mayContain } from '../key-filter.ts';
import type { SegmentPart } from '../lives.ts';
import type { Segment } from '../segment.ts';
import { type Checksum, NewerVersionError, PREAMBLE_BYTES } from './frames.ts';
import { type AllocateBuffer, SegmentCache } from './segment-cache.ts';
import {
  endFrameAt,
  partsOf,
  type ReadSegment,
  readEnd,
  readHead,
  readSegment,
  type StoredFacts,
  segmentOfParts,
} from './segment-file.ts';

/** The storage of the segments of a history. */
export interface HistoryDisk {
  /** Only for segments, of one `History` at a time. To read those of a running process, copy its folder first. */
  readonly folder: StateFolder;
  /** Maximum size of all segments in bytes; minimum 1 MiB. */
  readonly maxBytes: number;
  /** CRC-32, such as that of `node:zlib`. */
  readonly checksum: Checksum;
}

/** Number of bytes that are read at the beginning and at the end of a file. The head of a segment is shorter. */
const READ_BYTES = 4096;

/** Name of a file: the life, and the number of the segment in it. */
const NAME = /^(\d{1,12})-(\d{1,12})$/;
/** Numbers in names have at least this number of digits. */
const MIN_DIGITS = 6;

export function segmentName({ life, number }: { readonly life: number; readonly number: number }): string {
  return [life, number].map((part) => String(part).padStart(MIN_DIGITS, '0')).join('-');
}

/** A complete segment on disk, or the valid part of a torn one. */
export class StoredSegment implements SegmentPart {
  readonly facts: StoredFacts;
  readonly endPosition: number = Number.POSITIVE_INFINITY;
  /**
   * `StateFile.version` of the file when its checksums were last verified, and the positions of its records (see
   * `ReadSegment.ranges`); undefined if they never were.
   */
  verified: { readonly version: string; readonly ranges: Int32Array } | undefined;
  readonly #cache: SegmentCache;

  constructor(facts: StoredFacts, cache: SegmentCache) {
    this.facts = facts;
    this.#cache = cache;
  }

  get stored(): StoredSegment {
    return this;
  }

  get number(): number {
    return this.facts.head.number;
  }

  get firstSequence(): number {
    return this.facts.head.firstSequence;
  }

  get endSequence(): number {
    return this.facts.head.firstSequence + this.facts.count;
  }

  get startMs(): number {
    return this.facts.head.startMs;
  }

  get lastMs(): number {
    return this.facts.lastMs;
  }

  /** Returns false only if the segment has no record of a key with this hash. */
  mayContain(hash: number): boolean {
    return mayContain(this.facts.filter, hash);
  }

  /** Returns true if the segment has a record of a prefix of this length. */
  hasLength(family: 4 | 6, length: number): boolean {
    return (family === 4 ? this.facts.lengths4 : this.facts.lengths6)[length] === 1;
  }

  /** Reads the segment. Rejects with an error of the file system, or `DamagedError`. */
  load(): Promise<Segment> {
    return this.#cache.load(this);
  }

  release(segment: Segment): void {
    this.#cache.release(this, segment);
  }
}

/** The stored segments of all lives, oldest first: the facts of all, the records of only a few in memory. */
export class SegmentArchive {
  readonly disk: HistoryDisk;
  readonly #gate: TurnGate;
  #stored: StoredSegment[] = [];
  #life = 1;
  readonly #cache = new SegmentCache((stored, into) => this.#loadSegment(stored, into));
  #damaged = 0;

  constructor(disk: HistoryDisk, gate: TurnGate) {
    this.disk = disk;
    this.#gate = gate;
  }

  /** The segments, in the order of their lives and numbers. Each change creates a new list. */
  get stored(): readonly StoredSegment[] {
    return this.#stored;
  }

  /** Number of the life that begins now. */
  get life(): number {
    return this.#life;
  }

  /** Sequence number of the first record of the life that begins now. */
  get nextSequence(): number {
    return this.#stored.reduce((next, { endSequence }) => Math.max(next, endSequence), 1);
  }

  get bytes(): number {
    return this.#stored.reduce((sum, { facts }) => sum + facts.bytes, 0);
  }

  /** Number of segments that could not be read and were dropped. */
  get damaged(): number {
    return this.#damaged;
  }

  /**
   * Reads the facts of the segments of earlier lives. A torn segment is kept up to its last valid frame. A file of a
   * later version is renamed to `NAME.newer`, a damaged one is removed. Rejects with an error of the file system if the
   * folder cannot be read.
   */
  async open(): Promise<void> {
    const names = await this.disk.folder.names();
    // Files of later versions count, so that no life has a number that was used before.
    const lives = names.map((name) => Number(/^\d{1,12}/.exec(name)?.[0] ?? 0));
    this.#life = Math.max(0, ...lives) + 1;
    for (const name of names.filter((one) => NAME.test(one))) {
      const facts = await this.#readFacts(name);
      if (facts !== undefined) this.#stored.push(new StoredSegment(facts, this.#cache));
    }
    this.#stored.sort((a, b) => a.facts.head.life - b.facts.head.life || a.number - b.number);
    await this.makeRoom(0);
  }

  add(facts: StoredFacts): void {
    this.#stored = [...this.#stored, new StoredSegment(facts, this.#cache)];
  }

  /** Removes the oldest segments until `bytes` more have room. Rejects with an error of the file system. */
  async makeRoom(bytes: number): Promise<void> {
    while (this.#stored[0] !== undefined && this.bytes + bytes > this.disk.maxBytes) {
      const [oldest] = this.#stored;
      await this.disk.folder.remove(segmentName(oldest.facts.head));
      this.#stored = this.#stored.filter((one) => one !== oldest);
    }
  }

  /** Forgets a segment that cannot be read. Answers that need its records are not certain from now on. */
  drop(stored: StoredSegment): void {
    if (!this.#stored.includes(stored)) return; // another query has dropped it
    this.#damaged++;
    this.#stored = this.#stored.filter((one) => one !== stored);
    this.#cache.forget(stored);
    // An error is ignored, because the file is not used any more.
    this.disk.folder.remove(segmentName(stored.facts.head)).catch(() => {});
  }

  async #readFacts(name: string): Promise<StoredFacts | undefined> {
    const { folder } = this.disk;
    const file = await folder.open(name);
    if (file === undefined) return undefined;
    try {
      const facts = await this.#factsOf(file);
      if (segmentName(facts.head) === name) return facts;
      throw new DamagedError(`the head of ${name} is of another segment`);
    } catch (error) {
      if (error instanceof NewerVersionError) await folder.rename(name, `${name}.newer`);
      else if (error instanceof DamagedError) {
        this.#damaged++;
        await folder.remove(name);
      } else throw error;
      return undefined;
    } finally {
      await file.close();
    }
  }

  /** Reads the beginning and the end of a complete segment, or all of a torn one. */
  async #factsOf(file: StateFile): Promise<StoredFacts> {
    const { checksum } = this.disk;
    const start = await readPart(file, 0, Math.min(file.size, READ_BYTES));
    const head = readHead(start, checksum)?.head;
    const tail = await readPart(file, Math.max(PREAMBLE_BYTES, file.size - READ_BYTES), file.size);
    const at = endFrameAt(tail, file.size);
    if (head !== undefined && at !== undefined) {
      const facts = readEnd(head, await readPart(file, at, file.size), file.size, checksum);
      if (facts !== undefined) return facts;
    }
    const { facts } = await this.#read(await readPart(file, 0, file.size));
    return facts;
  }

  /** Reads a segment. Its checksums are verified once, and again if its file has changed. */
  async #loadSegment(stored: StoredSegment, allocate: AllocateBuffer): Promise<Segment> {
    const { facts } = stored;
    const name = segmentName(facts.head);
    const file = await this.disk.folder.open(name);
    if (file === undefined) throw new DamagedError(`${name} was removed`);
    try {
      const { version } = file;
      const { verified } = stored;
      const bytes = allocate(file.size);
      if (verified !== undefined && verified.version === version && file.readParts !== undefined) {
        const read = await file.readParts(partsOf(bytes, verified.ranges), 0);
        if (read === bytes.length) return segmentOfParts(bytes, verified.ranges, facts);
      }
      const { segment, isComplete, ranges } = await this.#read(await readInto(file, 0, bytes));
      if (segment.endSequence !== facts.head.firstSequence + facts.count)
        throw new DamagedError(`${name} has changed`);
      // A torn segment is verified each time, because its last valid frame must be found.
      if (isComplete && version !== undefined) stored.verified = { version, ranges };
      return segment;
    } finally {
      await file.close();
    }
  }

  async #read(bytes: Uint8Array): Promise<ReadSegment> {
    const steps = readSegment(bytes, this.disk.checksum);
    for (;;) {
      let step = { done: false } as ReturnType<typeof steps.next>; // not narrowed, because the callback assigns it
      await this.#gate.run(this.#gate.slice, () => {
        step = steps.next();
      });
      if (step.done === true) return step.value;
    }
  }
}

function readPart(file: StateFile, from: number, to: number): Promise<Uint8Array> {
  return readInto(file, from, new Uint8Array(Math.max(0, to - from)));
}

async function readInto(file: StateFile, from: number, bytes: Uint8Array): Promise<Uint8Array> {
  const read = await file.read(bytes, from);
  return bytes.subarray(0, read);
}
