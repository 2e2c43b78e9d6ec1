import type { Clock, Random, Timer } from '../base/clock.ts';

/** Shortest turn: at most ten turns a second. With more nodes, a turn validates several. */
const MIN_TURN_MS = 100;

/** Options of {@link BackgroundValidation}. */
export interface ValidationOptions<T> {
  readonly clock: Clock;
  readonly random: Random;
  /** Returns the duration of one round for the current number of items; above 0. */
  intervalMs(): number;
  size(): number;
  /**
   * Returns an iterator over the items. Items may change during the iteration: an item that exists all the time is
   * returned once.
   */
  items(): Iterator<T>;
  validate(item: T): void;
}

/**
 * Validates all items in rounds, each item once per round, spread evenly. The first turn starts after a random part of
 * a turn, so that agents that were started together do not work at the same time.
 */
export class BackgroundValidation<T> {
  readonly #options: ValidationOptions<T>;
  #items: Iterator<T> | undefined;
  #timer: Timer | undefined;
  /** Number of due items. It has a fraction, because turns do not divide rounds evenly. */
  #due = 0;

  constructor(options: ValidationOptions<T>) {
    this.#options = options;
  }

  start(): void {
    const turn = this.#turnMs();
    this.#schedule(this.#options.random() * turn, turn);
  }

  stop(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
  }

  /**
   * Returns the length of a turn: the time between two items, but at least the shortest turn; the whole round if there
   * are no items.
   */
  #turnMs(): number {
    const { intervalMs, size } = this.#options;
    return Math.max(MIN_TURN_MS, intervalMs() / Math.max(1, size()));
  }

  /** Schedules a turn of length `turnMs` after `delayMs`. */
  #schedule(delayMs: number, turnMs: number): void {
    this.#timer = this.#options.clock.after(delayMs, () => {
      const { intervalMs, size } = this.#options;
      this.#due += (size() * turnMs) / intervalMs();
      // The due count of one item per turn is slightly below 1 in floating point.
      const count = Math.floor(this.#due + 1e-6);
      this.#due -= count;
      const next = this.#turnMs();
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
