/** Flags of a request (`NLM_F_*`). The meaning of some bits depends on the type of the message. */
export const NLM_F = {
  request: 0x1,
  ack: 0x4,
  /** In an answer: the table changed during the dump. */
  dumpInterrupted: 0x10,
  dump: 0x300,
  replace: 0x100,
  exclusive: 0x200,
  create: 0x400,
  append: 0x800,
  /** In an error answer: the request is not included. */
  capped: 0x100,
  /** In an error answer: attributes follow, such as the error text. */
  ackAttributes: 0x200,
} as const;

/** Size of a message header: length, type, flags, sequence number, port. */
export const HEADER_BYTES = 16;

/** Flag in the type of an attribute that contains attributes. */
export const NESTED = 0x8000;

const ALIGNMENT = 4;
const FIRST_CAPACITY = 4096;

/**
 * Writes messages one after the other, each a header, a fixed part and attributes: `begin`, the content, `end`. Numbers
 * are little-endian, as on all supported processors; `be` in a name means network order. The owner reuses the writer.
 */
export class MessageWriter {
  #bytes = new Uint8Array(FIRST_CAPACITY);
  #view = new DataView(this.#bytes.buffer);
  #end = 0;
  /** Offset of the message that was begun last. */
  #message = 0;

  get length(): number {
    return this.#end;
  }

  begin(type: number, flags: number, sequence: number): this {
    this.#message = this.#end;
    return this.u32(0).u16(type).u16(flags).u32(sequence).u32(0);
  }

  end(): void {
    this.#view.setUint32(this.#message, this.#end - this.#message, true);
  }

  /** Adds flags to the message that begins at `start`. */
  addFlags(start: number, flags: number): void {
    this.#view.setUint16(start + 6, this.#view.getUint16(start + 6, true) | flags, true);
  }

  u8(value: number): this {
    const at = this.#grow(1);
    this.#view.setUint8(at, value);
    return this;
  }

  u16(value: number): this {
    const at = this.#grow(2);
    this.#view.setUint16(at, value, true);
    return this;
  }

  u32(value: number): this {
    const at = this.#grow(4);
    this.#view.setUint32(at, value, true);
    return this;
  }

  be16(value: number): this {
    const at = this.#grow(2);
    this.#view.setUint16(at, value);
    return this;
  }

  be32(value: number): this {
    const at = this.#grow(4);
    this.#view.setUint32(at, value);
    return this;
  }

  bytes(value: Uint8Array): this {
    const at = this.#grow(value.length);
    this.#bytes.set(value, at);
    return this;
  }

  /** Writes an attribute with the content that `write` writes. */
  attribute(type: number, write: () => void): this {
    const start = this.#end;
    this.u16(0).u16(type);
    write();
    this.#view.setUint16(start, this.#end - start, true);
    this.#pad();
    return this;
  }

  /** Writes an attribute that contains attributes. */
  nest(type: number, write: () => void): this {
    return this.attribute(type | NESTED, write);
  }

  attributeU8(type: number, value: number): this {
    this.u16(5).u16(type).u8(value);
    this.#pad();
    return this;
  }

  attributeU32(type: number, value: number): this {
    return this.u16(8).u16(type).u32(value);
  }

  attributeBE16(type: number, value: number): this {
    this.u16(6).u16(type).be16(value);
    this.#pad();
    return this;
  }

  attributeBE32(type: number, value: number): this {
    return this.u16(8).u16(type).be32(value);
  }

  attributeBytes(type: number, value: Uint8Array): this {
    this.u16(4 + value.length)
      .u16(type)
      .bytes(value);
    this.#pad();
    return this;
  }

  /** Writes zero-terminated ASCII text. */
  attributeText(type: number, value: string): this {
    this.u16(5 + value.length).u16(type);
    for (let i = 0; i < value.length; i++) this.u8(value.charCodeAt(i));
    this.u8(0);
    this.#pad();
    return this;
  }

  /** Returns the written bytes, valid until the next `clear`. */
  written(): Uint8Array {
    return this.#bytes.subarray(0, this.#end);
  }

  clear(): void {
    this.truncate(0);
  }

  /** Removes everything written from `length` on. */
  truncate(length: number): void {
    this.#end = length;
  }

  #pad(): void {
    while (this.#end % ALIGNMENT !== 0) this.u8(0);
  }

  #grow(count: number): number {
    const at = this.#end;
    this.#end += count;
    if (this.#end > this.#bytes.length) {
      const larger = new Uint8Array(Math.max(this.#bytes.length * 2, this.#end));
      larger.set(this.#bytes);
      this.#bytes = larger;
      this.#view = new DataView(larger.buffer);
    }
    return at;
  }
}
