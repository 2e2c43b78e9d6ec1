import { type ByteBuffer, DamagedError } from './byte-buffer.ts';
import { indexAtMost } from './positions.ts';

/** Maximum number of numbered names of a segment. Limits the memory of its writer and readers. */
const MAX_NAMES = 32_768;

/** Followed by a text without a number. */
const UNNUMBERED = 0;
/** Followed by a text that gets the next number. */
const NEXT_NUMBER = 1;
const FIRST_NUMBER = 2;

/**
 * The repeating texts of a segment: writers, hosts, namespaces, first parts of pod names. The first use of a name is written in
 * full, each later use as a number. Readers keep the positions of the texts instead of the texts.
 */
export class Names {
  readonly #bytes: ByteBuffer;
  readonly #numbers = new Map<string, number>();
  /** Position of each numbered text. */
  #positions: Int32Array = new Int32Array(64);
  #count = 0;
  /** `positions` are those of the numbered texts in `bytes`. */
  constructor(bytes: ByteBuffer, positions?: Int32Array) {
    this.#bytes = bytes;
    if (positions === undefined) return;
    this.#positions = positions;
    this.#count = positions.length;
  }

  /** Returns the positions of the numbered texts. */
  get positions(): Int32Array {
    return this.#positions.subarray(0, this.#count);
  }

  /** Memory in bytes, without the texts. An entry of the writer's map takes about 40 bytes. */
  get memory(): number {
    return this.#positions.byteLength + 40 * this.#numbers.size;
  }

  write(name: string): void {
    const number = this.#numbers.get(name);
    if (number !== undefined) {
      this.#bytes.number(number);
      return;
    }
    if (this.#count >= MAX_NAMES) this.#bytes.number(UNNUMBERED);
    else {
      this.#bytes.number(NEXT_NUMBER);
      this.#numbers.set(name, FIRST_NUMBER + this.#count);
      this.#add(this.#bytes.length);
    }
    this.#bytes.text(name);
  }

  /** Returns the number of a name; 0 if it has none yet. */
  numberOf(name: string): number {
    return this.#numbers.get(name) ?? 0;
  }

  /** Reads a name at the position of the buffer. */
  read(): string {
    const number = this.#bytes.readNumber();
    if (number < FIRST_NUMBER) return this.#bytes.readText();
    if (number - FIRST_NUMBER >= this.#count) throw new DamagedError(`unknown name ${number}`);
    const { at } = this.#bytes;
    this.#bytes.at = this.#positions[number - FIRST_NUMBER] ?? 0;
    const name = this.#bytes.readText();
    this.#bytes.at = at;
    return name;
  }

  /** Returns the number of the name at the position of the buffer. A name that is written there in full has the number of that text. */
  readNumber(): number {
    const number = this.#bytes.readNumber();
    if (number >= FIRST_NUMBER) return number;
    const position = this.#bytes.at;
    this.#bytes.skipText();
    return number === UNNUMBERED ? 0 : FIRST_NUMBER + indexAtMost(this.#positions, this.#count, position);
  }

  /** Advances over a name. */
  skip(): void {
    if (this.#bytes.readNumber() < FIRST_NUMBER) this.#bytes.skipText();
  }

  /** Advances over a name of a stored record, and numbers it as its writer did. Call it for each name in order. */
  learn(): void {
    const number = this.#bytes.readNumber();
    if (number >= FIRST_NUMBER + this.#count) throw new DamagedError(`unknown name ${number}`);
    if (number >= FIRST_NUMBER) return;
    if (number === NEXT_NUMBER) {
      if (this.#count >= MAX_NAMES) throw new DamagedError('too many names');
      this.#add(this.#bytes.at);
    }
    this.#bytes.skipText();
  }

  /** Frees the map of the writer. */
  seal(): void {
    this.#numbers.clear();
  }

  #add(position: number): void {
    if (this.#count === this.#positions.length) {
      const larger = new Int32Array(2 * this.#count);
      larger.set(this.#positions);
      this.#positions = larger;
    }
    this.#positions[this.#count++] = position;
  }
}
