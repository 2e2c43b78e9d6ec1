/** A timer that was set; cancelling it twice, or after it has fired, does nothing. */
export interface Timer {
  cancel(): void;
}

/**
 * Time as the engines see it. They never ask the runtime for it: `systemClock` is passed in by the process,
 * a fake one by tests.
 */
export interface Clock {
  /** Milliseconds since the Unix epoch. May jump when the system's time is set; do not use it for order. */
  now(): number;
  /** Calls `callback` once, no sooner than `delayMs` milliseconds from now, never synchronously. */
  after(delayMs: number, callback: () => void): Timer;
}

/** Uniform in [0, 1), as `Math.random`; passed in so that a test can fix it. */
export type Random = () => number;
