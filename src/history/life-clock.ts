import type { Clock } from '../base/clock.ts';

/**
 * Minimum difference that counts as a step of the wall clock. Smaller differences arise without a step: the times are
 * rounded to milliseconds and read up to {@link MAX_READ_MS} apart, and NTP slews the wall clock.
 */
const STEP_MS = 20;

/** Wall time and monotonic time are compared only if both were read within this time. */
const MAX_READ_MS = 2;

/** Maximum number of reads at the start of a life. If all took longer than {@link MAX_READ_MS}, the fastest is used. */
const READ_ATTEMPTS = 10;

/**
 * Maximum number of pieces of a life, about 20 kB of a stored state. A host that steps its clock each minute has all
 * pieces of the last two hours, because only the older half is merged.
 */
const MAX_PIECES = 256;

/** A period without a step of the wall clock, from `ms` of the life on: wall time = time of the life + `offset`. */
export interface ClockPiece {
  readonly ms: number;
  readonly offset: number;
  /** The lowest and the highest offset between `sinceMs` and `ms` if pieces between these times were merged. */
  readonly low?: number | undefined;
  readonly high?: number | undefined;
  /** The last time before `ms` at which the previous piece applied. The clock was set between both times. */
  readonly sinceMs: number;
}

/**
 * Converts times of one life (a run of the agent), in milliseconds since it began, to wall times and back. Wall time
 * may be set while the process runs. If there are too many pieces, those whose offsets differ least are merged: the
 * wall times of the merged pieces are unknown, and {@link LifeClock.wallOf} is wrong by at most the difference of
 * their offsets.
 */
export class LifeClock {
  readonly #pieces: ClockPiece[];
  /** The last time of the life at which the wall time agreed with the last piece. */
  #agreedMs: number;

  /** `pieces` are ordered; the first has `ms` 0. */
  constructor(pieces: readonly ClockPiece[]) {
    this.#pieces = [...pieces];
    this.#agreedMs = pieces.at(-1)?.ms ?? 0;
  }

  get pieces(): readonly ClockPiece[] {
    return this.#pieces;
  }

