import { bytesOfKey } from '../codec/bytes.ts';
import { ProtoReader } from '../codec/proto-reader.ts';
import {
  bytesField,
  int64Field,
  message,
  numberField,
  varintSize,
  writeVarint,
} from '../codec/proto-writer.ts';
import type { Compare, LeaseID, TxnRequest, TxnResponse, WriteOperation } from '../session/transport.ts';
import { readHeader } from './messages.ts';

/*
 * A handwritten codec for the transactions of etcd (etcd 3.4 `rpc.proto`). A publisher of a large cluster sends
 * hundreds of thousands of puts, so a transaction is written into one buffer whose size is computed first.
 */

const NOT_EQUAL = 3;
const TARGETS = { exists: 0, 'create-revision': 1, 'mod-revision': 2, value: 3, lease: 4 } as const;
/** Field numbers of the compared values. */
const VALUES = { exists: 4, 'create-revision': 5, 'mod-revision': 6, value: 7, lease: 8 } as const;

const EMPTY = Buffer.alloc(0);
const ASCII_END = 0x80;
/** Tags of length-delimited fields, `field * 8 + 2`: of a `TxnRequest`, of a `RequestOp`, and of an operation in it. */
const SUCCESS_TAG = 2 * 8 + 2;
const FAILURE_TAG = 3 * 8 + 2;
const RANGE_TAG = 1 * 8 + 2;
const PUT_TAG = 2 * 8 + 2;
const DELETE_TAG = 3 * 8 + 2;
const TXN_TAG = 4 * 8 + 2;
const FIRST_TAG = 1 * 8 + 2;
const SECOND_TAG = 2 * 8 + 2;

/** Maximum number of operations, and of comparisons, in a transaction (`--max-txn-ops`). */
const MAX_OPERATIONS = 128;
/**
 * Maximum number of operations in a nested transaction. etcd accepts `MAX_OPERATIONS` minus the number of operations,
 * or of comparisons, of the outer transaction. Both are at most 64 if `MAX_WRITES` and `MAX_COMPARED_WRITES` are
 * observed.
 */
const MAX_NESTED_OPERATIONS = 64;

/** Bytes, or ASCII text, which is encoded as one byte for each character. */
type Encodable = string | Uint8Array;

/** A put, delete or read, ready to be written. */
interface Operation {
  /** The kind of the operation. */
  readonly tag: number;
  /** The key of a put, or the start of a range. */
  readonly first: Encodable;
  /** The value of a put, or the end of a range. */
  readonly second: Encodable;
  /** The encoded lease of a put; empty if there is none. */
  readonly lease: Uint8Array;
  /** Bytes of the three fields. */
  readonly size: number;
}

function encodeCompare(compare: Compare): Buffer {
  const { key, target } = compare;
  const field = VALUES[target];
  // A field of a `oneof` is written even if it is 0.
  const value =
    target === 'value'
      ? bytesField(field, compare.equals)
      : int64Field(field, target === 'exists' ? '0' : String(compare.equals));
  return message(
    numberField(1, target === 'exists' ? NOT_EQUAL : 0),
    numberField(2, TARGETS[target]),
    bytesField(3, bytesOfKey(key)),
    value,
  );
}

/** Returns the size of a length-delimited field whose tag has one byte. */
const fieldSize = (length: number): number => 1 + varintSize(length) + length;

/**
 * Returns a function that encodes leases. It remembers the last lease, because successive puts usually have the same
 * lease.
 */
function leaseEncoder(): (lease: LeaseID) => Uint8Array {
  let last: LeaseID = '0';
  let encoded: Uint8Array = EMPTY;
  return (lease) => {
    if (lease !== last) encoded = lease === '0' ? EMPTY : message(int64Field(3, lease));
    last = lease;
    return encoded;
  };
}

function encodableOf(key: string): Encodable {
  for (let i = 0; i < key.length; i++) if (key.charCodeAt(i) >= ASCII_END) return bytesOfKey(key);
  return key;
}

function newOperation(
  tag: number,
  first: Encodable,
  second: Encodable,
  lease: Uint8Array = EMPTY,
): Operation {
  const size = fieldSize(first.length) + fieldSize(second.length) + lease.length;
  return { tag, first, second, lease, size };
}

