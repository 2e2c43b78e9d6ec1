import { DamagedError } from '../../net/byte-buffer.ts';
import type { UncertainSpan } from '../change-log.ts';
import { parseJSON } from '../claim-codec.ts';
import type { ClockPiece } from '../life-clock.ts';
import { LENGTHS, Segment, type SegmentIndex, type SegmentOptions } from '../segment.ts';
import { UNCERTAINTIES } from '../types.ts';
import {
  CHECKSUM_BYTES,
  type Checksum,
  checkPreamble,
  FRAME,
  FRAME_BYTES,
  frameOf,
  PREAMBLE_BYTES,
  preamble,
  readFrame,
} from './frames.ts';

/** The first frame of a segment. */
export interface SegmentHead
  extends Pick<SegmentOptions, 'number' | 'firstSequence' | 'startMs' | 'maxBytes'> {
  readonly life: number;
}

/** The clock and the uncertain intervals of a life, as far as they are known. */
export interface LifeState {
  readonly pieces: readonly ClockPiece[];
  readonly spans: readonly UncertainSpan[];
}

/** Everything about a stored segment except its records. */
export interface StoredFacts
  extends LifeState,
    Pick<SegmentIndex, 'count' | 'lastMs' | 'filter' | 'lengths4' | 'lengths6'> {
  readonly head: SegmentHead;
  /** Size of the file in bytes. */
  readonly bytes: number;
  /** The segment contains all changes before this time (exclusive). */
  readonly endMs: number;
  /** True if the process stopped at `endMs` after it had written everything. */
  readonly stopped: boolean;
  /** True if bytes after the last valid frame are ignored, so changes may be missing after `endMs`. */
  readonly torn: boolean;
}

const encoder = new TextEncoder();
const decoder = new TextDecoder();

/** Size of the first values of a frame of records: the time (64 bits), and the length of the state (32 bits). */
const RECORDS_HEAD_BYTES = 12;
/** Size of the number at the end of the payload of the last frame, which is the length of this payload. */
const LENGTH_BYTES = 4;
/** Number of lists in the last frame, the JSON included. */
const LISTS = 8;

export function headBytes(head: SegmentHead, checksum: Checksum): Uint8Array {
  const frame = frameOf(FRAME.head, [encoder.encode(JSON.stringify(head))], checksum);
  return joined([preamble(), frame]);
}

/** Returns a frame of records, complete up to `endMs` exclusively. `state` is undefined if it is unchanged. */
export function recordsFrame(
  endMs: number,
  records: Uint8Array,
  state: LifeState | undefined,
  checksum: Checksum,
): Uint8Array {
  const json = state === undefined ? new Uint8Array() : encoder.encode(JSON.stringify(state));
  const head = new Uint8Array(RECORDS_HEAD_BYTES);
  const view = new DataView(head.buffer);
  view.setFloat64(0, endMs);
  view.setUint32(8, json.length);
  return frameOf(FRAME.records, [head, json, records], checksum);
}

/**
 * Returns the last frame of a complete segment: lengths of the lists │ the lists (the first is JSON) │ length of
 * all these.
 */
export function endFrame(
  segment: Segment,
  { endMs, stopped, state }: { readonly endMs: number; readonly stopped: boolean; readonly state: LifeState },
  checksum: Checksum,
): Uint8Array {
  const { buckets, names, positions, batches, lengths4, lengths6, filter, count, lastMs } = segment.index();
  const json = encoder.encode(JSON.stringify({ ...state, endMs, stopped, count, lastMs }));
  const sections = [buckets, names, positions, batches].map(
    ({ buffer, byteOffset, byteLength }) => new Uint8Array(buffer, byteOffset, byteLength),
  );
  const lists = [json, lengths4, lengths6, filter, ...sections];
  const lengths = new Uint8Array(4 * lists.length);
  const view = new DataView(lengths.buffer);
  for (const [index, { length }] of lists.entries()) view.setUint32(4 * index, length);
  const total = new Uint8Array(LENGTH_BYTES);
  const size = [lengths, ...lists, total].reduce((sum, { length }) => sum + length, 0);
  new DataView(total.buffer).setUint32(0, size);
  return frameOf(FRAME.end, [lengths, ...lists, total], checksum);
}

/**
 * Returns the position of the last frame of a complete file that ends with `tail`; undefined if its length is
 * impossible. In an incomplete file the position is arbitrary, and {@link readEnd} finds no frame there.
 */
