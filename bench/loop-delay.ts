import { monitorEventLoopDelay, performance } from 'node:perf_hooks';

/** How long the event loop was held up, in milliseconds. */
export interface LoopDelay {
  readonly p50: number;
  readonly p99: number;
  readonly max: number;
}

/** How long something took, and how long it held up the event loop meanwhile. */
export interface Delayed {
  readonly ms: number;
  readonly delay: LoopDelay;
}

/** What may be held up when something is taken away or taken stock of, in milliseconds. */
export const DELAY_BUDGET = { p99: 20, max: 50 } as const;

/** How often the event loop is looked at: a delay is what comes on top. */
const LOOK_MS = 5;

function pause(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, 20));
}

/** Does `work` and looks at the event loop meanwhile. */
export async function delayDuring(work: () => Promise<void>): Promise<Delayed> {
  const looks = monitorEventLoopDelay({ resolution: LOOK_MS });
  looks.enable();
  await pause(); // the first look only sets the clock: a stall before it would not be seen
  const begun = performance.now();
  await work();
  const ms = performance.now() - begun;
  await pause(); // a stall is seen by the look that comes after it
  looks.disable();
  const delay = (nanoseconds: number): number => Math.max(0, Math.round(nanoseconds / 1e6 - LOOK_MS));
  const [p50, p99, max] = [looks.percentile(50), looks.percentile(99), looks.max].map(delay);
  return { ms: Math.round(ms), delay: { p50: p50 ?? 0, p99: p99 ?? 0, max: max ?? 0 } };
}

/** Figures of a table row, and whether they keep within the budget. */
export function delayCells({ ms, delay: { p50, p99, max } }: Delayed): readonly string[] {
  const isKept = p99 < DELAY_BUDGET.p99 && max < DELAY_BUDGET.max;
  return [`${ms} ms`, ...[p50, p99, max].map(String), isKept ? 'ok' : 'over'];
}
