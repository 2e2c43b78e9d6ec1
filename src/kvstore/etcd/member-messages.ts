import { ProtoReader } from '../codec/proto-reader.ts';
import { bytesField, message } from '../codec/proto-writer.ts';
import { readField } from './messages.ts';

/** Returns the request for a token. */
export function encodeAuthenticate(username: string, password: string): Buffer {
  return message(bytesField(1, Buffer.from(username)), bytesField(2, Buffer.from(password)));
}

export function decodeToken(buffer: Buffer): string {
  const reader = new ProtoReader(buffer);
  return readField(reader, buffer.length, 2, () => reader.text(), '');
}

/** The state of an etcd member, from the answer of `Maintenance.Status`. */
export interface MemberStatus {
  readonly memberID: string;
  /** `0` without a leader. */
  readonly leaderID: string;
  readonly version: string;
  readonly dbSizeBytes: number;
  /** A missing leader, and active alarms. */
  readonly errors: readonly string[];
}

export function decodeMemberStatus(buffer: Buffer): MemberStatus {
  const reader = new ProtoReader(buffer);
  let memberID = '0';
  let leaderID = '0';
  let version = '';
  let dbSizeBytes = 0;
  const errors: string[] = [];
  while (reader.next(buffer.length)) {
    if (reader.field === 1) memberID = readField(reader, reader.open(), 2, () => reader.uint64(), memberID);
    else if (reader.field === 2) version = reader.text();
    else if (reader.field === 3) dbSizeBytes = reader.number();
    else if (reader.field === 4) leaderID = reader.uint64();
    else if (reader.field === 8) errors.push(reader.text());
    else reader.skip();
  }
  return { memberID, leaderID, version, dbSizeBytes, errors };
}