function operationOf(write: WriteOperation, encodeLease: (lease: LeaseID) => Uint8Array): Operation {
  return write.op === 'put'
    ? newOperation(PUT_TAG, encodableOf(write.key), write.value, encodeLease(write.lease))
    : newOperation(DELETE_TAG, encodableOf(write.range.start), encodableOf(write.range.end));
}

function writeBytes(buffer: Buffer, tag: number, bytes: Encodable, start: number): number {
  buffer[start] = tag;
  const at = writeVarint(buffer, bytes.length, start + 1);
  if (typeof bytes === 'string') for (let i = 0; i < bytes.length; i++) buffer[at + i] = bytes.charCodeAt(i);
  else buffer.set(bytes, at);
  return at + bytes.length;
}

/** Operations of a branch, or of a transaction nested in it. */
interface Group {
  /** {@link SUCCESS_TAG} or {@link FAILURE_TAG} */
  readonly branchTag: number;
  readonly operations: readonly Operation[];
  readonly isNested: boolean;
  /** Bytes of the operations. */
  readonly size: number;
}

/** Returns the operations of a branch as one group, or as nested groups. */
function groupsOf(branchTag: number, operations: readonly Operation[], isNested: boolean): readonly Group[] {
  const perGroup = isNested ? MAX_NESTED_OPERATIONS : MAX_OPERATIONS;
  const groups: Group[] = [];
  for (let i = 0; i < operations.length; i += perGroup) {
    const members = operations.slice(i, i + perGroup);
    const size = members.reduce((sum, operation) => sum + fieldSize(fieldSize(operation.size)), 0);
    groups.push({ branchTag, operations: members, isNested, size });
  }
  return groups;
}

function writeGroup(buffer: Buffer, { branchTag, operations, isNested, size }: Group, start: number): number {
  let at = start;
  if (isNested) {
    buffer[at] = branchTag;
    at = writeVarint(buffer, fieldSize(size), at + 1);
    buffer[at] = TXN_TAG;
    at = writeVarint(buffer, size, at + 1);
  }
  // A nested transaction has no comparison, so it always succeeds.
  const operationTag = isNested ? SUCCESS_TAG : branchTag;
  for (const operation of operations) at = writeOperation(buffer, operationTag, operation, at);
  return at;
}

/** @param branchTag {@link SUCCESS_TAG} or {@link FAILURE_TAG} */
function writeOperation(buffer: Buffer, branchTag: number, operation: Operation, start: number): number {
  const { tag, first, second, lease, size } = operation;
  buffer[start] = branchTag;
  let at = writeVarint(buffer, fieldSize(size), start + 1);
  buffer[at] = tag;
  at = writeVarint(buffer, size, at + 1);
  at = writeBytes(buffer, FIRST_TAG, first, at);
  at = writeBytes(buffer, SECOND_TAG, second, at);
  buffer.set(lease, at);
  return at + lease.length;
}

/**
 * Encodes a transaction. If it has no writes, it also reads its first key, because a member of etcd answers a
 * transaction without operations from its own state, which may be old.
 */
export function encodeTxn({ compare, writes, otherwise = [] }: TxnRequest): Buffer {
  const encodeLease = leaseEncoder();
  const compares = message(...compare.map((condition) => bytesField(1, encodeCompare(condition))));
  const success = writes.map((write) => operationOf(write, encodeLease));
  const failure = otherwise.map((write) => operationOf(write, encodeLease));
  const [first] = compare;
  if (first !== undefined && success.length + failure.length === 0)
    success.push(newOperation(RANGE_TAG, encodableOf(first.key), EMPTY));
  // Both branches, because etcd subtracts the larger one from the limit of the transactions nested in the other.
  const isNested = Math.max(success.length, failure.length) > MAX_OPERATIONS;
  const groups = [...groupsOf(SUCCESS_TAG, success, isNested), ...groupsOf(FAILURE_TAG, failure, isNested)];
  let size = compares.length;
  for (const group of groups) size += group.isNested ? fieldSize(fieldSize(group.size)) : group.size;
  const buffer = Buffer.allocUnsafe(size);
  buffer.set(compares);
  let at = compares.length;
  for (const group of groups) at = writeGroup(buffer, group, at);
  return buffer;
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
