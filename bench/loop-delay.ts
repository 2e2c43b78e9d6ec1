import { monitorEventLoopDelay, performance } from 'node:perf_hooks';

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
const LOOK_MS = 5;

function pause(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, 20));
}

/** Runs `work` and measures the event loop during it. */
export async function delayDuring(work: () => Promise<void>): Promise<Delayed> {
  const looks = monitorEventLoopDelay({ resolution: LOOK_MS });
  looks.enable();
  await pause(); // the first check only reads the clock, so a stall before it would be missed
  const begun = performance.now();
  await work();
  const ms = performance.now() - begun;
  await pause(); // a stall is detected by the check after it
  looks.disable();
  const delay = (nanoseconds: number): number => Math.max(0, Math.round(nanoseconds / 1e6 - LOOK_MS));
  const [p50, p99, max] = [looks.percentile(50), looks.percentile(99), looks.max].map(delay);
  return { ms: Math.round(ms), delay: { p50: p50 ?? 0, p99: p99 ?? 0, max: max ?? 0 } };
}

/** Figures of a table row, and true if they are within the budget. */
export function delayCells({ ms, delay: { p50, p99, max } }: Delayed): readonly string[] {
  const isKept = p99 < DELAY_BUDGET.p99 && max < DELAY_BUDGET.max;
  return [`${ms} ms`, ...[p50, p99, max].map(String), isKept ? 'ok' : 'over'];
}
