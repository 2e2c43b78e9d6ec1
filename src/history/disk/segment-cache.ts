import type { Segment } from '../segment.ts';
import type { StoredSegment } from './segment-archive.ts';

/** Number of segments that stay in memory after they were read, because the next page of a list reads them again. */
const MAX_CACHED = 4;

/** Additional bytes of a buffer, so that it can be reused for a slightly larger segment. */
const SLACK_BYTES: number = 64 << 10;

/** Returns a buffer with this number of bytes for the file of a segment. */
export type AllocateBuffer = (size: number) => Uint8Array;

interface BufferUse {
  /** The memory of the segment; undefined until its file is open. */
  buffer: ArrayBufferLike | undefined;
  /** Undefined until the file is read. */
  segment: Segment | undefined;
  /** Number of queries that currently read the segment. */
  users: number;
}

/**
 * Stored segments in memory. If no query reads a segment any more, its buffer is reused for the next segment. New
 * buffers would cause a full garbage collection after about three segments, because they are megabytes outside of the
 * heap.
 */
export class SegmentCache {
  readonly #read: (stored: StoredSegment, buffers: AllocateBuffer) => Promise<Segment>;
  /** Cached segments in the order of their loading, oldest first. */
  readonly #cached = new Map<
    StoredSegment,
    { readonly loading: Promise<Segment>; readonly use: BufferUse }
  >();
  #spare: ArrayBufferLike | undefined;

  constructor(read: (stored: StoredSegment, buffers: AllocateBuffer) => Promise<Segment>) {
    this.#read = read;
  }

  /**
   * Returns a segment. It is valid until {@link SegmentCache.release}, which must be called once, unless the promise
   * rejects.
   */
  load(stored: StoredSegment): Promise<Segment> {
    const known = this.#cached.get(stored);
    if (known !== undefined) {
      known.use.users++;
      return known.loading;
    }
    this.#shrink(MAX_CACHED - 1);
    const use: BufferUse = { buffer: undefined, segment: undefined, users: 1 };
    const loading = this.#read(stored, (size) => {
      use.buffer = this.#take(size);
      return new Uint8Array(use.buffer, 0, size);
    });
    this.#cached.set(stored, { loading, use });
    loading.then(
      (segment) => {
        use.segment = segment;
      },
      () => this.forget(stored),
    );
    return loading;
  }

  /** Ends the use of a segment. */
  release(stored: StoredSegment, segment: Segment): void {
    const use = this.#cached.get(stored)?.use;
    // If the cache has another copy, this one was forgotten.
    if (use?.segment !== segment) return;
    use.users--;
    this.#shrink(MAX_CACHED);
  }

  /** Removes a segment. Queries that read it keep its memory. */
  forget(stored: StoredSegment): void {
    this.#cached.delete(stored);
  }

  /** Removes the oldest segments that no query reads, until at most `count` segments are left. */
  #shrink(count: number): void {
    for (const [stored, { use }] of this.#cached) {
      if (this.#cached.size <= count) return;
      if (use.users > 0) continue;
      this.#cached.delete(stored);
      this.#spare = use.buffer;
    }
  }

  /** Returns memory of at least `size` bytes. */
  #take(size: number): ArrayBufferLike {
    const spare = this.#spare;
    this.#spare = undefined;
    return spare !== undefined && spare.byteLength >= size ? spare : new ArrayBuffer(size + SLACK_BYTES);
  }
}
