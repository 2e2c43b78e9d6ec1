import { assert } from '../../base/assert.ts';
import type { TurnGate } from '../../base/turn-gate.ts';
import { DamagedError } from '../../net/byte-buffer.ts';
import type { PrefixRegister } from '../../net/prefix.ts';
import type { StoredSegment } from '../disk/segment-archive.ts';
import { isBeforeFirstRecord, type Life, type SegmentPart, uncertaintyAt } from '../lives.ts';
import { NOT_RETAINED, type PointInLives, pointOfWall, type RequestedMoment } from '../point-in-time.ts';
import { changesOfKeys, type RecordPlace, type TimelineChange } from '../prefix-timeline.ts';
import { documentKeyHash, KIND, keyHash } from '../record-reader.ts';
import { placesIn } from '../records.ts';
import type { RecordHead, Segment } from '../segment.ts';
import type { RetainedInterval, Uncertainty, When } from '../types.ts';

/** Number of records that are decoded and undone in one slice, which takes 1 to 2 ms. */
const RECORDS_PER_SLICE = 128;

/**
 * Bytes after which a slice of {@link Reading.headsOf} ends, because a record of a service may contain 100,000
 * backends.
 */
const BYTES_PER_SLICE = 65_536;

/** A slice of the heads of the records of a segment, newest first. */
export interface SegmentHeads {
  readonly segment: Segment;
  readonly heads: readonly (RecordHead & { readonly sequence: number })[];
}

export interface ReadingOptions {
  /** Oldest first; the last one is the current life, except before the start. */
  readonly lives: readonly Life[];
  readonly nextSequence: number;
  readonly gate: TurnGate;
  /** Returns the wall time. */
  readonly now: () => number;
  /** Forgets a segment that cannot be read. */
  readonly drop: (stored: StoredSegment) => void;
}

/** Reads the segments of all lives for one query, in slices of a `TurnGate`. Ignores records newer than the query. */
export class Reading {
  readonly #options: ReadingOptions;
  readonly lives: readonly Life[];
  readonly nextSequence: number;
  /** True if a segment could not be read, or was dropped, since the query began. */
  isLost = false;

  constructor(options: ReadingOptions) {
    this.#options = options;
    this.lives = options.lives;
    this.nextSequence = options.nextSequence;
  }

  /** The interval of the retained changes, including the times between two lives, which have no recorded changes. */
  get retained(): RetainedInterval {
    const now = this.#options.now();
    const from = this.lives.reduce(
      (oldest, life) => Math.min(oldest, life.clock.lowestWall(life.floorMs)),
      now,
    );
    return { from, to: now };
  }

  /** The reason why all answers of this query are uncertain; undefined unless {@link Reading.isLost} is true. */
  get lostReason(): Uncertainty | undefined {
    return this.isLost ? 'lost' : undefined;
  }

  lifeOf({ life }: PointInLives): Life {
    const found = this.lives[life];
    assert(found !== undefined, 'a moment is in a retained life');
    return found;
  }

  /** Lets other work run, if this turn has done enough. */
  pass(): Promise<boolean> {
    const { gate } = this.#options;
    return gate.pass(gate.slice);
  }

  /** Returns the point in the lives for a moment, and the reason why answers for it are not certain. */
  async pointOf(when: When): Promise<RequestedMoment<PointInLives>> {
    return typeof when === 'number'
      ? pointOfWall(this.lives, when, this.#options.now())
      : this.#pointOfSequence(when.sequence);
  }

  async #pointOfSequence(sequence: number): Promise<RequestedMoment<PointInLives>> {
    for (const [index, life] of this.lives.entries()) {
      const [first] = life.parts;
      const isBeforeFirst = first !== undefined && isBeforeFirstRecord(first, sequence);
      const part = life.parts.find(
        ({ firstSequence, endSequence }) => sequence >= firstSequence && sequence < endSequence,
      );
      if (part === undefined && !isBeforeFirst) continue;
      let ms = part === undefined ? life.floorMs : undefined;
      if (part !== undefined)
        for await (const segment of this.segment(part)) ms = segment.msAt(segment.positionOf(sequence));
      if (ms === undefined) break;
      const point = { life: index, lifeMs: ms, endSequence: sequence + 1 };
      return { point, reason: uncertaintyAt(life, point) };
    }
    return NOT_RETAINED;
  }

  /**
   * Yields the segment of a part. The segment is valid until the next step, and is released even if the caller leaves
   * its loop. If the segment cannot be read, drops it, sets `isLost`, and yields nothing.
   */
  async *segment(part: SegmentPart): AsyncGenerator<Segment, void, void> {
    let segment: Segment;
    try {
      segment = await part.load();
    } catch {
      this.#drop(part);
      return;
    }
    try {
      yield segment;
    } finally {
      part.release(segment);
    }
  }

  /** Yields the changes of the keys of a prefix in a life, newest first, in slices. */
  async *changesOf(
    life: Life,
    keys: readonly PrefixRegister[],
  ): AsyncGenerator<readonly TimelineChange[], void, void> {
    const hashes = keys.map(keyHash);
    for (const part of life.parts.toReversed()) {
      if (!hashes.some((hash) => part.mayContain(hash))) continue;
      for await (const segment of this.segment(part)) yield* this.#slices(part, changesOfKeys(segment, keys));
    }
  }

  /** Yields the places of the records of a service or a node in a life, newest first, in slices. */
  async *placesOf(
    life: Life,
    kind: 'service' | 'node',
    key: string,
  ): AsyncGenerator<readonly RecordPlace[], void, void> {
    const hash = documentKeyHash(KIND[kind], key);
    for (const part of life.parts.toReversed()) {
      if (!part.mayContain(hash)) continue;
      for await (const segment of this.segment(part)) yield* this.#slices(part, placesIn(segment, kind, key));
    }
  }

  /** Yields the heads of the records of the wanted segments of a life, newest first, in slices. */
  async *headsOf(
    life: Life,
    isWanted: (part: SegmentPart) => boolean,
  ): AsyncGenerator<SegmentHeads, void, void> {
    for (const part of life.parts.toReversed()) {
      if (!isWanted(part)) continue;
      for await (const segment of this.segment(part))
        for await (const heads of this.#slices(part, segment.newestHeads(), BYTES_PER_SLICE))
          yield { segment, heads };
    }
  }

  /**
   * Yields items of a segment, newest first, in slices, without those that were recorded after the query began. A slice
   * also ends when its items extend over `maxBytes` of the segment.
   */
  async *#slices<T extends { readonly position: number }>(
    part: SegmentPart,
    items: Iterator<T, void, void>,
    maxBytes: number = Number.POSITIVE_INFINITY,
  ): AsyncGenerator<readonly T[], void, void> {
    for (let isAtEnd = false; !isAtEnd; ) {
      const slice: T[] = [];
      let bytes = 0;
      try {
        while (!isAtEnd && slice.length < RECORDS_PER_SLICE && bytes < maxBytes) {
          const { value } = items.next();
          if (value === undefined) isAtEnd = true;
          else if (value.position < part.endPosition) {
            slice.push(value);
            bytes = (slice[0]?.position ?? 0) - value.position;
          }
        }
      } catch (error) {
        if (!(error instanceof DamagedError) || part.stored === undefined) throw error;
        this.#drop(part);
        isAtEnd = true;
      }
      yield slice;
      if (!isAtEnd) await this.pass();
    }
  }

  #drop({ stored }: SegmentPart): void {
    if (stored !== undefined) this.#options.drop(stored);
    this.isLost = true;
  }
}
