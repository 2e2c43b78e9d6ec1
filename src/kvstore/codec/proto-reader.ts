/** Maximum number of bytes of a varint. */
const MAX_VARINT = 10;

/** Maximum number of fields of a message whose fields the caller counts. */
const MAX_FIELDS = 1024;

/** Wire types of protobuf. */
export const VARINT = 0;
export const LENGTH_DELIMITED = 2;
const FIXED_64 = 1;
const FIXED_32 = 5;

/** Thrown if the bytes are not a protobuf message. */
export class ProtoError extends Error {
  override readonly name: string = 'ProtoError';
}

function malformed(what: string): never {
  throw new ProtoError(`malformed message: ${what}`);
}

/**
 * A cursor over a protobuf message. One reader decodes a whole message, so nothing is allocated per field. Unknown
 * fields are skipped, because newer writers may send more.
 *
 *     while (reader.next(end)) switch (reader.field) { case 1: reader.bytes() … default: reader.skip() }
 */
export class ProtoReader {
  readonly buffer: Buffer;
  /** Index of the next byte. */
  at = 0;
  field = 0;
  /** Wire type of the current field: {@link VARINT}, {@link LENGTH_DELIMITED}, or a fixed size. */
  wire = 0;

  constructor(buffer: Buffer) {
    this.buffer = buffer;
  }

  /**
   * Moves to the next field. Returns false at the end of the message, which is `end`. Throws if `count` exceeds
   * {@link MAX_FIELDS}, because 64 MiB of fields without content would take a third of a second.
   *
   * @param count number of the field in its message, from 1; 0 for messages that may have any number of fields
   */
  next(end: number, count = 0): boolean {
    if (this.at >= end) {
      if (this.at > end) malformed('a field exceeds its message');
      return false;
    }
    if (count > MAX_FIELDS) malformed(`more than ${MAX_FIELDS} fields`);
    const tag = this.#varint();
    this.field = Math.floor(tag / 8);
    this.wire = tag % 8;
    if (this.field === 0) malformed('field 0');
    return true;
  }

  /**
   * Returns a varint as a number. The number is exact below 2⁵³, which is enough for every revision, count and size.
   * Larger values are rounded. Lease and cluster ids are read with `int64` and `uint64`.
   */
  number(): number {
    if (this.wire !== VARINT) this.#rejectWire();
    return this.#varint();
  }

  #rejectWire(): never {
    return malformed(`wire type ${this.wire} of field ${this.field}`);
  }

  #varint(): number {
    const { buffer } = this;
    let byte = buffer[this.at++] ?? malformed('the message ends within a number');
    if (byte < 0x80) return byte;
    let value = byte & 0x7f;
    let scale = 0x80;
    for (let i = 1; i < MAX_VARINT; i++) {
      byte = buffer[this.at++] ?? malformed('the message ends within a number');
      value += (byte & 0x7f) * scale;
      if (byte < 0x80) return value;
      scale *= 0x80;
    }
    return malformed('a number has more than ten bytes');
  }

  /** Returns a varint as signed 64-bit decimal text, for lease ids. */
  int64(): string {
    return BigInt.asIntN(64, this.#bigint()).toString();
  }

  /** Returns a varint as unsigned 64-bit decimal text, for cluster ids. */
  uint64(): string {
    return BigInt.asUintN(64, this.#bigint()).toString();
  }

  #bigint(): bigint {
    if (this.wire !== VARINT) this.#rejectWire();
    let value = 0n;
    for (let shift = 0n; shift < 70n; shift += 7n) {
      const byte = this.buffer[this.at++] ?? malformed('the message ends within a number');
      value |= BigInt(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    return malformed('a number has more than ten bytes');
  }

  bool(): boolean {
    return this.number() !== 0;
  }

  /** Enters a length-delimited field: reads its length and returns its end. */
  open(): number {
    if (this.wire !== LENGTH_DELIMITED) this.#rejectWire();
    const length = this.#varint();
    const end = this.at + length;
    if (end > this.buffer.length) malformed('a field exceeds its message');
    return end;
  }

  /** Returns a length-delimited field as a view, which keeps the whole message in memory. */
  bytes(): Buffer {
    const end = this.open();
    const view = this.buffer.subarray(this.at, end);
    this.at = end;
    return view;
  }

  /** Returns the first bytes of a length-delimited field as UTF-8 text. Invalid bytes become U+FFFD. */
  text(maxBytes: number): string {
    const end = this.open();
    const text = this.buffer.toString('utf8', this.at, Math.min(end, this.at + maxBytes));
    this.at = end;
    return text;
  }

  /** Skips the current field. */
  skip(): void {
    if (this.wire === VARINT) this.number();
    else if (this.wire === LENGTH_DELIMITED) this.at = this.open();
    else if (this.wire === FIXED_64) this.at += 8;
    else if (this.wire === FIXED_32) this.at += 4;
    else malformed(`wire type ${this.wire}`);
  }
}
