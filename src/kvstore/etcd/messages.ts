import { setImmediate as eventLoopTurn } from 'node:timers/promises';
import type { TurnGate } from '../../base/turn-gate.ts';
import { bytesOfKey } from '../codec/bytes.ts';
import type { KeyRange } from '../codec/key-range.ts';
import { ProtoReader } from '../codec/proto-reader.ts';
import {
  boolField,
  bytesField,
  type EncodedField,
  int64Field,
  message,
  numberField,
} from '../codec/proto-writer.ts';
import type {
  KeyValue,
  LeaseID,
  RangeRequest,
  RangeResponse,
  ResponseHeader,
  TransportEvent,
} from '../session/transport.ts';
import { WireKeyValue } from '../session/wire-key-value.ts';
import { MAX_SERVER_TEXT } from './etcd-errors.ts';

/*
 * A handwritten codec for the range, watch and lease messages of etcd (etcd 3.4 `rpc.proto`, `kv.proto`). Decoding
 * takes a sixth of the time of the generated decoder.
 */

const EMPTY = new Uint8Array(0);
const NO_HEADER: ResponseHeader = { clusterID: '', revision: 0, raftTerm: 0 };

/** Returns the bounds of a range, which are the first two fields of a message. */
const rangeFields = ({ start, end }: KeyRange): readonly EncodedField[] => [
  bytesField(1, bytesOfKey(start)),
  bytesField(2, bytesOfKey(end)),
];

export function encodeRange(request: RangeRequest): Buffer {
  return message(
    ...rangeFields(request),
    numberField(3, request.limit ?? 0),
    numberField(4, request.revision ?? 0),
    boolField(8, request.keysOnly ?? false),
    numberField(10, request.minModRevision ?? 0),
  );
}

/** Returns a request to open a watch. With `fragment` the server may split an answer that would be too large. */
export function encodeWatchCreate(range: KeyRange, startRevision: number, fragment: boolean): Buffer {
  const create = message(
    ...rangeFields(range),
    numberField(3, startRevision),
    boolField(4, true), // progress notifications: every ten minutes on an idle watch
    boolField(8, fragment),
  );
  return message(bytesField(1, create));
}

export function encodeWatchProgress(): Buffer {
  return message(bytesField(3, EMPTY));
}

/** Returns a request for a lease whose id the server chooses. */
export function encodeLeaseGrant(ttlSeconds: number): Buffer {
  return message(numberField(1, ttlSeconds));
}

/** Returns a keepalive or a revocation of a lease, which have the same fields. */
export function encodeLease(lease: LeaseID): Buffer {
  return message(int64Field(1, lease));
}

export function readHeader(reader: ProtoReader, end: number): ResponseHeader {
  let clusterID = '';
  let revision = 0;
  let raftTerm = 0;
  for (let fields = 1; reader.next(end, fields); fields++) {
    if (reader.field === 1) clusterID = reader.uint64();
    else if (reader.field === 3) revision = reader.number();
    else if (reader.field === 4) raftTerm = reader.number();
    else reader.skip();
  }
  // A rounded revision would equal later ones, whose writes would be ignored.
  if (!Number.isSafeInteger(revision))
    throw new Error(`an answer at revision ${revision}, which is too high`);
  return { clusterID, revision, raftTerm };
}

/** Number of the field of a key-value that contains its lease. etcd omits the field if there is no lease. */
const LEASE_FIELD = 6;

function readKeyValue(reader: ProtoReader, end: number): WireKeyValue {
  let keyAt = 0;
  let keyEnd = 0;
  let valueAt = 0;
  let valueEnd = 0;
  let createRevision = 0;
  let modRevision = 0;
  let leaseAt = 0;
  for (let fields = 1; reader.next(end, fields); fields++) {
    const { field } = reader;
    if (field === 1) {
      keyEnd = reader.open();
      keyAt = reader.at;
      reader.at = keyEnd;
    } else if (field === 5) {
      valueEnd = reader.open();
      valueAt = reader.at;
      reader.at = valueEnd;
    } else if (field === 2) createRevision = reader.number();
    else if (field === 3) modRevision = reader.number();
    else if (field === LEASE_FIELD) {
      leaseAt = reader.at;
      reader.number();
    } else reader.skip();
  }
  const { buffer } = reader;
  return new WireKeyValue(buffer, keyAt, keyEnd, valueAt, valueEnd, createRevision, modRevision, leaseAt);
}

/** Number of fields of a range response, keys and others, that are decoded in one slice: about 0.15 ms. */
const SLICE_FIELDS = 1024;
/** Gate weight of a full slice, which takes as long as this number of events. */
const SLICE_WEIGHT = 64;
/** Bytes of an answer per unit of the weight of its slices. The weight is at most {@link SLICE_WEIGHT}. */
const BYTES_PER_WEIGHT = 4096;

/** A range response whose fields are being decoded. */
interface PartialRange {
  header: ResponseHeader;
  readonly kvs: KeyValue[];
  more: boolean;
  count: number;
}

/** Decodes the next {@link SLICE_FIELDS} fields. Not a closure, because V8 would optimize it again for each answer. */
function readSlice(reader: ProtoReader, answer: PartialRange, maxKeys: number): void {
  const { length } = reader.buffer;
  for (let fields = 0; fields < SLICE_FIELDS && reader.next(length); fields++) {
    if (reader.field === 2) answer.kvs.push(readKeyValue(reader, reader.open()));
    else if (reader.field === 1) answer.header = readHeader(reader, reader.open());
    else if (reader.field === 3) answer.more = reader.bool();
    else if (reader.field === 4) answer.count = reader.number();
    else reader.skip();
  }
  if (answer.kvs.length > maxKeys) throw new Error(`an answer with more than ${maxKeys} keys`);
}

