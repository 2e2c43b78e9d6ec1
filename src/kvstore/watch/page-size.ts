import type { WatchLimits } from './watch-limits.ts';

// Target duration of a page: a slow link then shows progress, and a failure costs little.
const TARGET_MS = 1000;
// Target number of bytes of the keys and values of a page: ten times those of `pageKeys` IPs. The transport copies each
// message in one turn, which takes 48 ms for 64 MiB, and a listing has two pages in memory. With 4 MiB, a listing of
// large values needs 12 % more CPU.
const TARGET_BYTES = 16 << 20;
// Maximum size of a page, as a multiple of the page before.
const MAX_GROWTH = 8;
// Minimum size of a page: the size of the page before, divided by this.
const MAX_SHRINK = 4;

/**
 * Number of keys of the next page of a listing. It starts small, because link and values are unknown. It grows if pages
 * are fast and small, and shrinks if they are slow, large, fail, or exceed the limit of the transport. The caller
 * measures.
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
   * Records the number of keys of a page, its bytes and its duration. A page that is below both targets and has fewer
   * keys than requested does not reduce the size, because its range was small.
   */
  recordPage(keys: number, bytes: number, durationMs: number): void {
    // 1 if the page reaches one of the targets.
    const load = Math.max(bytes / TARGET_BYTES, Math.max(durationMs, 1) / TARGET_MS);
    const isIncompleteAndLight = keys < this.#keys && load < 1;
    const min = isIncompleteAndLight ? this.#keys : this.#keys / MAX_SHRINK;
    this.#set(Math.max(min, Math.min(this.#keys * MAX_GROWTH, keys / load)));
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
