import type { Clock, Timer } from './clock.ts';

// 24 days. A timer of the runtime with a longer delay fires immediately.
const MAX_TIMER_MS = 2 ** 31 - 1;

/** The runtime's clock. A timer keeps the process alive until it fires or is cancelled. */
export const systemClock: Clock = {
  now: (): number => performance.now(),
  wallTime: (): number => Date.now(),
  after(delayMs: number, callback: () => void): Timer {
    let handle: NodeJS.Timeout;
    const set = (restMs: number): void => {
      handle =
        restMs > MAX_TIMER_MS
          ? setTimeout(() => set(restMs - MAX_TIMER_MS), MAX_TIMER_MS)
          : setTimeout(callback, restMs);
    };
    set(delayMs);
    return { cancel: () => clearTimeout(handle) };
  },
};
