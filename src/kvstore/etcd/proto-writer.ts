/*
 * Protobuf, as little as three requests need. A request is a few dozen bytes, so this is written for clarity.
 */

/** A field of a message, already encoded. */
export type EncodedField = readonly number[] | Uint8Array;

function varint(value: number): number[] {
  const bytes: number[] = [];
  // Division, not shifts: revisions are larger than 32 bits.
  for (; value >= 0x80; value = Math.floor(value / 0x80)) bytes.push((value % 0x80) | 0x80);
  bytes.push(value);
  return bytes;
}

/** A varint of up to 64 bits in a `bigint`; negative ones as two's complement. */
function bigVarint(value: bigint): number[] {
  const bytes: number[] = [];
  let rest = BigInt.asUintN(64, value);
  for (; rest >= 0x80n; rest >>= 7n) bytes.push(Number(rest & 0x7fn) | 0x80);
  bytes.push(Number(rest));
  return bytes;
}

const VARINT = 0;
const LENGTH_DELIMITED = 2;

const tag = (field: number, wire: number): number[] => varint(field * 8 + wire);

/** A number from 0 to 2⁵³; 0 is left out, as proto3 has it. */
export function numberField(field: number, value: number): EncodedField {
  return value === 0 ? [] : [...tag(field, VARINT), ...varint(value)];
}

/** A 64-bit number in decimal text. */
export function int64Field(field: number, value: string): EncodedField {
  return [...tag(field, VARINT), ...bigVarint(BigInt(value))];
}

/** A boolean; false is left out. */
export function boolField(field: number, value: boolean): EncodedField {
  return numberField(field, value ? 1 : 0);
}

/** Bytes, or an embedded message; empty ones are written too. */
export function bytesField(field: number, value: Uint8Array): EncodedField {
  return Buffer.concat([Uint8Array.from([...tag(field, LENGTH_DELIMITED), ...varint(value.length)]), value]);
}

/** Puts fields together to a message. */
export function message(...fields: EncodedField[]): Buffer {
  return Buffer.concat(fields.map((field) => (field instanceof Uint8Array ? field : Uint8Array.from(field))));
}
