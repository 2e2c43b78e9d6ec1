import type { WatchLimits } from './watch-limits.ts';

// Target duration of a page: a slow link then shows progress, and a failure costs little.
const TARGET_MS = 1000;
// Maximum size of a page, as a multiple of the page before.
const MAX_GROWTH = 8;
// Minimum size of a page: the size of the page before, divided by this.
const MAX_SHRINK = 4;

/**
 * Number of keys of the next page of a listing. It starts small, because link and values are unknown. It grows if pages
 * are fast and shrinks if they are slow, fail, or exceed the limit of the transport. The caller measures.
 */
export class PageSize {
  #keys: number;
  /** Maximum page size, reduced after each answer that was too large. */
  #max: number;

  constructor({ firstPageKeys, pageKeys }: Pick<WatchLimits, 'firstPageKeys' | 'pageKeys'>) {
    this.#keys = Math.min(firstPageKeys, pageKeys);
    this.#max = pageKeys;
  }

  get keys(): number {
    return this.#keys;
  }

  /**
   * Records the number of keys of a page, and its duration. A fast page with fewer keys than requested does not reduce
   * the size, because its range was small.
   */
  recordPage(keys: number, durationMs: number): void {
    const fitting = (keys * TARGET_MS) / Math.max(durationMs, 1);
    const isIncompleteAndFast = keys < this.#keys && durationMs < TARGET_MS;
    const min = isIncompleteAndFast ? this.#keys : this.#keys / MAX_SHRINK;
    this.#set(Math.max(min, Math.min(this.#keys * MAX_GROWTH, fitting)));
  }

  /** Records a failed page, because it may have taken too long. */
  recordFailure(): void {
    this.#set(this.#keys / MAX_SHRINK);
  }

  /** Records an answer that was too large. Returns true if a smaller page is possible. */
  shrink(): boolean {
    if (this.#keys === 1) return false;
    this.#max = Math.ceil(this.#keys / MAX_SHRINK);
    this.#set(this.#max);
    return true;
  }

  #set(keys: number): void {
    this.#keys = Math.max(1, Math.min(this.#max, Math.floor(keys)));
  }
}
