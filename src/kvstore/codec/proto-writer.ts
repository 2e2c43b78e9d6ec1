import { LENGTH_DELIMITED, VARINT } from './proto-reader.ts';

/*
 * The parts of protobuf that requests to etcd need. Messages are short, so clarity matters more than speed. Large ones
 * are written by `MessageWriter`.
 */

export type EncodedField = readonly number[] | Uint8Array;

function varint(value: number): number[] {
  const bytes: number[] = [];
  // Division instead of shifts, because revisions have more than 32 bits.
  for (; value >= 0x80; value = Math.floor(value / 0x80)) bytes.push((value % 0x80) | 0x80);
  bytes.push(value);
  return bytes;
}

/** Returns a varint of up to 64 bits. Negative values are encoded as two's complement. */
function bigVarint(value: bigint): number[] {
  const bytes: number[] = [];
  let rest = BigInt.asUintN(64, value);
  for (; rest >= 0x80n; rest >>= 7n) bytes.push(Number(rest & 0x7fn) | 0x80);
  bytes.push(Number(rest));
  return bytes;
}

const tag = (field: number, wire: number): number[] => varint(field * 8 + wire);

/** Returns a number from 0 to 2⁵³; 0 is omitted as in proto3. */
export function numberField(field: number, value: number): EncodedField {
  return value === 0 ? [] : [...tag(field, VARINT), ...varint(value)];
}

/** Returns a 64-bit number from decimal text. 0 is not omitted. */
export function int64Field(field: number, value: string): EncodedField {
  return [...tag(field, VARINT), ...bigVarint(BigInt(value))];
}

/** Returns a boolean; false is omitted. */
export function boolField(field: number, value: boolean): EncodedField {
  return numberField(field, value ? 1 : 0);
}

/** Returns bytes or an embedded message. Empty ones are not omitted. */
export function bytesField(field: number, value: Uint8Array): EncodedField {
  return Buffer.concat([Uint8Array.from([...tag(field, LENGTH_DELIMITED), ...varint(value.length)]), value]);
}

export function message(...fields: EncodedField[]): Buffer {
  return Buffer.concat(fields.map((field) => (field instanceof Uint8Array ? field : Uint8Array.from(field))));
}
