// As in Int32Rows: 64 KiB of references a chunk.
const CHUNK_BITS = 13;
const CHUNK_SIZE: number = 1 << CHUNK_BITS;
const INDEX_MASK: number = CHUNK_SIZE - 1;

/** A growing array of objects or `undefined` that grows by whole chunks and never copies. */
export class ObjectColumn<T extends object> {
  readonly #chunks: (T | undefined)[][] = [];

  get(index: number): T | undefined {
    return this.#chunks[index >>> CHUNK_BITS]?.[index & INDEX_MASK];
  }

  set(index: number, value: T | undefined): void {
    let chunk = this.#chunks[index >>> CHUNK_BITS];
    if (chunk === undefined) {
      if (value === undefined) return;
      chunk = this.#addChunks(index >>> CHUNK_BITS);
    }
    chunk[index & INDEX_MASK] = value;
  }

  #addChunks(upTo: number): (T | undefined)[] {
    let chunk: (T | undefined)[] = [];
    while (this.#chunks.length <= upTo) {
      chunk = new Array<T | undefined>(CHUNK_SIZE).fill(undefined);
      this.#chunks.push(chunk);
    }
    return chunk;
  }

  /** Bytes held for the references. */
  get bytes(): number {
    return this.#chunks.length * CHUNK_SIZE * 8;
  }
}
