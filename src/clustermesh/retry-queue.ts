import type { Clock, Timer } from '../base/clock.ts';
import type { RetryTurns } from '../kvstore/backend.ts';

/**
 * Milliseconds between two retries. One costs 2 to 5 ms: with 250 clusters that are down this is less than a hundredth of
 * a core, and one that is back alone is noticed after two minutes at most.
 */
const STEP_MS = 500;
/** A retry that succeeds lets so many more go at once: an outage that is over is over for others, too. */
const AFTER_SUCCESS = 4;

/** Spreads the retries of clusters that are down, first come, first served: their number does not make them cost more. */
export class RetryQueue implements RetryTurns {
  readonly #clock: Clock;
  readonly #waiting = new Set<() => void>();
  #timer: Timer | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** See `RetryTurns`; at once if there was no other turn just now. */
  turn(signal: AbortSignal): Promise<void> {
    if (signal.aborted) return Promise.resolve();
    return new Promise((resolve) => {
      const go = (): void => {
        this.#waiting.delete(go);
        signal.removeEventListener('abort', go);
        resolve();
      };
      signal.addEventListener('abort', go, { once: true });
      this.#waiting.add(go);
      if (this.#timer === undefined) this.#step();
    });
  }

  /** A retry has succeeded. */
  succeeded(): void {
    for (let i = 0; i < AFTER_SUCCESS; i++) this.#letGo();
  }

  #step(): void {
    this.#timer = undefined;
    if (this.#letGo()) this.#timer = this.#clock.after(STEP_MS, () => this.#step());
  }

  #letGo(): boolean {
    const [first] = this.#waiting;
    first?.();
    return first !== undefined;
  }
}
