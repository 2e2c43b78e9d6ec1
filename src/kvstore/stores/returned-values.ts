import type { WatchState } from '../session/backend.ts';

/**
 * Recognizes values that a restore of the kvstore from a backup brings back: they are older than the last interruption
 * of the watch, and were deleted or overwritten before it. The owner must pass each state and event of the watch.
 */
export class ReturnedValues {
  /** Latest revision of the events. */
  #latest = 0;
  /** The latest revision when the watch was last interrupted. */
  #latestBefore = 0;

  recordState(state: WatchState): void {
    if (state !== 'watching') this.#latestBefore = this.#latest;
  }

  /** Returns true if an event of this revision delivers a returned value. */
  recordEvent(modRevision: number): boolean {
    this.#latest = Math.max(this.#latest, modRevision);
    return modRevision <= this.#latestBefore;
  }
}
