import type { WatchLimits } from './watch-limits.ts';

// A page is to take so long: slow links then show progress, and what is read twice after a failure is little.
const TARGET_MS = 1000;
// How much larger or smaller the next page is at most.
const STEP = 4;

/**
 * How many keys the next page of a listing is to have. It begins small, because nothing is known of the link and the
 * values; grows while pages are quick, and shrinks when they are slow, fail, or are larger than the transport takes.
 * Pure: the caller measures.
 */
export class PageSize {
  #keys: number;
  /** Above this answers were too large. */
  #most: number;

  constructor({ firstPageKeys, pageKeys }: Pick<WatchLimits, 'firstPageKeys' | 'pageKeys'>) {
    this.#keys = Math.min(firstPageKeys, pageKeys);
    this.#most = pageKeys;
  }

  get keys(): number {
    return this.#keys;
  }

  /** A page of so many keys has arrived after `ms`. One that is not full, of a small range, may be small and quick. */
  arrived(keys: number, ms: number): void {
    const fitting = (keys * TARGET_MS) / Math.max(ms, 1);
    const least = keys < this.#keys && ms < TARGET_MS ? this.#keys : this.#keys / STEP;
    this.#set(Math.max(least, Math.min(this.#keys * STEP, fitting)));
  }

  /** A page has failed: perhaps it took too long. */
  failed(): void {
    this.#set(this.#keys / STEP);
  }

  /** An answer was too large. Returns whether a smaller page can be asked for. */
  tooLarge(): boolean {
    if (this.#keys === 1) return false;
    this.#most = Math.ceil(this.#keys / STEP);
    this.#set(this.#most);
    return true;
  }

  #set(keys: number): void {
    this.#keys = Math.max(1, Math.min(this.#most, Math.floor(keys)));
  }
}
