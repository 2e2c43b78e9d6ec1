import type { Clock, Timer } from '../../base/clock.ts';
import type { StoreObserver } from './watch-store.ts';

/**
 * Delays deletes, and drops them if the key returns in time. A node that restarts loses its key for a moment, which must not affect
 * its traffic (SEMANTICS 5).
 */
export class DelayedDeletes<T> implements StoreObserver<T> {
  readonly #inner: Required<StoreObserver<T>>;
  readonly #clock: Clock;
  readonly #delayMs: number;
  /** Names with the timer of their delete; no timer while paused. */
  readonly #held = new Map<string, Timer | undefined>();

  /** @param inner must not throw */
  constructor(inner: Required<StoreObserver<T>>, clock: Clock, delayMs: number) {
    this.#inner = inner;
    this.#clock = clock;
    this.#delayMs = delayMs;
  }

  /** Number of delayed deletes. */
  get size(): number {
    return this.#held.size;
  }

  onUpdate(name: string, value: T): void {
    this.#forget(name);
    this.#inner.onUpdate(name, value);
  }

  onDelete(name: string): void {
    this.#forget(name);
    if (this.#delayMs === 0) {
      this.#inner.onDelete(name);
      return;
    }
    this.#hold(name);
  }

  batch(apply: () => void): void {
    this.#inner.batch(apply);
  }

  /** Delivers all delayed deletes as one batch. */
  flush(): void {
    const names = [...this.#held.keys()];
    this.pause();
    this.#held.clear();
    this.batch(() => {
      for (const name of names) this.#inner.onDelete(name);
    });
  }

  /** Stops the delays until {@link resume}, which restarts them. */
  pause(): void {
    for (const [name, timer] of this.#held) {
      timer?.cancel();
      this.#held.set(name, undefined);
    }
  }

  resume(): void {
    for (const [name, timer] of this.#held) if (timer === undefined) this.#hold(name);
  }

  #hold(name: string): void {
    const timer = this.#clock.after(this.#delayMs, () => {
      this.#held.delete(name);
      this.#inner.onDelete(name);
    });
    this.#held.set(name, timer);
  }

  #forget(name: string): void {
    this.#held.get(name)?.cancel();
    this.#held.delete(name);
  }
}
