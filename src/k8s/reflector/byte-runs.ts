import { Buffer } from 'node:buffer';

const INITIAL_BYTES = 4096;
/** A larger buffer is released after its text. */
const MAX_KEPT_BYTES = 1024 * 1024;

/** Joins texts from several runs of bytes. A text above the limit is dropped while it arrives. */
export class ByteRuns {
  readonly #maxBytes: number;
  /** Buffer of the current text; its first `#size` bytes are used. Above the limit, only `#size` increases. */
  #buffer = Buffer.allocUnsafeSlow(INITIAL_BYTES);
  #size = 0;
  #tooLarge = 0;

  /** @param maxBytes maximum size of a text */
  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  get isEmpty(): boolean {
    return this.#size === 0;
  }

  /** Number of dropped texts. */
  get tooLarge(): number {
    return this.#tooLarge;
  }

  /** Copies a run of an incomplete text. */
  keep(bytes: Uint8Array, from: number, to: number): void {
    const size = this.#size + to - from;
    if (size <= this.#maxBytes) {
      if (size > this.#buffer.length) this.#grow(size);
      const buffer = this.#buffer;
      // A loop, because most runs are short and views of them cost more.
      for (let i = from, at = this.#size; i < to; i++, at++) buffer[at] = bytes[i] ?? 0;
    }
    this.#size = size;
  }

  /** Returns the text that ends with this run, or undefined if it is too large. */
  end(bytes: Uint8Array, from: number, to: number): string | undefined {
    return this.join(bytes, from, to)?.toString('utf8');
  }

  /**
   * Returns the bytes of the text that ends with this run, or undefined if it is too large. They are valid until the
   * next call.
   */
  join(bytes: Uint8Array, from: number, to: number): Buffer | undefined {
    const isWhole = this.#size === 0 && to - from <= this.#maxBytes;
    if (isWhole) return Buffer.from(bytes.buffer, bytes.byteOffset + from, to - from);
    this.keep(bytes, from, to);
    const size = this.#size;
    this.#size = 0;
    const joined = this.#buffer.subarray(0, size);
    if (this.#buffer.length > MAX_KEPT_BYTES) this.#buffer = Buffer.allocUnsafeSlow(INITIAL_BYTES);
    if (size <= this.#maxBytes) return joined;
    this.#tooLarge++;
    return undefined;
  }

  #grow(size: number): void {
    const grown = Buffer.allocUnsafeSlow(Math.max(size, 2 * this.#buffer.length));
    grown.set(this.#buffer.subarray(0, this.#size));
    this.#buffer = grown;
  }
}
