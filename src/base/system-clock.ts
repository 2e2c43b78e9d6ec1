import type { Clock, Timer } from './clock.ts';

// 24 days: a timer of the runtime's that is set to more fires at once.
const MAX_TIMER_MS = 2 ** 31 - 1;

/** The runtime's clock. Its timers keep the process alive until they fire or are cancelled. */
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