export function endFrameAt(tail: Uint8Array, size: number): number | undefined {
  if (tail.length < FRAME_BYTES) return undefined;
  const lengthAt = tail.length - CHECKSUM_BYTES - LENGTH_BYTES;
  const length = new DataView(tail.buffer, tail.byteOffset, tail.length).getUint32(lengthAt);
  const at = size - length - FRAME_BYTES;
  return at < PREAMBLE_BYTES ? undefined : at;
}

/** Returns the facts of a complete segment from the frame at its end; undefined if the frame is torn. */
export function readEnd(
  head: SegmentHead,
  end: Uint8Array,
  size: number,
  checksum: Checksum,
): StoredFacts | undefined {
  const frame = readFrame(end, 0, checksum);
  if (frame?.kind !== FRAME.end || frame.end !== end.length) return undefined;
  return factsIn(head, listsOf(frame.payload), size);
}

/** Returns the head of a file, and the position after it; undefined if it is torn. */
export function readHead(
  bytes: Uint8Array,
  checksum: Checksum | undefined,
): { readonly head: SegmentHead; readonly end: number } | undefined {
  checkPreamble(bytes);
  const frame = readFrame(bytes, PREAMBLE_BYTES, checksum);
  if (frame === undefined) return undefined;
  if (frame.kind !== FRAME.head) throw new DamagedError('the head is not the first frame');
  const fields = parseFields(frame.payload);
  const number = (name: string): number => numberField(fields, name);
  const head = {
    life: number('life'),
    number: number('number'),
    firstSequence: number('firstSequence'),
    startMs: number('startMs'),
    maxBytes: number('maxBytes'),
  };
  if (head.maxBytes > MAX_STORED_BYTES)
    throw new DamagedError(`maxBytes is ${head.maxBytes}, above ${MAX_STORED_BYTES}`);
  return { head, end: frame.end };
}

/** Maximum `maxBytes` in a head. Limits the memory for a file with a wrong head. */
const MAX_STORED_BYTES: number = 64 << 20;

/** Limits of one step of {@link readSegment}. A frame has the records of a second. */
const FRAMES_PER_STEP = 64;
const BYTES_PER_STEP: number = 256 << 10;

export interface ReadSegment {
  readonly segment: Segment;
  readonly facts: StoredFacts;
  /** Positions of the records in the file: begin and end of each frame's records. */
  readonly ranges: Int32Array;
  /** False if the file has no index. */
  readonly isComplete: boolean;
}

/**
 * Reads the whole file of a segment, in steps. The result is the segment and its facts. An incomplete file is read up
 * to its last valid frame, and its index is built. Throws {@link DamagedError} if a valid frame has invalid contents,
 * and `NewerVersionError` if a later version wrote it. Takes ownership of `bytes`, which become the records and the
 * index of the segment. Copies would cause a full garbage collection every few segments.
 */
export function* readSegment(bytes: Uint8Array, checksum: Checksum): Generator<void, ReadSegment, void> {
  const start = readHead(bytes, checksum);
  if (start === undefined) throw new DamagedError('the head of a segment is torn');
  const { head } = start;
  let at = start.end;
  let length = 0;
  let endMs = head.startMs;
  let [framesInStep, stepStart] = [0, at];
  const ranges: number[] = [];
  let state: LifeState = { pieces: [], spans: [] };
  let end: { readonly index: SegmentIndex; readonly facts: StoredFacts } | undefined;
  while (end === undefined) {
    const frame = readFrame(bytes, at, checksum);
    if (frame === undefined) break;
    at = frame.end;
    if (frame.kind === FRAME.end) {
      const lists = listsOf(frame.payload);
      const facts = factsIn(head, lists, at);
      end = { index: indexIn(lists, facts), facts };
    } else if (frame.kind !== FRAME.records) throw new DamagedError('a second head');
    else {
      const read = parseRecords(frame.payload);
      endMs = read.endMs;
      state = read.state ?? state;
      // Frames are longer than their records, so this overwrites no unread frame.
      bytes.set(read.records, length);
      length += read.records.length;
      const recordsEnd = at - CHECKSUM_BYTES;
      ranges.push(recordsEnd - read.records.length, recordsEnd);
    }
    framesInStep++;
    if (framesInStep < FRAMES_PER_STEP && at - stepStart < BYTES_PER_STEP) continue;
    yield;
    [framesInStep, stepStart] = [0, at];
  }
  const records = bytes.subarray(0, length);
  const segment = new Segment({ ...head, isStored: true, content: records, index: end?.index });
  const read = { segment, ranges: Int32Array.from(ranges) };
  if (end !== undefined) return { ...read, facts: end.facts, isComplete: true };
  yield* segment.reindex();
  const { filter, lengths4, lengths6, count, lastMs } = segment.index();
  const torn = at < bytes.length;
  const facts = { head, ...state, bytes: bytes.length, count, lastMs, endMs, stopped: false, torn };
  return { ...read, facts: { ...facts, filter, lengths4, lengths6 }, isComplete: false };
}