  /** Records the wall time of a time of the life. Returns the step of the wall clock in milliseconds, or 0. */
  observe(ms: number, wall: number): number {
    const offset = wall - ms;
    const change = offset - (this.#pieces.at(-1)?.offset ?? offset);
    const sinceMs = this.#agreedMs;
    this.#agreedMs = ms;
    if (Math.abs(change) <= STEP_MS) return 0;
    this.#pieces.push({ ms, offset, sinceMs });
    if (this.#pieces.length > MAX_PIECES) this.#merge();
    return change;
  }

  /** Removes the piece of the older half whose removal adds the least error. Its wall times become unclear. */
  #merge(): void {
    const pieces = this.#pieces;
    let best: { readonly index: number; readonly next: ClockPiece; readonly error: number } | undefined;
    for (let index = 1; index <= MAX_PIECES / 2; index++) {
      const previous = pieces[index - 1];
      const removed = pieces[index];
      const next = pieces[index + 1];
      if (previous === undefined || removed === undefined || next === undefined) break;
      const { offset } = removed;
      const low = Math.min(previous.offset, offset, next.offset, removed.low ?? offset, next.low ?? offset);
      const high = Math.max(
        previous.offset,
        offset,
        next.offset,
        removed.high ?? offset,
        next.high ?? offset,
      );
      if (best !== undefined && best.error <= high - low) continue;
      best = { index, next: { ...next, sinceMs: removed.sinceMs, low, high }, error: high - low };
    }
    if (best !== undefined) pieces.splice(best.index, 2, best.next);
  }

  /** Returns the wall time of a time of the life. */
  wallOf(ms: number): number {
    const piece = this.#pieces.findLast((one) => one.ms <= ms) ?? this.#pieces[0];
    return ms + (piece?.offset ?? 0);
  }

  /** Returns the lowest wall time from a time of the life on, because the clock may have been set back since. */
  lowestWall(fromMs: number): number {
    const later = this.#pieces.filter(({ ms }) => ms > fromMs);
    const lowest = later.map(({ ms, offset, sinceMs, low = Number.POSITIVE_INFINITY }) =>
      Math.min(ms + offset, Math.max(sinceMs, fromMs) + low),
    );
    return Math.min(this.wallOf(fromMs), ...lowest);
  }

  /** Returns the time after `fromMs` at which the clock was set forward past `wall` without showing it, if it was. */
  skippedAt(wall: number, fromMs: number): number | undefined {
    if (this.wallOf(fromMs) > wall || this.timesOf(wall).length > 0) return undefined;
    return this.#pieces.find(({ ms, offset }) => ms > fromMs && ms + offset > wall)?.ms;
  }

  /** Returns bounds of the wall times from one time of the life to another. The clock may have been set in between. */
  wallBounds(fromMs: number, toMs: number): { readonly from: number; readonly to: number } {
    const first = this.#pieces.findLastIndex(({ ms }) => ms <= fromMs);
    const offsets = this.#pieces.flatMap(({ ms, offset, sinceMs, low = offset, high = offset }, index) => [
      ...(index >= first && ms <= toMs ? [offset] : []),
      ...(sinceMs <= toMs && ms > fromMs ? [low, high] : []),
    ]);
    return { from: fromMs + Math.min(...offsets), to: toMs + Math.max(...offsets) };
  }

  /**
   * Returns the times of the life at which the wall clock may have shown `wall`, ascending: several if the clock was
   * set back past `wall`, none if it was set forward past `wall`. The first and the last offset also apply before and
   * after the life. For each group of merged pieces, only one possible time is returned.
   */
  timesOf(wall: number): readonly number[] {
    if (this.#pieces.length === 1) return [wall - (this.#pieces[0]?.offset ?? 0)];
    return this.#pieces
      .flatMap((piece, index) => {
        const { sinceMs, offset } = piece;
        const at = wall - offset;
        const end = this.#pieces[index + 1]?.ms ?? Number.POSITIVE_INFINITY;
        const times = (index === 0 || at >= sinceMs) && at < end ? [at] : [];
        const merged = timeBetweenMerged(piece, wall);
        return merged === undefined || merged === at ? times : [merged, ...times];
      })
      .sort((a, b) => a - b);
  }

  /** Returns true if the clock was set at about this time of the life, so that its wall time is unknown. */
  isUnclear(ms: number): boolean {
    return this.#pieces.some((piece) => ms >= piece.sinceMs && ms < piece.ms);
  }
}

/** Returns a time between `sinceMs` and `ms` of a piece at which a merged piece may have shown `wall`, if any. */
function timeBetweenMerged({ ms, sinceMs, low, high }: ClockPiece, wall: number): number | undefined {
  if (low === undefined || high === undefined || wall - high >= ms || wall - low < sinceMs) return undefined;
  return Math.max(sinceMs, wall - high);
}

/** Returns both times of one moment, from the fastest of several reads, because a read may be interrupted. */
function readTogether(clock: Clock): { readonly ms: number; readonly wall: number } {
  let best = { ms: 0, wall: 0, took: Number.POSITIVE_INFINITY };
  for (let attempt = 0; attempt < READ_ATTEMPTS && best.took > MAX_READ_MS; attempt++) {
    const ms = clock.now();
    const wall = clock.wallTime();
    const took = clock.now() - ms;
    if (took < best.took) best = { ms, wall, took };
  }
  return best;
}

/** Measures the time of a life that begins now. */
export class RunningLife {
  readonly clock: LifeClock;
  readonly #runtimeClock: Clock;
  readonly #origin: number;
  #last = 0;

  constructor(runtimeClock: Clock) {
    this.#runtimeClock = runtimeClock;
    const { ms, wall } = readTogether(runtimeClock);
    this.#origin = ms;
    this.clock = new LifeClock([{ ms: 0, offset: wall, sinceMs: 0 }]);
  }

  /** Returns the milliseconds since the life began. Never decreases. */
  now(): number {
    this.#last = Math.max(this.#last, Math.floor(this.#runtimeClock.now() - this.#origin));
    return this.#last;
  }

  /** Compares the wall time with the time of the life. Returns the step of the wall clock in milliseconds, or 0. */
  noticeClockStep(): number {
    const ms = this.now();
    const wall = this.#runtimeClock.wallTime();
    return this.now() - ms > MAX_READ_MS ? 0 : this.clock.observe(ms, wall);
  }
}
