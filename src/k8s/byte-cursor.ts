import { Buffer } from 'node:buffer';
import { bufferView } from '../columns/byte-words.ts';
import type { InternedBytes } from '../columns/interned-bytes.ts';

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COLON = 0x3a;
const COMMA = 0x2c;
const ZERO = 0x30;

const NO_BYTES = Buffer.alloc(0);

/** Returns the bytes of the ASCII name of a field and its colon, for {@link ByteCursor.skipName}. */
export function nameBytes(name: string): Uint8Array {
  return Buffer.from(`"${name}":`, 'latin1');
}

/**
 * A position in bytes of JSON without white space. A method moves behind what it reads. If the bytes have another form
 * than it expects, it returns false, undefined or -1, and the position is then unspecified. Exception: if only the end
 * of the JSON is missing, methods that read any name, string or value move to the end of the bytes or behind it.
 */
export class ByteCursor {
  /** Index of the next byte. */
  at = 0;
  /** Range of the string that {@link skipString} read last. */
  from = 0;
  to = 0;
  /** Index of the quote before the name that {@link skipName} read last. */
  nameStart = 0;
  #bytes: Buffer = NO_BYTES;
  #view: DataView = bufferView(NO_BYTES);
  /** Index of the first byte in `#view`. */
  #offset = 0;

  get bytes(): Uint8Array {
    return this.#bytes;
  }

  /** Moves to an index of other bytes. */
  set(bytes: Uint8Array, at: number): void {
    // Most objects are in the same bytes as the previous object, and a view costs as much as a field.
    const { buffer, byteOffset, length } = bytes;
    const known = this.#bytes;
    if (known.buffer !== buffer || known.byteOffset !== byteOffset || known.length !== length) {
      this.#bytes = Buffer.from(buffer, byteOffset, length);
      this.#view = bufferView(bytes);
      this.#offset = byteOffset;
    }
    this.at = at;
  }

  /** Moves behind a byte and returns true. If another byte follows, does not move. */
  skip(byte: number): boolean {
    // Without the check of the length, one read behind the end makes all later reads of bytes slower in V8.
    if (this.at >= this.#bytes.length || this.#bytes[this.at] !== byte) return false;
    this.at++;
    return true;
  }

  /** Moves behind a name from {@link nameBytes} and returns true. If another name follows, does not move. */
  skipName(name: Uint8Array): boolean {
    const bytes = this.#bytes;
    const { at } = this;
    const { length } = name;
    if (at + length > bytes.length) return false;
    for (let i = 0; i < length; i++) if (bytes[at + i] !== name[i]) return false;
    this.nameStart = at;
    this.at = at + length;
    return true;
  }

  /** Moves behind one of the names and returns its index. If another name follows, returns -1 and does not move. */
  skipOneOf(names: readonly Uint8Array[]): number {
    for (let i = 0; i < names.length; i++) {
      const name = names[i];
      if (name !== undefined && this.skipName(name)) return i;
    }
    return -1;
  }

  /** Moves behind any name without escapes and its colon. */
  skipAnyName(): boolean {
    if (!this.skip(QUOTE)) return false;
    const bytes = this.#bytes;
    const { length } = bytes;
    let { at } = this;
    for (; at < length && bytes[at] !== QUOTE; at++) if (bytes[at] === BACKSLASH) return false;
    this.at = at + 1;
    return this.skip(COLON);
  }

  /** Moves behind a string of printable ASCII characters without escapes. */
  skipString(): boolean {
    if (!this.skip(QUOTE)) return false;
    const bytes = this.#bytes;
    const { length } = bytes;
    let { at } = this;
    this.from = at;
    for (; at < length; at++) {
      const byte = bytes[at] ?? 0;
      if (byte === QUOTE) break;
      if (byte === BACKSLASH || byte < 0x20 || byte > 0x7e) return false;
    }
    this.to = at;
    this.at = at + 1;
    return at < length;
  }

  /** Returns the string that {@link skipString} read last. */
  text(): string {
    return this.#bytes.toString('latin1', this.from, this.to);
  }

  /**
   * Returns the value in `values` for the string that {@link skipString} read last. With `to`, the string ends there.
   */
  interned<T>(values: InternedBytes<T>, to: number = this.to): T | undefined {
    return values.get(this.#view, this.#offset + this.from, this.#offset + to);
  }

  /** Returns a string of printable ASCII characters without escapes. */
  string(): string | undefined {
    return this.skipString() ? this.text() : undefined;
  }

  /** Returns an integer from 0 to `max` without sign, fraction or exponent; -1 if there is none. */
  integer(max: number): number {
    const bytes = this.#bytes;
    const from = this.at;
    let value = 0;
    for (; value <= max; this.at++) {
      const digit = this.at < bytes.length ? (bytes[this.at] ?? 0) - ZERO : -1;
      if (digit < 0 || digit > 9) break;
      value = value * 10 + digit;
    }
    const length = this.at - from;
    const isPadded = length > 1 && bytes[from] === ZERO;
    return length === 0 || isPadded || value > max ? -1 : value;
  }

  /** Moves behind any value, whose content is not checked. */
  skipValue(): boolean {
    const bytes = this.#bytes;
    const { length } = bytes;
    const from = this.at;
    // Number of open brackets. `[` and `{` differ only in the bit 0x20, as do `]` and `}`.
    let depth = 0;
    let at = from;
    for (; at < length; at++) {
      let byte = bytes[at] ?? 0;
      if (byte === QUOTE) {
        for (at++; at < length; at++) {
          byte = bytes[at] ?? 0;
          if (byte === QUOTE) break;
          if (byte === BACKSLASH) at++;
        }
      } else if ((byte | 0x20) === 0x7b) depth++;
      else if ((byte | 0x20) === 0x7d) {
        if (depth === 0) break;
        depth--;
      } else if (byte === COMMA && depth === 0) break;
    }
    this.at = at;
    return at > from && at < length;
  }
}
