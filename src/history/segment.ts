import type { ClaimWriter } from '../ipcache/types.ts';
import { ByteBuffer, DamagedError } from '../net/byte-buffer.ts';
import { readKey, writeKey } from '../net/key-record.ts';
import type { PrefixRegister } from '../net/prefix.ts';
import { skipClaim, writeClaim, writerText } from './claim-codec.ts';
import { addToFilter, emptyFilter } from './key-filter.ts';
import { Names } from './names.ts';
import { indexAtMost } from './positions.ts';
import {
  type ClaimChange,
  documentKeyHash,
  EFFECT_SHIFT,
  HAS_AFTER,
  HAS_BEFORE,
  KIND,
  type Kind,
  keyHash,
  LINKED_BEFORE,
  LONG,
  LONG_HEAD,
  RecordReader,
  type TextChange,
} from './record-reader.ts';

/** The sparse index has the position of every 64th record. */
const INDEX_EVERY = 64;

/** Maximum number of earlier records that are searched for one to link to ({@link LINKED_BEFORE}). */
const MAX_LINK_STEPS = 12;

/** Bytes of records for each bucket: about two records. */
const BYTES_PER_BUCKET = 64;
const MIN_BUCKETS = 64;

const INITIAL_BYTES = 65_536;

/** A record whose head was read. */
export interface RecordHead {
  readonly position: number;
  readonly kind: Kind;
  /** Milliseconds since the life began. */
  readonly ms: number;
}

export interface SegmentIndex {
  /** Position of the newest record of each bucket. The number of buckets is a power of two. */
  readonly buckets: Int32Array;
  /** Positions of the numbered names, ascending like both following lists. */
  readonly names: Int32Array;
  /** Positions of every 64th record. */
  readonly positions: Int32Array;
  /** Positions of *batch heads*, the records that contain the cause of the changes after them. */
  readonly batches: Int32Array;
  /** One byte for each length of a prefix: 1 if a prefix of this length has a record. */
  readonly lengths4: Uint8Array;
  readonly lengths6: Uint8Array;
  readonly filter: Uint8Array;
  readonly count: number;
  /** Time of the newest record. */
  readonly lastMs: number;
}

export interface SegmentOptions {
  /** Number of the segment in its life, from 0. */
  readonly number: number;
  readonly firstSequence: number;
  readonly startMs: number;
  /** Size in bytes at which the segment is full. */
  readonly maxBytes: number;
  /** True if the segment is stored on disk: it collects the keys for its filter. */
  readonly isStored?: boolean | undefined;
  /** Records of a stored segment. Without `index`, {@link Segment.reindex} must run before any read. */
  readonly content?: Uint8Array | undefined;
  readonly index?: SegmentIndex | undefined;
}

/** Number of lengths of a prefix: 0 to 128. */
export const LENGTHS = 129;

/** Records that {@link Segment.reindex} reads in one step. */
const RECORDS_PER_STEP = 512;

/** Returns the numbers as an array that can grow. `Array.from` takes ten times as long. */
function numbersOf(numbers: Int32Array = new Int32Array(0)): number[] {
  const list: number[] = [];
  for (let i = 0; i < numbers.length; i++) list.push(numbers[i] ?? 0);
  return list;
}

/**
 * Consecutive records of one life in one buffer. Each segment has its own names, so that any segment can be dropped.
 */
export class Segment extends RecordReader {
  /** Consecutive number in its life, from 0. */
  readonly number: number;
  readonly firstSequence: number;
  /** Bloom filter of the keys with a record; undefined if the segment is not stored on disk. */
  readonly filter: Uint8Array | undefined;
  /** Positions of every 64th record. */
  readonly #positions: number[];
  /** Positions of batch heads, ascending. */
  readonly #batches: number[];
  /** See {@link SegmentIndex.lengths4}. */
  readonly #lengths4: Uint8Array;
  readonly #lengths6: Uint8Array;
  /** The writer of the last change and the number of its name; 0: not written yet. Changes arrive in runs. */
  #writer: ClaimWriter = { source: 'unspec', owner: '' };
  #writerNumber = 0;
  /**
   * For each bucket, eight flags. The top 3 bits of the hash of a prefix select its flag, which its first record sets.
   * If a flag is clear, its prefixes have no earlier record to link to. Empty if the segment is full.
   */
  #tags: Uint8Array;
  #count: number;
  #lastMs: number;
  /** Records before this position are no targets of links, because changes were lost after them. */
  #linkFloor = 0;

