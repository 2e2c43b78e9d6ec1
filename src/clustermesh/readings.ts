import type { WatchState } from '../kvstore/backend.ts';

/** What is being read of a cluster, and whether its kvstore answers; pure. */
export class Readings {
  readonly #states = new Map<string, WatchState>();

  /** A watch, or whatever else reads, has entered a state. */
  observe(reading: string, state: WatchState): void {
    if (state === 'ended' || state === 'diverged') this.#states.delete(reading);
    else this.#states.set(reading, state);
  }

  /** Nothing is being read any more. */
  clear(): void {
    this.#states.clear();
  }

  get size(): number {
    return this.#states.size;
  }

  /** Whether everything that reads is answered. */
  get areUp(): boolean {
    return [...this.#states.keys()].every((reading) => this.isUp(reading));
  }

  /** Whether one of them is answered: one that lists is tried again and again, so another one has to be watching. */
  isUp(reading: string): boolean {
    const state = this.#states.get(reading);
    return state === 'watching' || (state === 'listing' && [...this.#states.values()].includes('watching'));
  }
}
