import type { Clock } from '../base/clock.ts';

/**
 * Minimum difference that counts as a step of the wall clock. Smaller differences arise without a step: the times are
 * rounded to milliseconds, they are read up to {@link READ_MS} apart, and NTP slews the wall clock.
 */
const STEP_MS = 20;

/** Wall time and monotonic time are compared only if both were read within this time. */
const READ_MS = 2;

/** Maximum number of reads at the start of a life. If all took longer than {@link READ_MS}, the fastest is used. */
const READ_ATTEMPTS = 10;

/**
 * A period without a step of the wall clock. From `ms` of the life on, the wall time is the time of the life plus
 * `offset`.
 */
export interface ClockPiece {
  readonly ms: number;
  readonly offset: number;
  /**
   * The last time of the life before `ms` at which the previous piece still held: the clock was set between this time
   * and `ms`.
   */
  readonly sinceMs: number;
}

/**
 * The time of one life in milliseconds since it began, and the wall time of each. Wall time may be set while the
 * process runs.
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
    return change;
  }

  /** Returns the wall time of a time of the life. */
  wallOf(ms: number): number {
    const piece = this.#pieces.findLast((one) => one.ms <= ms) ?? this.#pieces[0];
    return ms + (piece?.offset ?? 0);
  }

  /**
   * Returns the times of the life at which the wall clock may have shown `wall`, ascending: several if the clock was
   * set back past `wall`, none if it was set forward past `wall`. Times before the life count with the first piece, and
   * later times with the last.
   */
  timesOf(wall: number): readonly number[] {
    if (this.#pieces.length === 1) return [wall - (this.#pieces[0]?.offset ?? 0)];
    return this.#pieces
      .flatMap(({ sinceMs, offset }, index) => {
        const at = wall - offset;
        const end = this.#pieces[index + 1]?.ms ?? Number.POSITIVE_INFINITY;
        return (index === 0 || at >= sinceMs) && at < end ? [at] : [];
      })
      .sort((a, b) => a - b);
  }

  /** Returns true if the clock was set at about this time of the life, so that its wall time is unknown. */
  isUnclear(ms: number): boolean {
    return this.#pieces.some((piece) => ms >= piece.sinceMs && ms < piece.ms);
  }
}

/**
 * Returns the monotonic time and the wall time of one moment, from the fastest of several reads, because a busy host
 * may interrupt a read.
 */
function readTogether(time: Clock): { readonly ms: number; readonly wall: number } {
  let best = { ms: 0, wall: 0, took: Number.POSITIVE_INFINITY };
  for (let attempt = 0; attempt < READ_ATTEMPTS && best.took > READ_MS; attempt++) {
    const ms = time.now();
    const wall = time.wallTime();
    const took = time.now() - ms;
    if (took < best.took) best = { ms, wall, took };
  }
  return best;
}

/** Measures the time of a life that begins now. */
export class RunningLife {
  readonly clock: LifeClock;
  readonly #time: Clock;
  readonly #origin: number;
  #last = 0;

  constructor(time: Clock) {
    this.#time = time;
    const { ms, wall } = readTogether(time);
    this.#origin = ms;
    this.clock = new LifeClock([{ ms: 0, offset: wall, sinceMs: 0 }]);
  }

  /** Returns the milliseconds since the life began. Never decreases. */
  now(): number {
    this.#last = Math.max(this.#last, Math.floor(this.#time.now() - this.#origin));
    return this.#last;
  }

  /** Compares the wall time with the time of the life. Returns the step of the wall clock in milliseconds, or 0. */
  noticeClockStep(): number {
    const ms = this.now();
    const wall = this.#time.wallTime();
    return this.now() - ms > READ_MS ? 0 : this.clock.observe(ms, wall);
  }
}
