import { FIRST_NUMBER, MAX_NUMBERED_TEXTS, NEXT_NUMBER, UNNUMBERED } from './byte-writer.ts';

/** A number has at most five groups of 7 bits. This would be the scale of a sixth one. */
const SCALE_END = 2 ** 35;

/** Thrown if bytes are not part of a valid checkpoint. */
export class CorruptError extends Error {
  override readonly name = 'CorruptError';
}

/** The texts that a `ByteWriter` has numbered, in the order of their numbers. All sections of a file share them. */
export type TextNumbers = string[];

/** Reads the output of a `ByteWriter`. Throws {@link CorruptError} if the bytes are invalid. */
export class ByteReader {
  readonly #bytes: Buffer;
  readonly #texts: TextNumbers;
  #at = 0;

  /** Reads `bytes`, which must not change. Numbered texts are looked up in `texts` and added to it. */
  constructor(bytes: Buffer, texts: TextNumbers) {
    this.#bytes = bytes;
    this.#texts = texts;
  }

  get atEnd(): boolean {
    return this.#at === this.#bytes.length;
  }

  /** Index of the next byte. */
  get at(): number {
    return this.#at;
  }

  /** Returns the bytes from `at` to the current position, one character for each. */
  charactersSince(at: number): string {
    return this.#bytes.toString('latin1', at, this.#at);
  }

  byte(): number {
    return this.#bytes[this.#advance(1)] ?? 0;
  }

  word(): number {
    return this.#bytes.readInt32BE(this.#advance(4));
  }

  /** Returns an unsigned integer: groups of 7 bits, lowest first. The top bit of each group except the last is set. */
  number(): number {
    let value = 0;
    for (let scale = 1; scale < SCALE_END; scale *= 0x80) {
      const byte = this.byte();
      value += (byte & 0x7f) * scale;
      if (byte < 0x80) return value;
    }
    throw new CorruptError('a number has no end');
  }

  text(): string {
    const length = this.number();
    const from = this.#advance(length);
    return this.#bytes.toString('utf8', from, from + length);
  }

  /** Returns a text that `ByteWriter.frequentText` has written in full or by number. */
  frequentText(): string {
    const number = this.number();
    if (number === UNNUMBERED) return this.text();
    if (number === NEXT_NUMBER) {
      const text = this.text();
      if (this.#texts.push(text) > MAX_NUMBERED_TEXTS) throw new CorruptError('too many numbered texts');
      return text;
    }
    const text = this.#texts[number - FIRST_NUMBER];
    if (text === undefined) throw new CorruptError(`unknown number of a text: ${number}`);
    return text;
  }

  /** Advances by `length` bytes and returns their start. */
  #advance(length: number): number {
    const from = this.#at;
    if (from + length > this.#bytes.length) throw new CorruptError('a section ends within a value');
    this.#at = from + length;
    return from;
  }
}
