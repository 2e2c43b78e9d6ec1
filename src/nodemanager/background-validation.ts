import type { Clock, Random, Timer } from '../base/clock.ts';

/** No more than ten turns a second, however many nodes there are: several nodes share a turn then. */
const SHORTEST_TURN_MS = 100;

/** What {@link BackgroundValidation} goes over. */
export interface ValidationOptions<T> {
  readonly clock: Clock;
  readonly random: Random;
  /** How long one round takes, for as many items as there are now; above 0. */
  intervalMs(): number;
  size(): number;
  /** A walk over the items that copes with changes: what stays all the time comes once. */
  items(): Iterator<T>;
  validate(item: T): void;
}

/**
 * Goes over all items again and again, each once a round, spread evenly over the round; the first turn comes after a
 * random part of a turn, so that agents started together do not work together.
 */
export class BackgroundValidation<T> {
  readonly #options: ValidationOptions<T>;
  #items: Iterator<T> | undefined;
  #timer: Timer | undefined;
  /** Items that are due, as a fraction: turns do not divide rounds evenly. */
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

  /** From one item to the next, but not less than the shortest turn; the whole round while there are no items. */
  #turnMs(): number {
    const { intervalMs, size } = this.#options;
    return Math.max(SHORTEST_TURN_MS, intervalMs() / Math.max(1, size()));
  }

  /** After `delayMs`, does the work of a turn of `turnMs`. */
  #schedule(delayMs: number, turnMs: number): void {
    this.#timer = this.#options.clock.after(delayMs, () => {
      const { intervalMs, size } = this.#options;
      this.#due += (size() * turnMs) / intervalMs();
      // A turn of its own for each item is never quite 1 in floating point.
      const count = Math.floor(this.#due + 1e-6);
      this.#due -= count;
      const next = this.#turnMs();
      this.#schedule(next, next);
      this.#validate(Math.min(count, size()));
    });
  }

  /** Until it is stopped: by what validates, too. */
  #validate(count: number): void {
    for (let i = 0; i < count && this.#timer !== undefined; i++) {
      const item = this.#next() ?? this.#next(); // once more: from the end back to the start
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
