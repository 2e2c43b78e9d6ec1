import { bytesOfText } from '../codec/bytes.ts';
import { ProtoReader } from '../codec/proto-reader.ts';
import { bytesField, int64Field, message, numberField } from '../codec/proto-writer.ts';
import type { LeaseID } from '../session/transport.ts';

/* The messages of the rare calls (etcd 3.4 `rpc.proto`): leases, tokens, status. */

/** Returns a request for a lease with an id of the server's choice. */
export function encodeLeaseGrant(ttlSeconds: number): Buffer {
  return message(numberField(1, ttlSeconds));
}

/** Returns the id of the granted lease. */
export function decodeLeaseGrant(buffer: Buffer): LeaseID {
  const reader = new ProtoReader(buffer);
  let lease = '0';
  while (reader.next(buffer.length)) {
    if (reader.field === 2) lease = reader.int64();
    else reader.skip();
  }
  return lease;
}

export function encodeLeaseRevoke(lease: LeaseID): Buffer {
  return message(int64Field(1, lease));
}

export function encodeAuthenticate(username: string, password: string): Buffer {
  return message(bytesField(1, bytesOfText(username)), bytesField(2, bytesOfText(password)));
}

/** Returns the token. */
export function decodeAuthenticate(buffer: Buffer): string {
  const reader = new ProtoReader(buffer);
  let token = '';
  while (reader.next(buffer.length)) {
    if (reader.field === 2) token = reader.text();
    else reader.skip();
  }
  return token;
}

/** The status of a member. */
export interface MemberStatus {
  /** Ids in decimal text; `0` if there is no leader. */
  readonly member: string;
  readonly leader: string;
  readonly version: string;
  readonly dbSizeBytes: number;
}

/** Reads a status. Its request has no fields. */
export function decodeStatus(buffer: Buffer): MemberStatus {
  const reader = new ProtoReader(buffer);
  let member = '0';
  let leader = '0';
  let version = '';
  let dbSizeBytes = 0;
  while (reader.next(buffer.length)) {
    if (reader.field === 1) member = readMember(reader, reader.open());
    else if (reader.field === 2) version = reader.text();
    else if (reader.field === 3) dbSizeBytes = reader.number();
    else if (reader.field === 4) leader = reader.uint64();
    else reader.skip();
  }
  return { member, leader, version, dbSizeBytes };
}

/** Returns the member that a header names. */
function readMember(reader: ProtoReader, end: number): string {
  let member = '0';
  while (reader.next(end)) {
    if (reader.field === 2) member = reader.uint64();
    else reader.skip();
  }
  return member;
}
