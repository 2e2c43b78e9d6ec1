// 2^13 rows a chunk: growing allocates at most 256 KiB at a time (stride 8), far below a noticeable pause.
const CHUNK_BITS = 13;
const CHUNK_ROWS: number = 1 << CHUNK_BITS;
const ROW_MASK: number = CHUNK_ROWS - 1;
const NO_CHUNK: Int32Array = new Int32Array(0);

/**
 * A growing array of rows of `stride` 32-bit integers, all zero at first. It grows by whole chunks and never
 * copies, so no write is ever slow. Rows are never given back.
 */
export class Int32Rows {
  readonly stride: number;
  readonly #chunks: Int32Array[] = [];

  constructor(stride: number) {
    this.stride = stride;
  }

  /** Makes sure that `row` exists. */
  reserve(row: number): void {
    while (row >>> CHUNK_BITS >= this.#chunks.length) {
      this.#chunks.push(new Int32Array(CHUNK_ROWS * this.stride));
    }
  }

  /** The integer in `column` of `row`; 0 for a row that does not exist. */
  get(row: number, column: number): number {
    return this.#chunks[row >>> CHUNK_BITS]?.[(row & ROW_MASK) * this.stride + column] ?? 0;
  }

  /** Writes the low 32 bits of `value`; the row must have been reserved. */
  set(row: number, column: number, value: number): void {
    const chunk = this.#chunks[row >>> CHUNK_BITS];
    if (chunk !== undefined) chunk[(row & ROW_MASK) * this.stride + column] = value;
  }

  /** The chunk that holds a row, for code that touches several columns of it; empty for a row that does not exist. */
  chunkOf(row: number): Int32Array {
    return this.#chunks[row >>> CHUNK_BITS] ?? NO_CHUNK;
  }

  /** Where the row begins in its chunk. */
  offsetOf(row: number): number {
    return (row & ROW_MASK) * this.stride;
  }

  /** Bytes held. */
  get bytes(): number {
    return this.#chunks.length * CHUNK_ROWS * this.stride * Int32Array.BYTES_PER_ELEMENT;
  }
}
