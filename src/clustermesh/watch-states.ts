import type { WatchState } from '../kvstore/session/backend.ts';

/** The watch states of a cluster's readers. They show whether its kvstore answers. No I/O. */
export class WatchStates {
  readonly #states = new Map<string, WatchState>();

  observe(reader: string, state: WatchState): void {
    if (state === 'ended' || state === 'diverged') this.#states.delete(reader);
    else this.#states.set(reader, state);
  }

  clear(): void {
    this.#states.clear();
  }

  get size(): number {
    return this.#states.size;
  }

  /** True if the kvstore answers all readers; undefined while all of them list, because they may be retrying. */
  get areUp(): boolean | undefined {
    if ([...this.#states.values()].every((state) => state === 'listing')) return undefined;
    return [...this.#states.keys()].every((reader) => this.isUp(reader));
  }

  /**
   * Returns true if the kvstore answers a reader. A reader that lists may be retrying, so it counts only if another
   * reader watches.
   */
  isUp(reader: string): boolean {
    const state = this.#states.get(reader);
    return state === 'watching' || (state === 'listing' && [...this.#states.values()].includes('watching'));
  }
}