/**
 * Returns the parts of `bytes` into which a vectored read places the file of a complete segment. After the read,
 * `bytes` contains the records in `ranges`, then the rest of the file after the last record, then the bytes between the
 * records. So {@link segmentOfParts} moves no records.
 */
export function partsOf(bytes: Uint8Array, ranges: Int32Array): readonly Uint8Array[] {
  const recordBytes = recordBytesOf(ranges);
  const lastRecordEnd = ranges.at(-1) ?? 0;
  const restEnd = recordBytes + bytes.length - lastRecordEnd;
  const parts: Uint8Array[] = [];
  // Positions in the file, and in the two areas of `bytes`.
  let [inFile, inRecords, inBetween] = [0, 0, restEnd];
  for (let i = 0; i < ranges.length; i += 2) {
    const [from = 0, to = 0] = [ranges[i], ranges[i + 1]];
    const betweenEnd = inBetween + from - inFile;
    const recordsEnd = inRecords + to - from;
    parts.push(bytes.subarray(inBetween, betweenEnd), bytes.subarray(inRecords, recordsEnd));
    [inFile, inRecords, inBetween] = [to, recordsEnd, betweenEnd];
  }
  return [...parts, bytes.subarray(recordBytes, restEnd)];
}

/** Returns a complete segment, verified earlier, from bytes that were read into their {@link partsOf}. */
export function segmentOfParts(bytes: Uint8Array, ranges: Int32Array, facts: StoredFacts): Segment {
  const length = recordBytesOf(ranges);
  const frame = readFrame(bytes, length + CHECKSUM_BYTES, undefined);
  if (frame?.kind !== FRAME.end) throw new DamagedError('a segment has changed');
  const index = indexIn(listsOf(frame.payload), facts);
  return new Segment({ ...facts.head, isStored: true, content: bytes.subarray(0, length), index });
}

/** Returns the size of all records in bytes. */
function recordBytesOf(ranges: Int32Array): number {
  let length = 0;
  for (let i = 0; i < ranges.length; i += 2) length += (ranges[i + 1] ?? 0) - (ranges[i] ?? 0);
  return length;
}

function parseRecords(payload: Uint8Array): {
  readonly endMs: number;
  readonly state: LifeState | undefined;
  readonly records: Uint8Array;
} {
  if (payload.length < RECORDS_HEAD_BYTES) throw new DamagedError('a frame of records is too short');
  const view = new DataView(payload.buffer, payload.byteOffset, payload.length);
  const endMs = view.getFloat64(0);
  const length = view.getUint32(8);
  const from = RECORDS_HEAD_BYTES + length;
  if (from > payload.length || !Number.isFinite(endMs))
    throw new DamagedError('a frame of records is invalid');
  const state = length === 0 ? undefined : readState(parseFields(payload.subarray(RECORDS_HEAD_BYTES, from)));
  return { endMs, state, records: payload.subarray(from) };
}

/** The parts of the last frame, see {@link endFrame}. `wordLists` are the lists of 32-bit words. */
interface EndLists {
  readonly json: Uint8Array;
  readonly lengths4: Uint8Array;
  readonly lengths6: Uint8Array;
  readonly filter: Uint8Array;
  readonly wordLists: readonly Uint8Array[];
}

