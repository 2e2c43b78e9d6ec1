import type { Segment } from '../segment.ts';
import type { StoredSegment } from './segment-archive.ts';

/** Number of segments that stay in memory after they were read, because the next page of a list reads them again. */
const MAX_CACHED = 4;

/** Additional bytes of a buffer, so that it can be reused for a slightly larger segment. */
const SLACK_BYTES: number = 64 << 10;

/** Returns a buffer with this number of bytes for the file of a segment. */
export type AllocateBuffer = (size: number) => Uint8Array;

interface Slot {
  /** The memory of the segment; undefined until its file is open. */
  buffer: ArrayBufferLike | undefined;
  /** Undefined until the file is read. */
  segment: Segment | undefined;
  /** Number of queries that currently read the segment. */
  users: number;
}

/**
 * Stored segments in memory. If the cache is full, the buffer of an unused segment is reused for the next. New
 * buffers would cause a full garbage collection after about three segments, because they are megabytes outside of the
 * heap.
 */
export class SegmentCache {
  readonly #read: (stored: StoredSegment, allocate: AllocateBuffer) => Promise<Segment>;
  /** Cached segments in the order of their loading, oldest first. */
  readonly #cached = new Map<StoredSegment, { readonly loading: Promise<Segment>; readonly slot: Slot }>();
  #spare: ArrayBufferLike | undefined;

  constructor(read: (stored: StoredSegment, allocate: AllocateBuffer) => Promise<Segment>) {
    this.#read = read;
  }

  /** Returns a segment, valid until `release`, which must be called once unless the promise rejects. */
  load(stored: StoredSegment): Promise<Segment> {
    const known = this.#cached.get(stored);
    if (known !== undefined) {
      known.slot.users++;
      return known.loading;
    }
    this.#shrink(MAX_CACHED - 1);
    const slot: Slot = { buffer: undefined, segment: undefined, users: 1 };
    const loading = this.#read(stored, (size) => {
      slot.buffer = this.#take(size);
      return new Uint8Array(slot.buffer, 0, size);
    });
    this.#cached.set(stored, { loading, slot });
    loading.then(
      (segment) => {
        slot.segment = segment;
      },
      () => this.forget(stored),
    );
    return loading;
  }

  release(stored: StoredSegment, segment: Segment): void {
    const slot = this.#cached.get(stored)?.slot;
    // If the cache has another copy, this one was forgotten.
    if (slot?.segment !== segment) return;
    slot.users--;
    this.#shrink(MAX_CACHED);
  }

  /** Removes a segment. Queries that read it keep its memory. */
  forget(stored: StoredSegment): void {
    this.#cached.delete(stored);
  }

  /** Removes the oldest segments that no query reads, until at most `count` segments are left. */
  #shrink(count: number): void {
    for (const [stored, { slot }] of this.#cached) {
      if (this.#cached.size <= count) return;
      if (slot.users > 0) continue;
      this.#cached.delete(stored);
      this.#spare = slot.buffer;
    }
  }

  /** Returns memory of at least `size` bytes. */
  #take(size: number): ArrayBufferLike {
    const spare = this.#spare;
    this.#spare = undefined;
    return spare !== undefined && spare.byteLength >= size ? spare : new ArrayBuffer(size + SLACK_BYTES);
  }
}
