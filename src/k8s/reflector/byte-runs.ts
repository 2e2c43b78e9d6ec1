import { Buffer } from 'node:buffer';

/** A view, not a copy. */
function part(bytes: Uint8Array, from: number, to: number): Buffer {
  return Buffer.from(bytes.buffer, bytes.byteOffset + from, to - from);
}

/** Texts that arrive in several pieces, one after the other. One that is too large is dropped while it arrives. */
export class ByteRuns {
  readonly #largest: number;
  #pieces: Buffer[] = [];
  #size = 0;
  #tooLarge = 0;

  /** @param largest bytes of one text */
  constructor(largest: number) {
    this.#largest = largest;
  }

  get isEmpty(): boolean {
    return this.#size === 0;
  }

  get tooLarge(): number {
    return this.#tooLarge;
  }

  /** A piece of a text that goes on. Its bytes are copied. */
  keep(bytes: Uint8Array, from: number, to: number): void {
    this.#size += to - from;
    if (this.#size <= this.#largest) this.#pieces.push(Buffer.from(part(bytes, from, to)));
    else this.#pieces = [];
  }

  /** The text that ends with this piece; `undefined` if it is too large. */
  end(bytes: Uint8Array, from: number, to: number): string | undefined {
    const size = this.#size + to - from;
    const last = part(bytes, from, to);
    const pieces = this.#pieces;
    this.#pieces = [];
    this.#size = 0;
    if (size > this.#largest) {
      this.#tooLarge++;
      return undefined;
    }
    return (pieces.length === 0 ? last : Buffer.concat([...pieces, last])).toString('utf8');
  }
}
