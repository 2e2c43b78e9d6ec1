/** Delays are counted up to each of these, in milliseconds: from a turn of an event loop to what is too long to wait for. */
export const DELAY_BOUNDS_MS: readonly number[] = [1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 5_000, 30_000];

/** How long something took, of many times. */
export interface DelayStatus {
  /** How many were at most as long as each of {@link DELAY_BOUNDS_MS} and longer than the one before; then the longer ones. */
  readonly counts: readonly number[];
  readonly sumMs: number;
}

/** Counts delays: some words, however many there are. */
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
