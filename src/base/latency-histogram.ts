/** Upper bounds of the buckets in milliseconds, from one turn of the event loop to a delay that no caller tolerates. */
export const LATENCY_BOUNDS_MS: readonly number[] = [
  1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 5_000, 30_000,
];

/** Distribution of many durations. */
export interface LatencyStatus {
  /**
   * Number of durations per bucket of {@link LATENCY_BOUNDS_MS}. Bucket i contains durations above bound i − 1 and at
   * most bound i, and the last bucket all longer durations.
   */
  readonly counts: readonly number[];
  readonly sumMs: number;
}

/**
 * Returns an upper bound of the quantile `share` (0 to 1) of all durations: one of {@link LATENCY_BOUNDS_MS}; null if
 * the quantile exceeds all bounds, `undefined` if there are no durations.
 */
export function quantileBound(statuses: readonly LatencyStatus[], share: number): number | null | undefined {
  const counts = [...LATENCY_BOUNDS_MS, undefined].map((_, at) =>
    statuses.reduce((sum, status) => sum + (status.counts[at] ?? 0), 0),
  );
  const total = counts.reduce((sum, count) => sum + count, 0);
  if (total === 0) return undefined;
  let within = 0;
  for (const [at, count] of counts.entries()) {
    within += count;
    if (within >= total * share) return LATENCY_BOUNDS_MS[at] ?? null;
  }
  return null;
}

/** Counts durations in buckets, in constant memory. */
export class LatencyHistogram {
  readonly #counts = new Array<number>(LATENCY_BOUNDS_MS.length + 1).fill(0);
  #sumMs = 0;

  /** Counts `times` durations of the same length. */
  add(durationMs: number, times = 1): void {
    let at = 0;
    while (durationMs > (LATENCY_BOUNDS_MS[at] ?? Number.POSITIVE_INFINITY)) at++;
    this.#counts[at] = (this.#counts[at] ?? 0) + times;
    this.#sumMs += durationMs * times;
  }

  status(): LatencyStatus {
    return { counts: [...this.#counts], sumMs: this.#sumMs };
  }
}