function listsOf(payload: Uint8Array): EndLists {
  const view = new DataView(payload.buffer, payload.byteOffset, payload.length);
  const start = 4 * LISTS;
  if (payload.length < start) throw new DamagedError('the last frame is too short');
  let at = start;
  const lists = Array.from({ length: LISTS }, (_, index) => {
    const length = view.getUint32(4 * index);
    const list = payload.subarray(at, at + length);
    if (list.length !== length) throw new DamagedError('the last frame is too short');
    at += length;
    return list;
  });
  const [json, lengths4, lengths6, filter, ...words] = lists as [
    Uint8Array,
    Uint8Array,
    Uint8Array,
    Uint8Array,
    ...Uint8Array[],
  ]; // the eight lists of endFrame
  return { json, lengths4, lengths6, filter, wordLists: words };
}

/** Returns the facts of a complete segment. Its lists are copies, because the facts outlive the segment. */
function factsIn(
  head: SegmentHead,
  { json, lengths4, lengths6, filter }: EndLists,
  bytes: number,
): StoredFacts {
  if (lengths4.length !== LENGTHS || lengths6.length !== LENGTHS)
    throw new DamagedError('lengths4 or lengths6 has another length');
  if (!isPowerOfTwo(filter.length)) throw new DamagedError('an invalid filter');
  const fields = parseFields(json);
  const number = (name: string): number => numberField(fields, name);
  return {
    head,
    ...readState(fields),
    bytes,
    count: number('count'),
    lastMs: number('lastMs'),
    endMs: number('endMs'),
    stopped: fields['stopped'] === true,
    torn: false,
    filter: filter.slice(),
    lengths4: lengths4.slice(),
    lengths6: lengths6.slice(),
  };
}

function indexIn({ wordLists: lists }: EndLists, facts: StoredFacts): SegmentIndex {
  const [buckets, names, positions, batches] = lists.map(words) as [
    Int32Array,
    Int32Array,
    Int32Array,
    Int32Array,
  ]; // the last four lists of endFrame
  if (!isPowerOfTwo(buckets.length)) throw new DamagedError('an invalid index');
  const { lengths4, lengths6, filter, count, lastMs } = facts;
  return { buckets, names, positions, batches, lengths4, lengths6, filter, count, lastMs };
}

/** Returns bytes as 32-bit words. If their position is not aligned, moves them to the aligned position before it. */
function words(bytes: Uint8Array): Int32Array {
  if (bytes.length % 4 !== 0) throw new DamagedError('a list of an index is torn');
  const from = bytes.byteOffset & ~3;
  new Uint8Array(bytes.buffer, from, bytes.length).set(bytes);
  return new Int32Array(bytes.buffer, from, bytes.length / 4);
}

function isPowerOfTwo(value: number): boolean {
  return value > 0 && (value & (value - 1)) === 0;
}

function parseFields(bytes: Uint8Array): Readonly<Record<string, unknown>> {
  const value = parseJSON(decoder.decode(bytes));
  if (typeof value === 'object' && value !== null) return value as Readonly<Record<string, unknown>>;
  throw new DamagedError('invalid JSON');
}

function numberField(fields: Readonly<Record<string, unknown>>, name: string): number {
  const value = fields[name];
  if (typeof value === 'number' && Number.isFinite(value) && value >= 0) return value;
  throw new DamagedError(`${name} is not a number`);
}

function readState({ pieces, spans }: Readonly<Record<string, unknown>>): LifeState {
  const list = (name: string, value: unknown): readonly Readonly<Record<string, unknown>>[] => {
    if (!Array.isArray(value)) throw new DamagedError(`${name} is not a list`);
    return value as readonly Readonly<Record<string, unknown>>[];
  };
  return {
    pieces: list('pieces', pieces).map((piece) => {
      const times = { ms: numberField(piece, 'ms'), sinceMs: numberField(piece, 'sinceMs') };
      const { offset, low, high } = piece;
      if (typeof offset !== 'number') throw new DamagedError('offset is not a number');
      return typeof low === 'number' && typeof high === 'number'
        ? { ...times, offset, low, high }
        : { ...times, offset };
    }),
    spans: list('spans', spans).map((span) => {
      const reason = UNCERTAINTIES.find((one) => one === span['reason']);
      if (reason === undefined) throw new DamagedError('an unknown reason');
      const toMs = span['toMs'] === undefined ? undefined : numberField(span, 'toMs');
      return { reason, subject: String(span['subject'] ?? ''), fromMs: numberField(span, 'fromMs'), toMs };
    }),
  };
}

function joined(parts: readonly Uint8Array[]): Uint8Array {
  const all = new Uint8Array(parts.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}