  constructor(options: SegmentOptions) {
    const { number, firstSequence, startMs, maxBytes, isStored = false, content, index } = options;
    const buffer = content ?? new Uint8Array(Math.min(maxBytes, INITIAL_BYTES));
    const bytes = new ByteBuffer(buffer, maxBytes, content?.length);
    const bucketCount = 2 ** Math.ceil(Math.log2(Math.max(MIN_BUCKETS, maxBytes / BYTES_PER_BUCKET)));
    const buckets = index?.buckets ?? new Int32Array(bucketCount).fill(-1);
    super(startMs, bytes, new Names(bytes, maxBytes, index?.names), buckets);
    this.number = number;
    this.firstSequence = firstSequence;
    this.#tags = new Uint8Array(content === undefined ? bucketCount : 0);
    this.#positions = numbersOf(index?.positions);
    this.#batches = numbersOf(index?.batches);
    this.#lengths4 = index?.lengths4 ?? new Uint8Array(LENGTHS);
    this.#lengths6 = index?.lengths6 ?? new Uint8Array(LENGTHS);
    this.#count = index?.count ?? 0;
    this.#lastMs = index?.lastMs ?? startMs;
    this.filter = index?.filter ?? (isStored ? emptyFilter(maxBytes) : undefined);
  }

  get count(): number {
    return this.#count;
  }

  /** Number of records that are not batch heads. */
  get changes(): number {
    return this.#count - this.#batches.length;
  }

  get endSequence(): number {
    return this.firstSequence + this.#count;
  }

  get lastMs(): number {
    return this.#lastMs;
  }

