/** Maximum number of numbered texts. Limits the memory of writer and reader. */
export const MAX_NUMBERED_TEXTS = 65_536;

/** Written before a text that gets no number, because {@link MAX_NUMBERED_TEXTS} texts have one. */
export const UNNUMBERED = 0;
/** Written before a text that gets the next free number. */
export const NEXT_NUMBER = 1;
/** The number of the first text that gets one. */
export const FIRST_NUMBER = 2;

/** Default of the initial size of the buffer in bytes. */
const FIRST_SIZE = 32_768;

/** Appends values to one buffer, which grows as needed and is reused after `clear`. */
export class ByteWriter {
  readonly #numbers = new Map<string, number>();
  #buffer: Buffer;
  #at = 0;

  /** @param firstSize initial size of the buffer in bytes */
  constructor(firstSize: number = FIRST_SIZE) {
    this.#buffer = Buffer.allocUnsafe(firstSize);
  }

  get length(): number {
    return this.#at;
  }

  /** Returns the bytes since the last `clear`. They are valid until the next write. */
  get bytes(): Buffer {
    return this.#buffer.subarray(0, this.#at);
  }

  clear(): void {
    this.#at = 0;
  }

  byte(value: number): void {
    this.#reserve(1);
    this.#buffer[this.#at++] = value;
  }

  /** Writes 32 bits, big-endian. */
  word(value: number): void {
    this.#reserve(4);
    this.#at = this.#buffer.writeInt32BE(value | 0, this.#at);
  }

  /**
   * Writes an unsigned integer from 0 to 2³²−1 in groups of 7 bits, lowest first. The top bit of the last group is
   * clear.
   */
  number(value: number): void {
    this.#reserve(5);
    let rest = value >>> 0;
    while (rest > 0x7f) {
      this.#buffer[this.#at++] = (rest & 0x7f) | 0x80;
      rest >>>= 7;
    }
    this.#buffer[this.#at++] = rest;
  }

  /** Writes a text without a number: its length in bytes, then UTF-8. A lone surrogate becomes U+FFFD. */
  text(value: string): void {
    const length = Buffer.byteLength(value);
    this.number(length);
    this.#reserve(length);
    this.#at += this.#buffer.write(value, this.#at, length);
  }

  /** Writes a frequent text: in full the first time, by number afterwards. Numbers stay valid after `clear`. */
  frequentText(value: string): void {
    const number = this.#numbers.get(value);
    if (number !== undefined) {
      this.number(number);
      return;
    }
    const isNumbered = this.#numbers.size < MAX_NUMBERED_TEXTS;
    if (isNumbered) this.#numbers.set(value, FIRST_NUMBER + this.#numbers.size);
    this.number(isNumbered ? NEXT_NUMBER : UNNUMBERED);
    this.text(value);
  }

  #reserve(bytes: number): void {
    if (this.#at + bytes <= this.#buffer.length) return;
    const larger = Buffer.allocUnsafe(Math.max(2 * this.#buffer.length, this.#at + bytes));
    this.#buffer.copy(larger, 0, 0, this.#at);
    this.#buffer = larger;
  }
}
