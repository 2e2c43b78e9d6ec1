import type { Clock, Timer } from '../../../src/base/clock.ts';

interface Due {
  readonly at: number;
  readonly callback: () => void;
}

/** A clock that stands still until a test moves it. */
export class FakeClock implements Clock {
  readonly #timers = new Set<Due>();
  #now = Date.UTC(2026, 10, 20, 12);

  now(): number {
    return this.#now;
  }

  wallTime(): number {
    return this.#now;
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

  /** Moves on and runs what is due, in order; promises get their turn after each. */
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

/** Lets everything run that waits for nothing but its turn. */
export async function settle(): Promise<void> {
  for (let i = 0; i < 20; i++) await new Promise((resolve) => setImmediate(resolve));
}
