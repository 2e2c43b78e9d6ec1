import type { Clock, Timer } from './clock.ts';

/** The runtime's clock. Its timers keep the process alive until they fire or are cancelled. */
export const systemClock: Clock = {
  now: (): number => performance.now(),
  wallTime: (): number => Date.now(),
  after(delayMs: number, callback: () => void): Timer {
    const handle = setTimeout(callback, delayMs);
    return { cancel: () => clearTimeout(handle) };
  },
};
