/** Upper bounds of the buckets in milliseconds, from one turn of the event loop to a delay that no caller tolerates. */
export const DELAY_BOUNDS_MS: readonly number[] = [1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 5_000, 30_000];

/** Distribution of many durations. */
export interface DelayStatus {
  /**
   * Number of durations per bucket: at most {@link DELAY_BOUNDS_MS} and above the previous bound. The last bucket has the longer
   * ones.
   */
  readonly counts: readonly number[];
  readonly sumMs: number;
}

/** Counts durations in buckets, in constant memory. */
export class DelayCounts {
  readonly #counts = new Array<number>(DELAY_BOUNDS_MS.length + 1).fill(0);
  #sumMs = 0;

  add(ms: number, times = 1): void {
    let at = 0;
    while (ms > (DELAY_BOUNDS_MS[at] ?? Number.POSITIVE_INFINITY)) at++;
    this.#counts[at] = (this.#counts[at] ?? 0) + times;
    this.#sumMs += ms * times;
  }

  status(): DelayStatus {
    return { counts: [...this.#counts], sumMs: this.#sumMs };
  }
}
