import type { WatchState } from '../session/backend.ts';

/**
 * Recognizes values that a restore of the kvstore from a backup brings back. After an interruption, a watch delivers
 * only differences. If such an event has a revision from before the interruption, its value was deleted or overwritten
 * at that time, so a restore has brought it back. The owner must pass each state and event of the watch.
 */
export class ReturnedValues {
  /** Latest revision of the events. */
  #latest = 0;
  /** The latest revision when the watch was last interrupted. */
  #latestBeforeInterruption = 0;

  recordState(state: WatchState): void {
    if (state !== 'watching') this.#latestBeforeInterruption = this.#latest;
  }

  /** Returns true if an event of this revision delivers a returned value. */
  recordEvent(modRevision: number): boolean {
    this.#latest = Math.max(this.#latest, modRevision);
    return modRevision <= this.#latestBeforeInterruption;
  }
}
