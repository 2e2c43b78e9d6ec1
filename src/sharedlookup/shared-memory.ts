/// <reference lib="es2024.sharedmemory" />

import { assert } from '../base/assert.ts';
import { messageOf } from '../base/failure.ts';
import { HEADER, HEADER_WORDS, LINE_WORDS } from './layout.ts';
import { NumberList } from './number-list.ts';

/** The unit of growth. */
const STEP_BYTES: number = 1 << 20;

/** Free blocks of this size and above are divided: 16 KiB. */
const LARGE_LINES = 256;

/** Shared memory is not available. `unsupported`: the runtime does not provide it. `refused`: it could not be reserved. */
export class SharedMemoryError extends Error {
  override readonly name = 'SharedMemoryError';
  readonly code: 'unsupported' | 'refused';
  readonly retryable: boolean;

  constructor(code: 'unsupported' | 'refused', message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
    this.retryable = code === 'refused';
  }
}

/** The parts of the global object that decide if memory can be shared. */
export interface SharingPlatform {
  readonly SharedArrayBuffer?: { readonly prototype: object } | undefined;
  /** Only browsers have it. */
  readonly crossOriginIsolated?: boolean | undefined;
}

/** Throws a {@link SharedMemoryError} if the runtime cannot share memory that grows. */
export function requireSharedMemory(platform: SharingPlatform): void {
  if (platform.crossOriginIsolated === false || platform.SharedArrayBuffer === undefined)
    throw new SharedMemoryError(
      'unsupported',
      'SharedArrayBuffer is not available: serve the page with Cross-Origin-Opener-Policy: same-origin and ' +
        'Cross-Origin-Embedder-Policy: require-corp',
    );
  if (!('grow' in platform.SharedArrayBuffer.prototype))
    throw new SharedMemoryError(
      'unsupported',
      'SharedArrayBuffer cannot grow: use a newer browser or runtime',
    );
}

/**
 * Blocks of words in a growable buffer, of one writer. Every block is a multiple of a cache line.
 *
 * A block that is released may still be read. It is reused after the next {@link SharedHeap.turn}, which the owner calls when
 * the look-ups that may read it have become invalid.
 */
export class SharedHeap {
  readonly buffer: SharedArrayBuffer;
  /** A view of the whole buffer. It is replaced if the buffer grows. */
  words: Int32Array;
  #end: number;
  /** Free blocks, except large ones, by number of lines. */
  readonly #free = new Map<number, NumberList>();
  /** Blocks that were released since the last turn, each with its number of lines. */
  readonly #released = new NumberList();
  #releasedWords = 0;
  #unused = 0;
  /** Free blocks that are divided: replaced directories and the largest leaves. There are few of them. */
  readonly #large: { readonly at: number; lines: number }[] = [];

  /** Reserves address space for `maxBytes`. Memory is taken as the heap grows. */
  constructor(maxBytes: number) {
    requireSharedMemory(globalThis);
    try {
      this.buffer = new SharedArrayBuffer(STEP_BYTES, { maxByteLength: maxBytes });
    } catch (cause) {
      const message = `cannot reserve ${maxBytes} bytes of shared memory (maxBytes): ${messageOf(cause)}`;
      throw new SharedMemoryError('refused', message, { cause });
    }
    this.words = new Int32Array(this.buffer, 0, STEP_BYTES / 4);
    this.words[HEADER.words] = this.words.length;
    this.#end = HEADER_WORDS;
  }

  /** Number of words of blocks in use. */
  get used(): number {
    return this.#end - this.#unused;
  }

  /** Number of words of the blocks that were released since the last turn. */
  get released(): number {
    return this.#releasedWords;
  }

  /** Returns a block. Its content is undefined. */
  allocate(words: number): number {
    const lines = linesOf(words);
    const free = this.#takeFree(lines);
    if (free > 0) {
      this.#unused -= lines * LINE_WORDS;
      return free;
    }
    const block = this.#end;
    this.#end += lines * LINE_WORDS;
    if (this.#end > this.words.length) this.#grow();
    return block;
  }

  /** Releases a block with the number of words that it was allocated with. */
  release(block: number, words: number): void {
    const lines = linesOf(words);
    this.#released.push(block);
    this.#released.push(lines);
    this.#releasedWords += lines * LINE_WORDS;
    this.#unused += lines * LINE_WORDS;
  }

  /** Returns a free block, or a part of a large one; 0 if there is none. */
  #takeFree(lines: number): number {
    const free = this.#free.get(lines)?.pop() ?? -1;
    if (free >= 0) return free;
    const from = this.#large.findIndex((block) => block.lines >= lines);
    const large = this.#large[from];
    if (large === undefined) return 0;
    large.lines -= lines;
    if (large.lines === 0) this.#large.splice(from, 1);
    return large.at + large.lines * LINE_WORDS;
  }

  /** Makes the blocks available that were released before. */
  turn(): void {
    const released = this.#released;
    for (let i = 0; i < released.length; i += 2) {
      const lines = released.at(i + 1);
      if (lines >= LARGE_LINES) {
        this.#large.push({ at: released.at(i), lines });
        continue;
      }
      let free = this.#free.get(lines);
      if (free === undefined) {
        free = new NumberList();
        this.#free.set(lines, free);
      }
      free.push(released.at(i));
    }
    released.clear();
    this.#releasedWords = 0;
  }

  /** Grows by a 32nd, so that it grows rarely and little memory is unused. */
  #grow(): void {
    const wanted = Math.max(this.#end * 4, this.words.byteLength + (this.words.byteLength >>> 5));
    const bytes = Math.min(Math.ceil(wanted / STEP_BYTES) * STEP_BYTES, this.buffer.maxByteLength);
    assert(bytes >= this.#end * 4, 'the memory of a batch exceeds the reserved memory');
    this.buffer.grow(bytes);
    this.words = new Int32Array(this.buffer, 0, bytes / 4);
    // Before any block of the new memory is installed: readers that see the block see this, too.
    Atomics.store(this.words, HEADER.words, this.words.length);
  }
}

function linesOf(words: number): number {
  return Math.ceil(words / LINE_WORDS);
}
