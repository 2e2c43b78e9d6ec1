/** A running timer. Cancelling it twice, or after it has fired, does nothing. */
export interface Timer {
  cancel(): void;
  /** Lets the process end before the timer fires. A clock without timers of the runtime needs no such method. */
  unref?(): void;
}

/**
 * The time source of the engines. They never read the runtime's time: the process passes in `systemClock`, and tests
 * pass in a fake clock.
 */
export interface Clock {
  /**
   * Returns monotonic milliseconds since an arbitrary origin, for durations, leases and deadlines. It does not
   * change if the system's time is set. Values of different processes are not comparable.
   */
  now(): number;
  /**
   * Returns milliseconds since the Unix epoch, only for display and for written timestamps, because it jumps if the
   * time is set.
   */
  wallTime(): number;
  /** Calls `callback` once, after at least `delayMs` milliseconds, never synchronously. */
  after(delayMs: number, callback: () => void): Timer;
}

/** Returns a number uniform in [0, 1), like `Math.random`. It is passed in so that tests can fix it. */
export type Random = () => number;
