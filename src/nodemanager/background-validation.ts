import type { Timer } from '../base/clock.ts';
import type { Runtime } from '../base/system-clock.ts';

/** Shortest time between two ticks. With many items, a tick validates several. */
const MIN_TICK_MS = 100;

export interface ValidationOptions<T> extends Runtime {
  /** Returns the duration of one round for the current number of items; above 0. */
  intervalMs(): number;
  size(): number;
  /** Returns an iterator over the items, which may change. One that exists all the time is returned once. */
  items(): Iterator<T>;
  validate(item: T): void;
}

/**
 * Validates all items in rounds, each item once per round, spread evenly over the ticks of a timer. The first tick is
 * early by a random time, so that agents started together do not work at the same time.
 */
export class BackgroundValidation<T> {
  readonly #options: ValidationOptions<T>;
  #items: Iterator<T> | undefined;
  #timer: Timer | undefined;
  /** Number of due items, with a fraction, because ticks do not divide a round evenly. */
  #due = 0;

  constructor(options: ValidationOptions<T>) {
    this.#options = options;
  }

  start(): void {
    const tickMs = this.#tickMs();
    this.#schedule(this.#options.random() * tickMs, tickMs);
  }

  stop(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
  }

  /**
   * Returns the time between two ticks: the time between two items, but at least {@link MIN_TICK_MS}. Without items,
   * the duration of a round.
   */
  #tickMs(): number {
    const { intervalMs, size } = this.#options;
    return Math.max(MIN_TICK_MS, intervalMs() / Math.max(1, size()));
  }

  /** Schedules a tick after `delayMs`, which validates the items of `tickMs`. */
  #schedule(delayMs: number, tickMs: number): void {
    this.#timer = this.#options.clock.after(delayMs, () => {
      const { intervalMs, size } = this.#options;
      this.#due += (size() * tickMs) / intervalMs();
      // One item per tick can be slightly less than 1 in floating point.
      const count = Math.floor(this.#due + 1e-6);
      this.#due -= count;
      const next = this.#tickMs();
      this.#schedule(next, next);
      this.#validate(Math.min(count, size()));
    });
  }

  /** Validates `count` items, or fewer if `validate` stops it. */
  #validate(count: number): void {
    for (let i = 0; i < count && this.#timer !== undefined; i++) {
      const item = this.#next() ?? this.#next(); // the second call starts the next round
      if (item !== undefined) this.#options.validate(item);
    }
  }

  #next(): T | undefined {
    this.#items ??= this.#options.items();
    const { done, value } = this.#items.next();
    if (done !== true) return value;
    this.#items = undefined;
    return undefined;
  }
}
