import type { WatchState } from '../kvstore/session/backend.ts';

/** The watch states of a cluster's readers. Derives from them if the kvstore answers. Pure. */
export class WatchStates {
  readonly #states = new Map<string, WatchState>();

  /** Records the state of a reader. */
  observe(reading: string, state: WatchState): void {
    if (state === 'ended' || state === 'diverged') this.#states.delete(reading);
    else this.#states.set(reading, state);
  }

  /** Removes all readers. */
  clear(): void {
    this.#states.clear();
  }

  get size(): number {
    return this.#states.size;
  }

  /** True if the kvstore answers all readers. */
  get areUp(): boolean {
    return [...this.#states.keys()].every((reading) => this.isUp(reading));
  }

  /**
   * Returns true if the kvstore answers a reader. A reader that lists may be retrying, so it counts only if another reader
   * watches.
   */
  isUp(reading: string): boolean {
    const state = this.#states.get(reading);
    return state === 'watching' || (state === 'listing' && [...this.#states.values()].includes('watching'));
  }
}
