/** Thrown if bytes are not a valid record, or not part of a valid file. */
export class DamagedError extends Error {
  override readonly name = 'DamagedError';
}

const encoder = new TextEncoder();
const decoder = new TextDecoder('utf-8', { ignoreBOM: true });

/**
 * Texts of up to this number of bytes are decoded byte by byte, which is faster than a call of the decoder. A longer
 * text in V8 would refer to a string of 32 bytes for each further character.
 */
const MAX_SHORT_BYTES = 12;

/** Initial size of the memory for loaded texts in bytes. Names of Kubernetes have up to 253 bytes. */
const INITIAL_LOADED_BYTES = 1024;

/** Appends values to a growing buffer, and reads values. Reads throw {@link DamagedError} at the end. */
export class ByteBuffer {
  #bytes: Uint8Array;
  #length = 0;
  /** Position of the next read. */
  at = 0;

  readonly #maxDoubled: number;
  /** See {@link ByteBuffer.load}. */
  #loaded: Uint8Array = new Uint8Array(INITIAL_LOADED_BYTES);

  /** Takes ownership of `bytes`, of which `length` are used. Grows by doubling up to `maxDoubled`, then as needed. */
  constructor(bytes: Uint8Array, maxDoubled: number, length = 0) {
    this.#bytes = bytes;
    this.#maxDoubled = maxDoubled;
    this.#length = length;
  }

  get length(): number {
    return this.#length;
  }

  /** Size of the allocated memory in bytes. */
  get capacity(): number {
    return this.#bytes.length;
  }

  /** Removes the content. Its memory is overwritten by the next writes. */
  clear(): void {
    this.#length = 0;
  }

  writeByte(value: number): void {
    this.reserve(1);
    this.#bytes[this.#length++] = value;
  }

