/// <reference lib="es2024.sharedmemory" />

import { assert } from '../base/assert.ts';
import { messageOf } from '../base/failure.ts';
import { HEADER, HEADER_WORDS, LINE_WORDS } from './layout.ts';
import { NumberList } from './number-list.ts';

/** The size of the buffer is a multiple of this. */
const STEP_BYTES: number = 1 << 20;

/** Minimum number of lines of a large block (16 KiB). Free large blocks are divided for smaller ones. */
const LARGE_LINES = 256;

/** Thrown if the runtime has no shared memory (`unsupported`), or it could not be reserved (`refused`). */
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

/** The blocks of one size, or all large blocks. */
interface SizeClass {
  /** Free blocks. Empty in the class of large blocks. */
  readonly free: NumberList;
  /** Words of all blocks made, and of those in use. */
  made: number;
  used: number;
}

/**
 * Allocates blocks of words in a growable shared buffer, for one writer. The size of a block is a multiple of a cache
 * line.
 *
 * A released block may still be read. It is reused after the next {@link SharedHeap.begin}, which the owner
 * calls when the lookups that may read it have become invalid. Free blocks are not joined: those of the smallest IPv4
 * leaves are never reused for IPv6 leaves, which are larger.
 */
export class SharedHeap {
  readonly buffer: SharedArrayBuffer;
  /** A view of the whole buffer. It is replaced if the buffer grows. */
  words: Int32Array;
  /** Number of words made into blocks so far, the header included. */
  #end: number;
  /** Size classes by number of lines; the last one is that of all large blocks. */
  readonly #classes: readonly SizeClass[] = Array.from({ length: LARGE_LINES + 1 }, () => ({
    free: new NumberList(),
    made: 0,
    used: 0,
  }));
  readonly #maxWords: number;
  readonly #maxWordsIfCopied: number;
  /**
   * Words of all blocks after a batch that copies each block in use. A copy takes a free block of its size class first.
   * So each class has the larger of two values: the words already made, and twice the words in use.
   */
  #wordsIfCopied = 0;
  /** Blocks released in this batch, each with its number of lines. */
  readonly #released = new NumberList();
  #releasedWords = 0;
  /** Number of words of free and released blocks. */
  #unusedWords = 0;
  /** Free large blocks, which may be divided: replaced directories and the largest leaves. There are few of them. */
  readonly #large: { readonly at: number; lines: number }[] = [];

  /**
   * Reserves address space. Memory is taken as the heap grows. {@link SharedHeap.hasRoom} has two limits: `maxBytes` of
   * the blocks in use, and `maxBytesIfCopied` of all blocks after a batch that copies each block in use.
   */
  constructor(reservedBytes: number, maxBytes: number, maxBytesIfCopied: number) {
    this.#maxWords = maxBytes / 4;
    this.#maxWordsIfCopied = maxBytesIfCopied / 4;
    requireSharedMemory(globalThis);
    try {
      this.buffer = new SharedArrayBuffer(STEP_BYTES, { maxByteLength: reservedBytes });
    } catch (cause) {
      const message = `cannot reserve ${reservedBytes} bytes of shared memory (maxBytes): ${messageOf(cause)}`;
      throw new SharedMemoryError('refused', message, { cause });
    }
    this.words = new Int32Array(this.buffer, 0, STEP_BYTES / 4);
    this.words[HEADER.words] = this.words.length;
    this.#end = HEADER_WORDS;
  }

  /** Number of words of blocks in use. */
  get used(): number {
    return this.#end - this.#unusedWords;
  }

  /** Number of words of the blocks released in this batch. */
  get released(): number {
    return this.#releasedWords;
  }

  /** Returns a block. Its content is undefined. */
  allocate(words: number): number {
    const lines = linesOf(words);
    const size = lines * LINE_WORDS;
    const free = this.#takeFree(lines);
    const block = free > 0 ? free : this.#end;
    if (free > 0) this.#unusedWords -= size;
    else {
      if (block + size > this.words.length) this.#grow(block + size);
      this.#end += size;
    }
    this.#account(lines, free > 0 ? 0 : size, size);
    return block;
  }

  /** Returns true if one more block may be used, and a batch can still copy each block in use. */
  hasRoom(words: number): boolean {
    if (this.used + words > this.#maxWords) return false;
    // First assumes that the block and its copy need new memory. If there is not enough, the blocks that the class
    // already has must suffice for all its blocks in use and their copies.
    if (this.#wordsIfCopied + 2 * words <= this.#maxWordsIfCopied) return true;
    const { made, used } = this.#classOf(linesOf(words));
    return 2 * (used + words) <= made;
  }

  /** Releases a block with the number of words that it was allocated with. */
  release(block: number, words: number): void {
    const lines = linesOf(words);
    this.#released.push(block);
    this.#released.push(lines);
    this.#releasedWords += lines * LINE_WORDS;
    this.#unusedWords += lines * LINE_WORDS;
    this.#account(lines, 0, -lines * LINE_WORDS);
  }

  /** Adds to the counts of a size class: `made` words of new blocks, `used` words of blocks in use. */
  #account(lines: number, made: number, used: number): void {
    const sizeClass = this.#classOf(lines);
    const before = Math.max(sizeClass.made, 2 * sizeClass.used);
    sizeClass.made += made;
    sizeClass.used += used;
    this.#wordsIfCopied += Math.max(sizeClass.made, 2 * sizeClass.used) - before;
  }

  #classOf(lines: number): SizeClass {
    const found = this.#classes[Math.min(lines, LARGE_LINES)];
    assert(found !== undefined, 'a block has at least one line');
    return found;
  }

  /** Returns a free block, or a part of a large one; 0 if there is none. */
  #takeFree(lines: number): number {
    const free = this.#classOf(lines).free.pop();
    if (free >= 0) return free;
    const from = this.#large.findIndex((block) => block.lines >= lines);
    const large = this.#large[from];
    if (large === undefined) return 0;
    large.lines -= lines;
    this.#account(LARGE_LINES, -lines * LINE_WORDS, 0);
    this.#account(lines, lines * LINE_WORDS, 0);
    if (large.lines === 0) this.#large.splice(from, 1);
    return large.at + large.lines * LINE_WORDS;
  }

  /** Starts a batch. Frees the blocks released in the last one. */
  begin(): void {
    const released = this.#released;
    for (let i = 0; i < released.length; i += 2) {
      const lines = released.at(i + 1);
      if (lines >= LARGE_LINES) this.#large.push({ at: released.at(i), lines });
      else this.#classOf(lines).free.push(released.at(i));
    }
    released.clear();
    this.#releasedWords = 0;
  }

  /** Grows by a 32nd, so that it grows rarely and little memory is unused. */
  #grow(end: number): void {
    const wanted = Math.max(end * 4, this.words.byteLength + (this.words.byteLength >>> 5));
    const bytes = Math.min(Math.ceil(wanted / STEP_BYTES) * STEP_BYTES, this.buffer.maxByteLength);
    assert(bytes >= end * 4, 'the memory of a batch exceeds the reserved memory');
    this.buffer.grow(bytes);
    this.words = new Int32Array(this.buffer, 0, bytes / 4);
    // Stored before any block of the new memory is installed, so that readers that see the block also see this length.
    Atomics.store(this.words, HEADER.words, this.words.length);
  }
}

function linesOf(words: number): number {
  return Math.ceil(words / LINE_WORDS);
}
