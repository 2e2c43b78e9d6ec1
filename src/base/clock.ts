/** A timer that was set; cancelling it twice, or after it has fired, does nothing. */
export interface Timer {
  cancel(): void;
}

/**
 * Time as the engines see it. They never ask the runtime for it: `systemClock` is passed in by the process,
 * a fake one by tests.
 */
export interface Clock {
  /**
   * Monotonic milliseconds since an arbitrary origin: for durations, leases, deadlines and graces. Setting the
   * system's time does not move it. Not comparable between processes.
   */
  now(): number;
  /** Milliseconds since the Unix epoch, for showing and for written timestamps only: it jumps when the time is set. */
  wallTime(): number;
  /** Calls `callback` once, no sooner than `delayMs` milliseconds from now, never synchronously. */
  after(delayMs: number, callback: () => void): Timer;
}

/** Uniform in [0, 1), as `Math.random`; passed in so that a test can fix it. */
export type Random = () => number;
