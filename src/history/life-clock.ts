import type { Clock } from '../base/clock.ts';

/** A change of the wall time against the monotonic time that is larger is a clock that was set. Smaller ones are corrections. */
const SET_MS = 1000;

/** From this time of the life on, wall time is `offset` more than it. */
export interface ClockPiece {
  readonly ms: number;
  readonly offset: number;
}

/** The time of one life in milliseconds since it began, and the wall time of each. Wall time may be set while the process runs. */
export class LifeClock {
  readonly #pieces: ClockPiece[];

  /** `pieces` are ordered; the first has `ms` 0. */
  constructor(pieces: readonly ClockPiece[]) {
    this.#pieces = [...pieces];
  }

  get pieces(): readonly ClockPiece[] {
    return this.#pieces;
  }

  /** Records that it is `wall` now. Returns the milliseconds of its step, or 0. */
  observe(ms: number, wall: number): number {
    const offset = wall - ms;
    const change = offset - (this.#pieces.at(-1)?.offset ?? offset);
    if (Math.abs(change) <= SET_MS) return 0;
    this.#pieces.push({ ms, offset });
    return change;
  }

  /** Returns the wall time of a time of the life. */
  wallOf(ms: number): number {
    const piece = this.#pieces.findLast((one) => one.ms <= ms) ?? this.#pieces[0];
    return ms + (piece?.offset ?? 0);
  }

  /**
   * Returns the times of the life at a wall time, ascending: several if the clock was set back over it, none if it was set
   * forward over it. The first piece has no beginning and the last one no end.
   */
  timesOf(wall: number): readonly number[] {
    return this.#pieces.flatMap(({ ms, offset }, index) => {
      const at = wall - offset;
      const end = this.#pieces[index + 1]?.ms ?? Number.POSITIVE_INFINITY;
      return (index === 0 || at >= ms) && at < end ? [at] : [];
    });
  }
}

/** Measures the time of a life that begins now. */
export class RunningLife {
  readonly clock: LifeClock;
  readonly #time: Clock;
  readonly #origin: number;
  #last = 0;

  constructor(time: Clock) {
    this.#time = time;
    this.#origin = time.now();
    this.clock = new LifeClock([{ ms: 0, offset: time.wallTime() }]);
  }

  /** Returns the milliseconds since the life began. Never decreases. */
  now(): number {
    this.#last = Math.max(this.#last, Math.floor(this.#time.now() - this.#origin));
    return this.#last;
  }

  /** Compares the wall time with the time of the life. Returns the milliseconds of its step, or 0. */
  checkWall(): number {
    return this.clock.observe(this.now(), this.#time.wallTime());
  }
}
