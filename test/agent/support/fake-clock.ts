import type { Clock, Timer } from '../../../src/base/clock.ts';

interface Due {
  readonly at: number;
  readonly callback: () => void;
}

/** The wall time at which every {@link FakeClock} starts. */
const STARTED_AT = Date.UTC(2026, 10, 20, 12);

/**
 * A clock that only a test advances. Its monotonic time has another origin than its wall time, as that of a machine.
 */
export class FakeClock implements Clock {
  readonly #timers = new Set<Due>();
  readonly #origin: number;
  #now: number;

  /** Starts with the monotonic time `uptimeMs`. */
  constructor(uptimeMs = 98_765_432) {
    this.#now = uptimeMs;
    this.#origin = STARTED_AT - uptimeMs;
  }

  now(): number {
    return this.#now;
  }

  wallTime(): number {
    return this.#origin + this.#now;
  }

  after(delayMs: number, callback: () => void): Timer {
    const due = { at: this.#now + delayMs, callback };
    this.#timers.add(due);
    return { cancel: () => this.#timers.delete(due) };
  }

  /** Timers that are set. */
  get pending(): number {
    return this.#timers.size;
  }

  /** Advances the clock and runs due timers, in order; pending promises run after each. */
  async advance(ms: number): Promise<void> {
    const end = this.#now + ms;
    for (;;) {
      const [next] = [...this.#timers].filter(({ at }) => at <= end).sort((a, b) => a.at - b.at);
      if (next === undefined) break;
      this.#now = Math.max(this.#now, next.at);
      this.#timers.delete(next);
      next.callback();
      await settle();
    }
    this.#now = end;
    await settle();
  }
}

/** Runs everything that waits only for a turn. */
export async function settle(): Promise<void> {
  for (let i = 0; i < 20; i++) await new Promise((resolve) => setImmediate(resolve));
}