/**
 * Decodes the answer to a range request in slices of {@link SLICE_FIELDS}.
 *
 * @param gate admits each slice; undefined: each slice has its own turn
 * @param maxKeys rejects an answer with more keys, because 64 MiB of empty keys would take 3 GB of memory
 */
export async function decodeRange(
  buffer: Buffer,
  gate?: TurnGate,
  maxKeys: number = Number.POSITIVE_INFINITY,
): Promise<RangeResponse> {
  const reader = new ProtoReader(buffer);
  const answer: PartialRange = { header: NO_HEADER, kvs: [], more: false, count: 0 };
  const weight = Math.min(SLICE_WEIGHT, 1 + Math.floor(buffer.length / BYTES_PER_WEIGHT));
  while (reader.at !== buffer.length) {
    if (gate !== undefined) await gate.run(weight, () => readSlice(reader, answer, maxKeys));
    else {
      if (reader.at > 0) await eventLoopTurn();
      readSlice(reader, answer, maxKeys);
    }
  }
  return answer;
}

/** A decoded message of a watch stream. */
export interface WatchAnswer {
  readonly header: ResponseHeader;
  readonly created: boolean;
  readonly canceled: boolean;
  /**
   * True if the server answers a progress request: the watch id is then -1. A notification without a request has the id
   * of the watch.
   */
  readonly requested: boolean;
  /** If not 0, the watch was canceled because it starts before this revision. */
  readonly compactRevision: number;
  readonly cancelReason: string;
  /** True if more events of the last revision follow. */
  readonly fragment: boolean;
  readonly events: EventReader;
}

/**
 * Returns the event at the position of the reader. Its type and key-value may have any order. Throws if the event has
 * no key-value.
 */
function readEvent(reader: ProtoReader, end: number): TransportEvent {
  let deleted = false;
  let kv: WireKeyValue | undefined;
  for (let fields = 1; reader.next(end, fields); fields++) {
    if (reader.field === 1) deleted = reader.number() === 1;
    else if (reader.field === 2) kv = readKeyValue(reader, reader.open());
    else reader.skip();
  }
  if (kv === undefined) throw new Error('a watch event without a key-value');
  return deleted ? { key: kv.key, value: undefined, modRevision: kv.modRevision } : kv;
}

/** Number of the field of a watch response that contains an event. */
const EVENT_FIELD = 11;

/**
 * The events of an answer, decoded on demand. When a watch catches up a thousand revisions, or one revision deletes
 * many keys, one message can contain hundreds of thousands of events. Decoding them in one turn would block the event
 * loop for tenths of a second.
 */
export class EventReader {
  readonly #reader: ProtoReader;
  /** Number of the next field that is no event. */
  #otherField = 1;
  #next: TransportEvent | undefined;

  /** @param reader at the first event */
  constructor(reader: ProtoReader) {
    this.#reader = reader;
    this.#next = this.#read();
  }

  get isEmpty(): boolean {
    return this.#next === undefined;
  }

  /** Returns the revision of the next event; `undefined` at the end. */
  get nextRevision(): number | undefined {
    return this.#next?.modRevision;
  }

  /** Returns the next events, at most `maxEvents`, and moves past them. */
  takeEvents(maxEvents: number = Number.POSITIVE_INFINITY): TransportEvent[] {
    const events: TransportEvent[] = [];
    for (; this.#next !== undefined && events.length < maxEvents; this.#next = this.#read())
      events.push(this.#next);
    return events;
  }

  #read(): TransportEvent | undefined {
    const reader = this.#reader;
    while (reader.next(reader.buffer.length, this.#otherField)) {
      if (reader.field === EVENT_FIELD) return readEvent(reader, reader.open());
      // A later field of a known number would change the meaning of events that may already be delivered.
      if (reader.field < EVENT_FIELD)
        throw new Error(`field ${reader.field} of a watch response after events`);
      this.#otherField++;
      reader.skip();
    }
    return undefined;
  }
}

/** Decodes an answer up to its first event. Servers write fields in the order of their numbers, so events are last. */
export function decodeWatch(buffer: Buffer): WatchAnswer {
  const reader = new ProtoReader(buffer);
  let header = NO_HEADER;
  let requested = false;
  let created = false;
  let canceled = false;
  let compactRevision = 0;
  let cancelReason = '';
  let fragment = false;
  let eventsAt = 0;
  for (let fields = 1; reader.next(buffer.length, fields) && reader.field !== EVENT_FIELD; fields++) {
    if (reader.field === 1) header = readHeader(reader, reader.open());
    else if (reader.field === 2) requested = reader.int64() === '-1';
    else if (reader.field === 3) created = reader.bool();
    else if (reader.field === 4) canceled = reader.bool();
    else if (reader.field === 5) compactRevision = reader.number();
    else if (reader.field === 6) cancelReason = reader.text(MAX_SERVER_TEXT);
    else if (reader.field === 7) fragment = reader.bool();
    else reader.skip();
    eventsAt = reader.at;
  }
  reader.at = eventsAt;
  const events = new EventReader(reader);
  return { header, requested, created, canceled, compactRevision, cancelReason, fragment, events };
}

/**
 * Returns the answer to a keepalive: the remaining seconds of the lease, 0 if it does not exist. A grant has the same
 * fields.
 */
export function decodeLease(buffer: Buffer): { readonly lease: LeaseID; readonly ttlSeconds: number } {
  const reader = new ProtoReader(buffer);
  let lease = '0';
  let ttlSeconds = 0;
  for (let fields = 1; reader.next(buffer.length, fields); fields++) {
    if (reader.field === 2) lease = reader.int64();
    else if (reader.field === 3) ttlSeconds = Number(reader.int64());
    else reader.skip();
  }
  return { lease, ttlSeconds };
}
