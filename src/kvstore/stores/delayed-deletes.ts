import type { Clock, Timer } from '../../base/clock.ts';
import type { StoreObserver } from './watch-store.ts';

/**
 * Delays deletes, and drops them if the key returns in time. A node that restarts loses its key for a moment, which
 * must not affect its traffic (SEMANTICS 5).
 */
export class DelayedDeletes<T> implements StoreObserver<T> {
  readonly #observer: Required<StoreObserver<T>>;
  readonly #clock: Clock;
  readonly #delayMs: number;
  /** The timers of the delayed deletes, by name; undefined while paused. */
  readonly #timers = new Map<string, Timer | undefined>();

  /** @param inner must not throw */
  constructor(inner: Required<StoreObserver<T>>, clock: Clock, delayMs: number) {
    this.#observer = inner;
    this.#clock = clock;
    this.#delayMs = delayMs;
  }

  get size(): number {
    return this.#timers.size;
  }

  onUpdate(name: string, value: T): void {
    this.#forget(name);
    this.#observer.onUpdate(name, value);
  }

  onDelete(name: string): void {
    this.#forget(name);
    if (this.#delayMs === 0) {
      this.#observer.onDelete(name);
      return;
    }
    this.#delay(name);
  }

  batch(apply: () => void): void {
    this.#observer.batch(apply);
  }

  /** Delivers all delayed deletes, in steps of `slice` deletes. Each step is one batch. */
  *flush(slice: number): Generator<void, void, void> {
    let names: string[] = [];
    for (const name of this.#timers.keys()) {
      names.push(name);
      if (names.length < slice) continue;
      this.#deliver(names);
      names = [];
      yield;
    }
    this.#deliver(names);
  }

  /** Delivers delayed deletes as one batch. */
  #deliver(names: readonly string[]): void {
    if (names.length === 0) return;
    this.batch(() => {
      for (const name of names) {
        this.#forget(name);
        this.#observer.onDelete(name);
      }
    });
  }

  /** Stops the delays until {@link resume}, which restarts them with their whole time. */
  pause(): void {
    for (const [name, timer] of this.#timers) {
      timer?.cancel();
      this.#timers.set(name, undefined);
    }
  }

  resume(): void {
    for (const [name, timer] of this.#timers) if (timer === undefined) this.#delay(name);
  }

  #delay(name: string): void {
    const timer = this.#clock.after(this.#delayMs, () => {
      this.#timers.delete(name);
      this.#observer.onDelete(name);
    });
    this.#timers.set(name, timer);
  }

  #forget(name: string): void {
    this.#timers.get(name)?.cancel();
    this.#timers.delete(name);
  }
}
