import { isoTime } from '../base/system-clock.ts';
import { CHANGE_TYPES, type ChangeType } from './change-types.ts';

/** Length of an interval. 360 ended intervals, one hour, are kept. */
const INTERVAL_MS = 10_000;
const INTERVALS = 360;

/** Numbers of changes in the last hour. */
export interface RatesDocument {
  readonly intervalMs: number;
  /** Start of the first interval, ISO 8601. */
  readonly from: string;
  /** Changes in each ended interval by type, oldest first. At most 360; fewer if the agent started later. */
  readonly counts: Readonly<Record<ChangeType, readonly number[]>>;
}

/** Counts changes in intervals of 10 s over the last hour. Counting costs some 10 ns; memory does not grow. */
export class ChangeRates {
  readonly #firstInterval: number;
  /** Counts by interval and type: of the ended intervals and of the current one. */
  readonly #counts = new Uint32Array((INTERVALS + 1) * CHANGE_TYPES.length);
  #current: number;

  /** @param nowMs time of a monotonic clock, as in all methods */
  constructor(nowMs: number) {
    this.#firstInterval = Math.floor(nowMs / INTERVAL_MS);
    this.#current = this.#firstInterval;
  }

  /** Counts a change; `type` is an index of {@link CHANGE_TYPES}. */
  count(type: number, nowMs: number): void {
    this.#advance(nowMs);
    const at = this.#slotOf(this.#current) + type;
    this.#counts[at] = (this.#counts[at] ?? 0) + 1;
  }

  /** Returns the counts of the ended intervals. `wallMs`: the wall time of now. */
  document(nowMs: number, wallMs: number): RatesDocument {
    this.#advance(nowMs);
    const first = Math.max(this.#firstInterval, this.#current - INTERVALS);
    const counts: Record<ChangeType, number[]> = { ip: [], service: [], node: [] };
    for (let interval = first; interval < this.#current; interval++)
      for (const [index, type] of CHANGE_TYPES.entries())
        counts[type].push(this.#counts[this.#slotOf(interval) + index] ?? 0);
    const from = isoTime(wallMs - nowMs + first * INTERVAL_MS);
    return { intervalMs: INTERVAL_MS, from, counts };
  }

  /** Makes the interval of `nowMs` the current one. Clears the counts of the intervals since the previous one. */
  #advance(nowMs: number): void {
    const now = Math.floor(nowMs / INTERVAL_MS);
    // After more than an hour without a call, each slot is cleared once.
    for (let interval = Math.max(this.#current + 1, now - INTERVALS); interval <= now; interval++)
      this.#counts.fill(0, this.#slotOf(interval), this.#slotOf(interval) + CHANGE_TYPES.length);
    this.#current = Math.max(this.#current, now);
  }

  #slotOf(interval: number): number {
    return (interval % (INTERVALS + 1)) * CHANGE_TYPES.length;
  }
}
