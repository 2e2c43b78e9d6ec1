import type { Clock, Timer } from '../../base/clock.ts';
import type { StoreObserver } from './watch-store.ts';

/**
 * Passes deletes on late, and not at all if the key comes back meanwhile: a node that restarts lets its key go for a
 * moment, and its traffic should not have to (SEMANTICS 5).
 */
export class DelayedDeletes<T> implements StoreObserver<T> {
  readonly #inner: Required<StoreObserver<T>>;
  readonly #clock: Clock;
  readonly #delayMs: number;
  /** Names, and the timer that passes their delete on; none while it is paused. */
  readonly #held = new Map<string, Timer | undefined>();

  /** @param inner must not throw */
  constructor(inner: Required<StoreObserver<T>>, clock: Clock, delayMs: number) {
    this.#inner = inner;
    this.#clock = clock;
    this.#delayMs = delayMs;
  }

  /** Deletes that are held back. */
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

  /** Passes on what is held back now, as one batch. */
  flush(): void {
    const names = [...this.#held.keys()];
    this.pause();
    this.#held.clear();
    this.batch(() => {
      for (const name of names) this.#inner.onDelete(name);
    });
  }

  /** What is held back is not passed on until {@link resume}, and then after the delay. */
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
