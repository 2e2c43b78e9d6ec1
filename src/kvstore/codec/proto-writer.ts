import { requireArgument } from '../../base/arguments.ts';
import { LENGTH_DELIMITED, VARINT } from './proto-reader.ts';

/*
 * The parts of protobuf that requests to etcd and endpoint slices need. Messages to etcd are short, so they are joined
 * from their fields, because clarity matters more than speed. Slices may be large: `ProtoWriter` writes them.
 */

/** Size of the first buffer: most slices fit. */
const FIRST_BYTES = 2048;
/** Bytes reserved for the length of an embedded message: shorter ones than 128 bytes need no more. */
const LENGTH_BYTES = 1;
/** Maximum number of bytes of a varint of up to 2⁵³. */
const MAX_VARINT_BYTES = 8;

/** Returns the number of bytes of a varint. */
export function varintSize(value: number): number {
  let size = 1;
  for (let rest = value; rest >= 0x80; rest = Math.floor(rest / 0x80)) size++;
  return size;
}

/** Writes a varint, and returns the position after it. */
export function writeVarint(buffer: Buffer, value: number, start: number): number {
  let at = start;
  let rest = value;
  // Division instead of shifts, because revisions have more than 32 bits.
  for (; rest >= 0x80; rest = Math.floor(rest / 0x80)) buffer[at++] = (rest % 0x80) | 0x80;
  buffer[at++] = rest;
  return at;
}

export type EncodedField = readonly number[] | Uint8Array;

/** Returns a varint as an array, which is joined with others faster than the buffer of {@link writeVarint}. */
function varint(value: number): number[] {
  const bytes: number[] = [];
  let rest = value;
  for (; rest >= 0x80; rest = Math.floor(rest / 0x80)) bytes.push((rest % 0x80) | 0x80);
  bytes.push(rest);
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

/**
 * Writes a large protobuf message into one buffer: no field has a buffer of its own. The field of an undefined value is
 * omitted; other than in proto3, those of 0, false and empty texts are not.
 */
export class ProtoWriter {
  #bytes = Buffer.allocUnsafe(FIRST_BYTES);
  #end = 0;

  /** Returns the written bytes, which the writer may still change. */
  get written(): Uint8Array {
    return this.#bytes.subarray(0, this.#end);
  }

  /** Writes an integer from 0 to 2⁵³ - 1, or a boolean. Throws a `UsageError` for other numbers. */
  varint(field: number, value: number | boolean | undefined): void {
    if (value === undefined) return;
    const number = Number(value);
    requireArgument(
      Number.isSafeInteger(number) && number >= 0,
      `field ${field} of the message must be an integer from 0 to 2⁵³ - 1, not ${number}`,
    );
    this.#tag(field, VARINT);
    this.#end = writeVarint(this.#bytes, number, this.#end);
  }

  text(field: number, text: string | undefined): void {
    if (text === undefined) return;
    const length = Buffer.byteLength(text);
    this.#tag(field, LENGTH_DELIMITED, length);
    this.#end = writeVarint(this.#bytes, length, this.#end);
    this.#end += this.#bytes.write(text, this.#end);
  }

  /** Writes an embedded message with the fields that `write` writes. */
  message(field: number, write: () => void): void {
    this.#tag(field, LENGTH_DELIMITED);
    const start = this.#end;
    this.#end += LENGTH_BYTES;
    write();
    const length = this.#end - start - LENGTH_BYTES;
    const size = varintSize(length);
    if (size > LENGTH_BYTES) {
      this.#reserve(size);
      this.#bytes.copyWithin(start + size, start + LENGTH_BYTES, this.#end);
      this.#end += size - LENGTH_BYTES;
    }
    writeVarint(this.#bytes, length, start);
  }

  /** Writes a tag, with room for a varint and `size` bytes after it. */
  #tag(field: number, wire: number, size = 0): void {
    this.#reserve(2 * MAX_VARINT_BYTES + size);
    this.#end = writeVarint(this.#bytes, field * 8 + wire, this.#end);
  }

  #reserve(size: number): void {
    if (this.#end + size <= this.#bytes.length) return;
    const grown = Buffer.allocUnsafe(2 * this.#bytes.length + size);
    grown.set(this.written);
    this.#bytes = grown;
  }
}