  /** Size of the records and of the indexes that stay with them, in bytes. */
  get used(): number {
    const positions = 8 * (this.#positions.length + this.#batches.length);
    const filter = this.filter?.length ?? 0;
    return this.bytes.length + this.buckets.byteLength + this.names.used + positions + filter;
  }

  /** Memory in bytes, with the unused part of the buffer and the tables of the writer. */
  get memory(): number {
    const writing = this.bytes.capacity - this.bytes.length + this.#tags.length;
    return this.used + this.names.memory - this.names.used + writing;
  }

  bytesFrom(position: number): Uint8Array {
    return this.bytes.bytesFrom(position);
  }

  /** Length of the records in bytes. */
  get length(): number {
    return this.bytes.length;
  }

  /** Returns the index. `filter` is empty if the segment is not stored. */
  index(): SegmentIndex {
    return {
      buckets: this.buckets,
      names: this.names.positions,
      positions: Int32Array.from(this.#positions),
      batches: Int32Array.from(this.#batches),
      lengths4: this.#lengths4,
      lengths6: this.#lengths6,
      filter: this.filter ?? new Uint8Array(),
      count: this.#count,
      lastMs: this.#lastMs,
    };
  }

  /** Builds the missing index of stored records, in steps. Throws {@link DamagedError} if a record is invalid. */
  *reindex(): Generator<void, void, void> {
    const bytes = this.bytes;
    const skipName = (): void => this.names.skipAndNumber();
    for (let at = 0; at < bytes.length; ) {
      const end = this.endOf(at);
      if (end > bytes.length || end <= at) throw new DamagedError('a record ends after the segment');
      this.enter(at);
      if (this.ms < this.#lastMs) throw new DamagedError('a record is older than the one before');
      const hash = this.#indexBody(skipName);
      if (bytes.at !== end) throw new DamagedError('a record has another length');
      if (this.#count % INDEX_EVERY === 0) this.#positions.push(at);
      if (this.kind === KIND.batch) this.#batches.push(at);
      if (hash !== undefined) {
        this.buckets[hash & this.bucketMask] = at;
        if (this.filter !== undefined) addToFilter(this.filter, hash);
      }
      this.#lastMs = this.ms;
      this.#count++;
      at = end;
      if (this.#count % RECORDS_PER_STEP === 0) yield;
    }
  }

  /**
   * Reads the body of the entered record, numbers its names, and records the length of its prefix. Returns the hash of
   * its key; undefined if the record has no key.
   */
  #indexBody(skipName: () => void): number | undefined {
    const bytes = this.bytes;
    if (this.kind === KIND.prefix) {
      const key = this.scratch;
      const flags = readKey(bytes, key);
      (key.family === 4 ? this.#lengths4 : this.#lengths6)[key.length] = 1;
      skipName();
      if (flags & HAS_BEFORE) skipClaim(bytes, skipName);
      if (flags & HAS_AFTER) skipClaim(bytes, skipName);
      return keyHash(key);
    }
    const flags = bytes.readByte();
    const start = bytes.at;
    skipName();
    const end = bytes.at;
    bytes.at = start;
    const key = this.names.read();
    bytes.at = end;
    skipName();
    if (flags & HAS_BEFORE) bytes.skipText();
    if (flags & HAS_AFTER) bytes.skipText();
    return this.kind === KIND.service || this.kind === KIND.node
      ? documentKeyHash(this.kind, key)
      : undefined;
  }

  /** Prevents links to the existing records, because changes after them were not recorded. */
  unlink(): void {
    this.#linkFloor = this.bytes.length;
  }

  /** Frees the memory that only the writer needs. */
  seal(): void {
    this.bytes.trim();
    this.names.seal();
    this.#tags = new Uint8Array(0);
  }

  /** Reads the buckets of keys whose changes are added next. Returns a sum without meaning. */
  prefetch(changes: readonly { readonly key: Readonly<PrefixRegister> }[]): number {
    const [buckets, tags] = [this.buckets, this.#tags];
    let read = 0;
    for (const { key } of changes) {
      const bucket = keyHash(key) & this.bucketMask;
      read ^= (buckets[bucket] ?? 0) ^ (tags[bucket] ?? 0);
    }
    return read;
  }

  addClaim(ms: number, key: Readonly<PrefixRegister>, change: ClaimChange): void {
    const { before, after, effect } = change;
    const bytes = this.bytes;
    const hash = keyHash(key);
    if (this.filter !== undefined) addToFilter(this.filter, hash);
    const bucket = hash & this.bucketMask;
    const writer = this.#numberOf(change.writer);
    const tag = 1 << (hash >>> 29);
    const tags = this.#tags[bucket] ?? 0;
    const isLinked = before !== undefined && (tags & tag) !== 0 && this.#isLinked(bucket, key, writer);
    this.#tags[bucket] = tags | tag;
    const stored = isLinked ? undefined : before;
    const start = this.#begin(KIND.prefix, ms, bucket);
    const flags =
      (isLinked ? LINKED_BEFORE : 0) |
      (stored === undefined ? 0 : HAS_BEFORE) |
      (after === undefined ? 0 : HAS_AFTER) |
      (effect << EFFECT_SHIFT);
    writeKey(bytes, key, flags);
    (key.family === 4 ? this.#lengths4 : this.#lengths6)[key.length] = 1;
    if (writer === 0) this.#writerNumber = this.names.write(writerText(change.writer));
    else this.names.writeNumber(writer);
    if (stored !== undefined) writeClaim(bytes, this.names, stored, undefined);
    if (after !== undefined) writeClaim(bytes, this.names, after, stored);
    this.#end(start);
  }

  /**
   * Appends a change of a service or node, a mark, or a batch head. `key` is the name of the service or node, the kind
   * of the mark, or the store of the batch.
   */
  addText(ms: number, kind: Exclude<Kind, 0>, key: string, { writer, before, after }: TextChange): void {
    const isKeyed = kind === KIND.service || kind === KIND.node;
    const hash = isKeyed ? documentKeyHash(kind, key) : 0;
    if (isKeyed && this.filter !== undefined) addToFilter(this.filter, hash);
    const bucket = isKeyed ? hash & this.bucketMask : -1;
    if (kind === KIND.batch) this.#batches.push(this.bytes.length);
    const start = this.#begin(kind, ms, bucket);
    this.bytes.writeByte((before === undefined ? 0 : HAS_BEFORE) | (after === undefined ? 0 : HAS_AFTER));
    this.names.write(key);
    this.names.write(writer);
    if (before !== undefined) this.bytes.writeText(before);
    if (after !== undefined) this.bytes.writeText(after);
    this.#end(start);
  }

  /** Returns true if the segment has a record of a prefix of this length. */
  hasLength(family: 4 | 6, length: number): boolean {
    return (family === 4 ? this.#lengths4 : this.#lengths6)[length] === 1;
  }

  /** Returns the position of the batch head of a record, or -1. */
  batchOf(position: number): number {
    return this.#batches[indexAtMost(this.#batches, this.#batches.length, position)] ?? -1;
  }

  /** Returns the sequence number of a record. Reads at most 64 lengths. */
  sequenceOf(position: number): number {
    const block = indexAtMost(this.#positions, this.#positions.length, position);
    let sequence = this.firstSequence + block * INDEX_EVERY;
    for (let at = this.#positions[block] ?? 0; at < position; sequence++) at = this.endOf(at);
    return sequence;
  }

  /** Returns the position of a sequence number, or the end of the records. */
  positionOf(sequence: number): number {
    const index = Math.max(0, sequence - this.firstSequence);
    if (index >= this.#count) return this.bytes.length;
    let at = this.#positions[Math.floor(index / INDEX_EVERY)] ?? 0;
    for (let skip = index % INDEX_EVERY; skip > 0; skip--) at = this.endOf(at);
    return at;
  }

  /** Yields the heads of the records with their sequence numbers, newest first. Reads 64 heads at a time. */
  *newestHeads(): Generator<RecordHead & { readonly sequence: number }, void, void> {
    let end = this.bytes.length;
    for (let block = this.#positions.length - 1; block >= 0; block--) {
      const heads: RecordHead[] = [];
      const start = this.#positions[block] as number; // below the length
      for (let at = start; at < end; at = this.endOf(at)) {
        this.enter(at);
        heads.push({ position: at, kind: this.kind, ms: this.ms });
      }
      for (let index = heads.length - 1; index >= 0; index--) {
        const head = heads[index] as RecordHead; // below the length
        yield { sequence: this.firstSequence + block * INDEX_EVERY + index, ...head };
      }
      end = start;
    }
  }

  /** Yields the heads of the records from a sequence number on, oldest first. */
  *headsFrom(sequence: number): Generator<RecordHead & { readonly sequence: number }, void, void> {
    let next = Math.max(sequence, this.firstSequence);
    for (let at = this.positionOf(next); at < this.bytes.length; at = this.endOf(at)) {
      this.enter(at);
      yield { sequence: next++, position: at, kind: this.kind, ms: this.ms };
    }
  }

  /** Writes the head of a record without its length, and adds it to its bucket (-1: none). Returns its position. */
  #begin(kind: Kind, ms: number, bucket: number): number {
    const bytes = this.bytes;
    // Texts may be long. `#end` makes room for the length of a claim if it is long, too.
    const isLong = kind !== KIND.prefix;
    const start = bytes.length;
    if (this.#count % INDEX_EVERY === 0) this.#positions.push(start);
    this.#count++;
    this.#lastMs = ms;
    bytes.writeByte(isLong ? LONG : 0);
    if (isLong) bytes.writeWord(0);
    bytes.writeByte(kind);
    bytes.writeNumber(Math.max(0, ms - this.startMs));
    const previous = bucket < 0 ? -1 : (this.buckets[bucket] ?? -1);
    bytes.writeNumber(previous < 0 ? 0 : start - previous);
    if (bucket >= 0) this.buckets[bucket] = start;
    return start;
  }

  /** Returns the number of the name of a writer; 0 if the name has none yet. */
  #numberOf(writer: ClaimWriter): number {
    if (writer.source !== this.#writer.source || writer.owner !== this.#writer.owner) {
      this.#writer = { source: writer.source, owner: writer.owner };
      this.#writerNumber = this.names.numberOf(writerText(writer));
    }
    return this.#writerNumber;
  }

  /** Writes the length of the record that begins at `start`. */
  #end(start: number): void {
    const bytes = this.bytes;
    if (bytes.byteAt(start) !== LONG) {
      const length = bytes.length - start - 1;
      if (length < LONG) {
        bytes.putByte(start, length);
        return;
      }
      bytes.insert(start + 1, LONG_HEAD - 1);
      this.names.shift(start, LONG_HEAD - 1);
      bytes.putByte(start, LONG);
    }
    bytes.putWord(start + 1, bytes.length - start - LONG_HEAD);
  }

  /** Returns true if one of the last records of the bucket has this key and the writer with this number. */
  #isLinked(bucket: number, key: Readonly<PrefixRegister>, number: number): boolean {
    if (number === 0) return false;
    let at = this.buckets[bucket] ?? -1;
    for (let steps = MAX_LINK_STEPS; at >= this.#linkFloor && at >= 0 && steps > 0; steps--) {
      const previous = this.enter(at);
      if (this.kind === KIND.prefix && this.matchesKey(key) && this.names.readNumber() === number)
        return true;
      at = previous;
    }
    return false;
  }
}
