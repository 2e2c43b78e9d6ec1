import { Buffer } from 'node:buffer';

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COLON = 0x3a;
const COMMA = 0x2c;
const ZERO = 0x30;

const NO_BYTES = Buffer.alloc(0);

/** Returns the bytes of an ASCII name, for {@link ByteCursor.indexOfName}. */
export function nameBytes(name: string): Uint8Array {
  return Buffer.from(name, 'latin1');
}

/**
 * A position in bytes of JSON without white space. Methods move behind what they read. If the bytes have another form
 * than a method expects, it returns false, undefined or -1, and the position is unspecified.
 */
export class ByteCursor {
  at = 0;
  #bytes: Buffer = NO_BYTES;
  #nameFrom = 0;
  #nameTo = 0;

  set(bytes: Uint8Array, at: number): void {
    // Most objects are in the same bytes as the previous object, and a view costs as much as a field.
    const { buffer, byteOffset, length } = bytes;
    const known = this.#bytes;
    if (known.buffer !== buffer || known.byteOffset !== byteOffset || known.length !== length)
      this.#bytes = Buffer.from(buffer, byteOffset, length);
    this.at = at;
  }

  /** Moves behind a byte and returns true. If another byte follows, does not move. */
  skip(byte: number): boolean {
    if (this.#bytes[this.at] !== byte) return false;
    this.at++;
    return true;
  }

  /** Moves behind the name of a field and its colon. Names with escapes are not read. */
  name(): boolean {
    if (!this.skip(QUOTE)) return false;
    const bytes = this.#bytes;
    let { at } = this;
    this.#nameFrom = at;
    while (at < bytes.length && bytes[at] !== QUOTE) if (bytes[at++] === BACKSLASH) return false;
    this.#nameTo = at;
    this.at = at + 1;
    return this.skip(COLON);
  }

  /** Index of the quote before the name that was read last. */
  get nameStart(): number {
    return this.#nameFrom - 1;
  }

  /**
   * Returns the index of the name that was read last, or -1. Compares first with `names[next]`, because fields have an
   * order.
   */
  indexOfName(names: readonly Uint8Array[], next: number): number {
    const expected = names[next];
    if (expected !== undefined && this.#isName(expected)) return next;
    for (let i = 0; i < names.length; i++) {
      const name = names[i];
      if (name !== undefined && this.#isName(name)) return i;
    }
    return -1;
  }

  #isName(name: Uint8Array): boolean {
    const bytes = this.#bytes;
    const from = this.#nameFrom;
    if (this.#nameTo - from !== name.length) return false;
    for (let i = 0; i < name.length; i++) if (bytes[from + i] !== name[i]) return false;
    return true;
  }

  /** Returns a string of printable ASCII characters without escapes. */
  string(): string | undefined {
    if (!this.skip(QUOTE)) return undefined;
    const bytes = this.#bytes;
    const from = this.at;
    for (let at = from; at < bytes.length; at++) {
      const byte = bytes[at] ?? 0;
      if (byte === QUOTE) {
        this.at = at + 1;
        return bytes.toString('latin1', from, at);
      }
      if (byte === BACKSLASH || byte < 0x20 || byte > 0x7e) return undefined;
    }
    return undefined;
  }

  /** Returns an integer from 0 to `max` without sign, fraction or exponent. */
  integer(max: number): number {
    const bytes = this.#bytes;
    const from = this.at;
    let value = 0;
    for (; value <= max; this.at++) {
      const digit = (bytes[this.at] ?? 0) - ZERO;
      if (digit < 0 || digit > 9) break;
      value = value * 10 + digit;
    }
    const length = this.at - from;
    const isPadded = length > 1 && bytes[from] === ZERO;
    return length === 0 || isPadded || value > max ? -1 : value;
  }

  /** Returns the bytes of a range as text, one character for each byte. */
  text(from: number, to: number): string {
    return this.#bytes.toString('latin1', from, to);
  }

  /** Moves behind any value. Its content is not checked, because it is not used. */
  skipValue(): boolean {
    const bytes = this.#bytes;
    const { length } = bytes;
    const from = this.at;
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
