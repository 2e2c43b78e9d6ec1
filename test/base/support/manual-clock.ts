import type { Clock, Timer } from '../../../src/base/clock.ts';

interface Alarm {
  readonly at: number;
  readonly callback: () => void;
}

/** The wall time of a {@link ManualClock} whose monotonic time is 0. */
export const WALL_TIME_AT_0: number = Date.UTC(2026, 10, 20, 12);

/**
 * A clock that only a test advances. Timers fire in order of time, then of creation. Monotonic time starts at 0, wall
 * time at {@link WALL_TIME_AT_0} or at the argument.
 */
export class ManualClock implements Clock {
  #now = 0;
  #wallOffset: number;
  readonly #alarms = new Set<Alarm>();

  constructor(wallTimeAt0: number = WALL_TIME_AT_0) {
    this.#wallOffset = wallTimeAt0;
  }

  now(): number {
    return this.#now;
  }

  wallTime(): number {
    return this.#now + this.#wallOffset;
  }

  /** Sets the wall time forward or, if negative, back. Monotonic time and timers do not change. */
  setWallTimeBy(ms: number): void {
    this.#wallOffset += ms;
  }

  after(delayMs: number, callback: () => void): Timer {
    const alarm: Alarm = { at: this.#now + Math.max(0, delayMs), callback };
    this.#alarms.add(alarm);
    return { cancel: () => this.#alarms.delete(alarm) };
  }

  /** Number of pending timers. */
  get pending(): number {
    return this.#alarms.size;
  }

  /** Time of the next timer; undefined if there is none. */
  get nextAt(): number | undefined {
    return this.#next(Number.POSITIVE_INFINITY)?.at;
  }

  /** Advances by `ms` and fires due timers, including those created by other timers. */
  advance(ms: number): void {
    const end = this.#now + ms;
    for (let next = this.#next(end); next !== undefined; next = this.#next(end)) {
      this.#alarms.delete(next);
      this.#now = Math.max(this.#now, next.at);
      next.callback();
    }
    this.#now = end;
  }

  #next(end: number): Alarm | undefined {
    let first: Alarm | undefined;
    for (const alarm of this.#alarms) {
      if (alarm.at <= end && (first === undefined || alarm.at < first.at)) first = alarm;
    }
    return first;
  }
}
