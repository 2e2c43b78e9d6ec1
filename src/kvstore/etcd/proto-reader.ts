import { KvstoreError } from '../errors.ts';

/** How many bytes the varint at `at` may still take. */
const MAX_VARINT = 10;

function malformed(what: string): never {
  throw new KvstoreError('internal', `malformed answer: ${what}`);
}

/**
 * A cursor over a protobuf message. One is made per answer, and moved over all of it: nothing is allocated per
 * field. Fields that are not asked for are skipped, so newer servers may send more.
 *
 *     while (reader.next(end)) switch (reader.field) { case 1: reader.bytes() … default: reader.skip() }
 */
export class ProtoReader {
  readonly buffer: Buffer;
  /** Where the next byte is read. */
  at = 0;
  /** Number of the field that `next` has found. */
  field = 0;
  /** End of the length-delimited field that `open` has entered. */
  end = 0;
  #wire = 0;

  constructor(buffer: Buffer) {
    this.buffer = buffer;
  }

  /** Moves to the next field; false when the message, which ends at `end`, is over. */
  next(end: number): boolean {
    if (this.at >= end) {
      if (this.at > end) malformed('a field runs over the end of its message');
      return false;
    }
    const tag = this.number();
    this.field = Math.floor(tag / 8);
    this.#wire = tag % 8;
    return true;
  }

  /**
   * A varint as a number. Exact below 2⁵³, which every revision, count and size is; above it the value is
   * rounded, which does no harm in the fields that are read with this method.
   */
  number(): number {
    const { buffer } = this;
    let byte = buffer[this.at++] ?? malformed('it ends in a number');
    if (byte < 0x80) return byte;
    let value = byte & 0x7f;
    let scale = 0x80;
    for (let i = 1; i < MAX_VARINT; i++) {
      byte = buffer[this.at++] ?? malformed('it ends in a number');
      value += (byte & 0x7f) * scale;
      if (byte < 0x80) return value;
      scale *= 0x80;
    }
    return malformed('a number has more than ten bytes');
  }

  /** A varint as signed 64-bit decimal text: lease ids. */
  int64(): string {
    return BigInt.asIntN(64, this.#bigint()).toString();
  }

  /** A varint as unsigned 64-bit decimal text: cluster ids. */
  uint64(): string {
    return BigInt.asUintN(64, this.#bigint()).toString();
  }

  #bigint(): bigint {
    let value = 0n;
    for (let shift = 0n; shift < 70n; shift += 7n) {
      const byte = this.buffer[this.at++] ?? malformed('it ends in a number');
      value |= BigInt(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    return malformed('a number has more than ten bytes');
  }

  bool(): boolean {
    return this.number() !== 0;
  }

  /** Enters a length-delimited field: reads its length, and gives its end. */
  open(): number {
    const length = this.number();
    const end = this.at + length;
    if (end > this.buffer.length) malformed('a field is longer than its message');
    return end;
  }

  /** A length-delimited field as a view of the message: it pins the message. */
  bytes(): Buffer {
    const end = this.open();
    const view = this.buffer.subarray(this.at, end);
    this.at = end;
    return view;
  }

  /** A length-delimited field as UTF-8 text; what is not UTF-8 becomes U+FFFD. */
  text(): string {
    const end = this.open();
    const text = this.buffer.toString('utf8', this.at, end);
    this.at = end;
    return text;
  }

  /** Passes over the field that `next` has found. */
  skip(): void {
    if (this.#wire === 0) this.number();
    else if (this.#wire === 2) this.at = this.open();
    else if (this.#wire === 1) this.at += 8;
    else if (this.#wire === 5) this.at += 4;
    else malformed(`wire type ${this.#wire}`);
  }
}
