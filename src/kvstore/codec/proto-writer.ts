import { requireArgument } from '../../base/arguments.ts';
import { bytesOfKey } from './bytes.ts';
import { LENGTH_DELIMITED, VARINT } from './proto-reader.ts';

/*
 * The parts of protobuf that requests to etcd and endpoint slices need. Most messages to etcd are short, so they are
 * joined from their fields, because clarity matters more than speed. `ProtoWriter` writes transactions and slices,
 * which may be large.
 */

/** Default size of the first buffer: most slices fit. */
const FIRST_BYTES = 2048;
/** Maximum number of bytes of a varint. */
const MAX_VARINT_BYTES = 10;
const ASCII_END = 0x80;

/** Returns the number of bytes of a varint. */
function varintSize(value: number): number {
  let size = 1;
  for (let rest = value; rest >= 0x80; rest = Math.floor(rest / 0x80)) size++;
  return size;
}

/** Writes a varint, and returns the position after it. */
function writeVarint(buffer: Buffer, value: number, start: number): number {
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

/** Returns the field of a number from 0 to 2⁵³ - 1; 0 is omitted as in proto3. */
export function numberField(field: number, value: number): EncodedField {
  return value === 0 ? [] : [...tag(field, VARINT), ...varint(value)];
}

/** Returns the field of a 64-bit number, which is given as decimal text. 0 is not omitted. */
export function int64Field(field: number, value: string): EncodedField {
  return [...tag(field, VARINT), ...bigVarint(BigInt(value))];
}

/** Returns the field of a boolean; false is omitted. */
export function boolField(field: number, value: boolean): EncodedField {
  return numberField(field, value ? 1 : 0);
}

/** Returns the field of bytes or of an embedded message. Empty ones are not omitted. */
export function bytesField(field: number, value: Uint8Array): EncodedField {
  return Buffer.concat([Uint8Array.from([...tag(field, LENGTH_DELIMITED), ...varint(value.length)]), value]);
}

export function message(...fields: EncodedField[]): Buffer {
  return Buffer.concat(fields.map((field) => (field instanceof Uint8Array ? field : Uint8Array.from(field))));
}

/**
 * Writes a large protobuf message into one buffer: no field has a buffer of its own. A field is omitted only if its
 * value is undefined. Zero, false and empty texts are written, unlike in proto3.
 */
export class ProtoWriter {
  #bytes: Buffer;
  #end = 0;
  /**
   * Number of bytes which the length of the last embedded message took. As many are reserved for the length of the
   * next one, which usually has a similar size. If it takes another number, the message is moved.
   */
  #lengthBytes = 1;
  /** The last 64-bit number and its bytes, because successive puts usually have the same lease. */
  #lastInt64 = '0';
  #lastInt64Bytes: readonly number[] = [0];

  /** @param expectedBytes size of the first buffer, so that a large message is not copied when the buffer grows */
  constructor(expectedBytes: number = FIRST_BYTES) {
    this.#bytes = Buffer.allocUnsafe(expectedBytes);
  }

  /** Returns the written bytes, which the writer may still change. */
  get written(): Buffer {
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

  /** Writes a 64-bit number from decimal text. */
  int64(field: number, value: string): void {
    if (value !== this.#lastInt64) this.#lastInt64Bytes = bigVarint(BigInt(value));
    this.#lastInt64 = value;
    this.#tag(field, VARINT);
    for (const byte of this.#lastInt64Bytes) this.#bytes[this.#end++] = byte;
  }

  text(field: number, text: string | undefined): void {
    if (text === undefined) return;
    const length = Buffer.byteLength(text);
    this.#open(field, length);
    this.#end += this.#bytes.write(text, this.#end);
  }

  /** Writes the bytes of a key. */
  key(field: number, key: string): void {
    const start = this.#end;
    this.#open(field, key.length);
    const at = this.#end;
    for (let i = 0; i < key.length; i++) {
      const code = key.charCodeAt(i);
      if (code >= ASCII_END) {
        this.#end = start;
        this.bytes(field, bytesOfKey(key));
        return;
      }
      this.#bytes[at + i] = code;
    }
    this.#end = at + key.length;
  }

  bytes(field: number, bytes: Uint8Array): void {
    this.#open(field, bytes.length);
    this.#bytes.set(bytes, this.#end);
    this.#end += bytes.length;
  }

  /**
   * Writes an embedded message with the fields that `write` writes of `value`. The value is a parameter, so that many
   * messages need no closures.
   */
  message<T>(field: number, write: (writer: ProtoWriter, value: T) => void, value: T): void {
    this.#tag(field, LENGTH_DELIMITED);
    const at = this.#end;
    const start = at + this.#lengthBytes;
    this.#end = start;
    write(this, value);
    const length = this.#end - start;
    const size = varintSize(length);
    if (at + size !== start) {
      this.#reserve(size);
      this.#bytes.copyWithin(at + size, start, this.#end);
      this.#end = at + size + length;
    }
    writeVarint(this.#bytes, length, at);
    this.#lengthBytes = size;
  }

  /** Writes the tag and the length of a length-delimited field, with room for its bytes. */
  #open(field: number, length: number): void {
    this.#tag(field, LENGTH_DELIMITED, length);
    this.#end = writeVarint(this.#bytes, length, this.#end);
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
