import { isOneKey, type KeyRange } from '../codec/key-range.ts';
import { ProtoReader } from '../codec/proto-reader.ts';
import { ProtoWriter } from '../codec/proto-writer.ts';
import {
  type Compare,
  NO_LEASE,
  type TxnRequest,
  type TxnResponse,
  type WriteOperation,
} from '../session/transport.ts';
import { readHeader } from './messages.ts';

/* A handwritten codec for the transactions of etcd (etcd 3.4 `rpc.proto`). */

const EQUAL = 0;
const TARGETS = { 'create-revision': 1, 'mod-revision': 2, value: 3, lease: 4 } as const;
/** Field numbers of the compared values. */
const VALUES = { 'create-revision': 5, 'mod-revision': 6, value: 7, lease: 8 } as const;
/** The fields of a `TxnRequest`. */
const COMPARE = 1;
const SUCCESS = 2;
const FAILURE = 3;
/** The kinds of a `RequestOp`. */
const RANGE = 1;
const PUT = 2;
const DELETE = 3;
const TXN = 4;

/** Maximum number of operations, and of comparisons, in a transaction (`--max-txn-ops`). */
const MAX_OPERATIONS = 128;
/**
 * Maximum number of operations in a nested transaction. etcd subtracts from `MAX_OPERATIONS` the number of operations
 * or comparisons of the outer transaction, whichever is larger. Both are at most 64 if `MAX_WRITES` and
 * `MAX_COMPARED_WRITES` are observed.
 */
const MAX_NESTED_OPERATIONS = 64;

/** Size of a put of a typical value, such as an IP. */
const WRITE_BYTES = 256;

function writeCompare(writer: ProtoWriter, compare: Compare): void {
  writer.varint(1, EQUAL);
  writer.varint(2, TARGETS[compare.target]);
  writer.key(3, compare.key);
  if (compare.target === 'value') writer.bytes(VALUES.value, compare.equals);
  else if (compare.target === 'lease') writer.int64(VALUES.lease, compare.equals);
  else writer.varint(VALUES[compare.target], compare.equals);
}

function writeKey(writer: ProtoWriter, key: string): void {
  writer.key(1, key);
}

function writeRead(writer: ProtoWriter, { key }: Compare): void {
  writer.message(RANGE, writeKey, key);
}

function writePut(writer: ProtoWriter, { key, value, lease }: WriteOperation & { readonly op: 'put' }): void {
  writer.key(1, key);
  writer.bytes(2, value);
  if (lease !== NO_LEASE) writer.int64(3, lease);
}

/** Writes a range. That of a single key has no end, as in the clients of etcd. */
function writeRange(writer: ProtoWriter, range: KeyRange): void {
  writer.key(1, range.start);
  if (!isOneKey(range)) writer.key(2, range.end);
}

function writeOperation(writer: ProtoWriter, write: WriteOperation): void {
  if (write.op === 'put') writer.message(PUT, writePut, write);
  else writer.message(DELETE, writeRange, write.range);
}

function writeSuccess(writer: ProtoWriter, writes: readonly WriteOperation[]): void {
  for (const write of writes) writer.message(SUCCESS, writeOperation, write);
}

/** Writes a nested transaction. It has no comparison, so it always succeeds. */
function writeNested(writer: ProtoWriter, writes: readonly WriteOperation[]): void {
  writer.message(TXN, writeSuccess, writes);
}

/** Writes the operations of a branch, in nested transactions if `isNested`. */
function writeBranch(
  writer: ProtoWriter,
  branch: number,
  writes: readonly WriteOperation[],
  isNested: boolean,
): void {
  if (!isNested) for (const write of writes) writer.message(branch, writeOperation, write);
  else
    for (let i = 0; i < writes.length; i += MAX_NESTED_OPERATIONS)
      writer.message(branch, writeNested, writes.slice(i, i + MAX_NESTED_OPERATIONS));
}

/**
 * Encodes a transaction. If it has no writes, it also reads its first key, because a member of etcd answers a
 * transaction without operations from its own state, which may be old.
 */
export function encodeTxn({ compare, writes, otherwise = [] }: TxnRequest): Buffer {
  const writer = new ProtoWriter(WRITE_BYTES * (1 + compare.length + writes.length + otherwise.length));
  for (const condition of compare) writer.message(COMPARE, writeCompare, condition);
  const [first] = compare;
  if (first !== undefined && writes.length + otherwise.length === 0)
    writer.message(SUCCESS, writeRead, first);
  // Both branches, because etcd subtracts the larger one from the limit of the transactions nested in the other.
  const isNested = Math.max(writes.length, otherwise.length) > MAX_OPERATIONS;
  writeBranch(writer, SUCCESS, writes, isNested);
  writeBranch(writer, FAILURE, otherwise, isNested);
  return writer.written;
}

/** Returns the number of keys which an operation, or a nested transaction, has deleted; 0 for a put. */
function readDeleted(reader: ProtoReader, end: number, isNested = false): number {
  let deleted = 0;
  for (let fields = 1; reader.next(end, fields); fields++)
    if (reader.field === 3) deleted = readDeleteResponse(reader, reader.open());
    else if (reader.field === 4 && !isNested) deleted = readNestedDeleted(reader, reader.open());
    else reader.skip();
  return deleted;
}

function readNestedDeleted(reader: ProtoReader, end: number): number {
  let deleted = 0;
  for (let fields = 1; reader.next(end, fields); fields++)
    if (reader.field === 3) deleted += readDeleted(reader, reader.open(), true);
    else reader.skip();
  return deleted;
}

function readDeleteResponse(reader: ProtoReader, end: number): number {
  let deleted = 0;
  for (let fields = 1; reader.next(end, fields); fields++)
    if (reader.field === 2) deleted = reader.number();
    else reader.skip();
  return deleted;
}

export function decodeTxn(buffer: Buffer): TxnResponse {
  const reader = new ProtoReader(buffer);
  let header: TxnResponse['header'] = { clusterID: '', revision: 0, raftTerm: 0 };
  let succeeded = false;
  let deleted = 0;
  for (let fields = 1; reader.next(buffer.length, fields); fields++) {
    if (reader.field === 1) header = readHeader(reader, reader.open());
    else if (reader.field === 2) succeeded = reader.bool();
    else if (reader.field === 3) deleted += readDeleted(reader, reader.open());
    else reader.skip();
  }
  return { header, succeeded, deleted };
}
