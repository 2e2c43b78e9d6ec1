import { type IntervalHistogram, monitorEventLoopDelay, performance } from 'node:perf_hooks';

/** Event-loop delay, in milliseconds. */
export interface LoopDelay {
  readonly p50: number;
  readonly p99: number;
  readonly max: number;
}

/** A duration, and the event-loop delay during it. */
export interface Delayed {
  readonly ms: number;
  readonly delay: LoopDelay;
}

/** Budget of the delay for withdrawals and snapshots, in milliseconds. */
export const DELAY_BUDGET = { p99: 20, max: 50 } as const;

/** Interval of the checks of the event loop. A delay is the time between two checks beyond this interval. */
export const CHECK_MS = 5;

/** Returns the delays in a histogram with a resolution of {@link CHECK_MS}. */
export function delayOf(histogram: IntervalHistogram): LoopDelay {
  const ms = (nanoseconds: number): number => Math.max(0, Math.round(nanoseconds / 1e6 - CHECK_MS));
  return { p50: ms(histogram.percentile(50)), p99: ms(histogram.percentile(99)), max: ms(histogram.max) };
}

function pause(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, 20));
}

/** Runs `work` and measures the event loop during it. */
export async function delayDuring(work: () => Promise<void>): Promise<Delayed> {
  const histogram = monitorEventLoopDelay({ resolution: CHECK_MS });
  histogram.enable();
  await pause(); // the first check only reads the clock, so a stall before it would be missed
  const begun = performance.now();
  await work();
  const ms = performance.now() - begun;
  await pause(); // a stall is detected by the check after it
  histogram.disable();
  return { ms: Math.round(ms), delay: delayOf(histogram) };
}

/** Figures of a table row, and true if they are within the budget. */
export function delayCells({ ms, delay: { p50, p99, max } }: Delayed): readonly string[] {
  const isKept = p99 < DELAY_BUDGET.p99 && max < DELAY_BUDGET.max;
  return [`${ms} ms`, ...[p50, p99, max].map(String), isKept ? 'ok' : 'over'];
}
