import type { Clock, Random, Timer } from './clock.ts';

// 24 days. A timer of the runtime with a longer delay fires immediately.
const MAX_TIMER_MS = 2 ** 31 - 1;

/** The runtime's clock. A timer keeps the process alive until it fires or is cancelled, unless `unref` is called. */
export const systemClock: Clock = {
  now: (): number => performance.now(),
  wallTime: (): number => Date.now(),
  after(delayMs: number, callback: () => void): Timer {
    let handle: ReturnType<typeof setTimeout>;
    let keepsAlive = true;
    const unref = (): unknown => Object(handle).unref?.(); // in a browser, the handle is a number
    const set = (restMs: number): void => {
      handle =
        restMs > MAX_TIMER_MS
          ? setTimeout(() => set(restMs - MAX_TIMER_MS), MAX_TIMER_MS)
          : setTimeout(callback, Math.max(0, restMs)); // Node.js 22 prints a warning for a negative delay
      if (!keepsAlive) unref();
    };
    set(delayMs);
    return {
      cancel: () => clearTimeout(handle),
      unref: () => {
        keepsAlive = false;
        unref();
      },
    };
  },
};

/** A time in the form of Go's `time.RFC3339`, whose fraction has any number of digits. */
const RFC3339 = /^(?<date>\d{4}-\d\d-\d\d)[Tt]([01]\d|2[0-3]):\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)$/;

/** Returns an RFC 3339 time in milliseconds since the epoch; undefined if it is invalid. */
export function parseTime(text: string): number | undefined {
  const date = RFC3339.exec(text)?.groups?.['date'];
  const time = date !== undefined && isDate(date) ? Date.parse(text) : Number.NaN;
  return Number.isNaN(time) ? undefined : time;
}

/** Returns a wall time as ISO 8601; undefined if there is none. */
export function isoTime(at: number): string;
export function isoTime(at: number | undefined): string | undefined;
export function isoTime(at: number | undefined): string | undefined {
  return at === undefined ? undefined : new Date(at).toISOString();
}

/** Returns true if a day such as `2026-02-28` exists. `Date.parse` accepts February 30, as March 2. */
export function isDate(text: string): boolean {
  const at = Date.parse(text);
  return !Number.isNaN(at) && new Date(at).toISOString().startsWith(text);
}

/** Time source and random numbers of a component. */
export interface Runtime {
  readonly clock: Clock;
  readonly random: Random;
}

/** Options of a component that measures time and uses random numbers. */
export interface RuntimeOptions {
  /** Default: the system clock. */
  readonly clock?: Clock | undefined;
  /** Default: `Math.random`. */
  readonly random?: Random | undefined;
}

/** Returns the options with the system clock and `Math.random` in place of missing ones. */
export function withRuntime<T extends RuntimeOptions>(options: T): T & Runtime {
  const { clock = systemClock, random = Math.random } = options;
  return { ...options, clock, random };
}