  /** Writes 32 bits, big-endian. */
  writeWord(value: number): void {
    this.reserve(4);
    const bytes = this.#bytes;
    bytes[this.#length++] = value >>> 24;
    bytes[this.#length++] = value >>> 16;
    bytes[this.#length++] = value >>> 8;
    bytes[this.#length++] = value;
  }

  /** Writes an integer from 0 to 2⁵³−1 in groups of 7 bits, lowest first. The top bit of the last group is clear. */
  writeNumber(value: number): void {
    this.reserve(8);
    const bytes = this.#bytes;
    while (value > 0x7fff_ffff) {
      bytes[this.#length++] = (value & 0x7f) | 0x80;
      value = Math.floor(value / 128);
    }
    while (value > 0x7f) {
      bytes[this.#length++] = (value & 0x7f) | 0x80;
      value >>>= 7;
    }
    bytes[this.#length++] = value;
  }

  /** Writes a text: its length in bytes, then UTF-8. A lone surrogate becomes U+FFFD. */
  writeText(value: string): void {
    const { length } = value;
    const start = this.#length;
    if (length < 0x80) {
      this.reserve(length + 1);
      const bytes = this.#bytes;
      bytes[this.#length++] = length;
      for (let i = 0; i < length; i++) {
        const code = value.charCodeAt(i);
        if (code > 0x7f) break;
        bytes[this.#length++] = code;
      }
      if (this.#length - start === length + 1) return;
      this.#length = start;
    }
    const encoded = encoder.encode(value);
    this.writeNumber(encoded.length);
    this.append(encoded);
  }

  /**
   * Copies a text as UTF-8 into {@link ByteBuffer.loaded}, after the first `from` bytes. Returns the end of its bytes.
   * A lone surrogate becomes U+FFFD. A loaded text can be hashed and compared before it is written.
   */
  load(value: string, from = 0): number {
    const { length } = value;
    if (this.#loaded.length < from + 3 * length) {
      const larger = new Uint8Array(2 * (from + 3 * length));
      larger.set(this.#loaded);
      this.#loaded = larger;
    }
    const loaded = this.#loaded;
    for (let i = 0; i < length; i++) {
      const code = value.charCodeAt(i);
      if (code > 0x7f) return from + encoder.encodeInto(value, loaded.subarray(from)).written;
      loaded[from + i] = code;
    }
    return from + length;
  }

  /** The memory of {@link ByteBuffer.load}. It may be longer than the loaded texts. */
  get loaded(): Uint8Array {
    return this.#loaded;
  }

  /** Writes the loaded bytes between two positions as a text. */
  writeLoaded(from: number, to: number): void {
    const length = to - from;
    this.writeNumber(length);
    this.reserve(length);
    const [loaded, bytes] = [this.#loaded, this.#bytes];
    let end = this.#length;
    for (let i = from; i < to; i++) bytes[end++] = loaded[i] ?? 0;
    this.#length = end;
  }

  /** Returns true if the text at a position equals the first `length` loaded bytes. Moves the read position. */
  equalsLoaded(position: number, length: number): boolean {
    this.at = position;
    if (this.readNumber() !== length) return false;
    const [loaded, bytes, start] = [this.#loaded, this.#bytes, this.at];
    for (let i = 0; i < length; i++) if (bytes[start + i] !== loaded[i]) return false;
    return true;
  }

  /** Moves the content from `position` on by `count` bytes. The caller overwrites the bytes in between. */
  insert(position: number, count: number): void {
    this.reserve(count);
    this.#bytes.copyWithin(position + count, position, this.#length);
    this.#length += count;
  }

  append(bytes: Uint8Array): void {
    this.reserve(bytes.length);
    this.#bytes.set(bytes, this.#length);
    this.#length += bytes.length;
  }

  /** Returns the content from a position on, without a copy, because complete records never change. */
  bytesFrom(position: number): Uint8Array {
    return this.#bytes.subarray(position, this.#length);
  }

  byteAt(position: number): number {
    return this.#bytes[position] ?? 0;
  }

  putByte(position: number, value: number): void {
    this.#bytes[position] = value;
  }

  /** Replaces the 32 bits at a position. */
  putWord(position: number, value: number): void {
    for (let i = 0; i < 4; i++) this.#bytes[position + i] = value >>> (24 - 8 * i);
  }

  /** Frees the unused part of the buffer, and the memory of {@link ByteBuffer.load}. */
  trim(): void {
    this.#loaded = new Uint8Array(0);
    this.#bytes = this.#bytes.slice(0, this.#length);
  }

  /** Makes room for `count` more bytes. */
  reserve(count: number): void {
    if (this.#length + count <= this.#bytes.length) return;
    const doubled = Math.min(2 * this.#bytes.length, this.#maxDoubled);
    const larger = new Uint8Array(Math.max(doubled, this.#length + count));
    larger.set(this.#bytes.subarray(0, this.#length));
    this.#bytes = larger;
  }

  readByte(): number {
    if (this.at >= this.#length) throw new DamagedError('a record ends within a value');
    return this.#bytes[this.at++] ?? 0;
  }

  readWord(): number {
    return (this.readByte() << 24) | (this.readByte() << 16) | (this.readByte() << 8) | this.readByte();
  }

  /** Reads an integer of {@link ByteBuffer.writeNumber}. It has at most eight groups; the unit of the last is 2⁴⁹. */
  readNumber(): number {
    let byte = this.readByte();
    if (byte < 0x80) return byte;
    let value = byte & 0x7f;
    for (let unit = 128; unit <= 2 ** 49; unit *= 128) {
      byte = this.readByte();
      value += (byte & 0x7f) * unit;
      if (byte < 0x80) return value;
    }
    throw new DamagedError('a number has no end');
  }

  readText(): string {
    const length = this.readNumber();
    const from = this.at;
    if (length > this.#length - from) throw new DamagedError('a record ends within a text');
    this.at = from + length;
    if (length > MAX_SHORT_BYTES) return decoder.decode(this.#bytes.subarray(from, this.at));
    let text = '';
    for (let i = from; i < this.at; i++) {
      const code = this.#bytes[i] ?? 0;
      if (code > 0x7f) return decoder.decode(this.#bytes.subarray(from, this.at));
      text += String.fromCharCode(code);
    }
    return text;
  }

  skipText(): void {
    const length = this.readNumber();
    this.at += length;
    if (this.at > this.#length) throw new DamagedError('a record ends within a text');
  }
}
