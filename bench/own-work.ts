import { type Delayed, delayDuring } from './loop-delay.ts';
import { processMs, threadMs } from './thread-clock.ts';

/** Delays of the event loop, and the CPU time of its thread in them, in milliseconds. */
export interface OwnWork extends Delayed {
  /** CPU time of the thread between two checks of the loop, 99th percentile: independent of other processes. */
  readonly heldP99: number;
  readonly heldMax: number;
  /** CPU time of all threads of the process. */
  readonly cpuMs: number;
  /** Largest resident memory of the process, in bytes. */
  readonly peakBytes: number;
}

/** Interval of the reads of the memory, which take 5 µs each. */
const MEMORY_MS = 20;

/** Like {@link delayDuring}, with the CPU time of the thread between two checks, and the memory of the process. */
export async function ownWorkDuring(work: () => Promise<void>): Promise<OwnWork> {
  const held: number[] = [];
  let last = threadMs();
  const look = setInterval(() => {
    const now = threadMs();
    held.push(now - last);
    last = now;
  }, 1);
  let peakBytes = process.memoryUsage.rss();
  const measure = setInterval(() => {
    peakBytes = Math.max(peakBytes, process.memoryUsage.rss());
  }, MEMORY_MS);
  const begun = processMs();
  const delayed = await delayDuring(work);
  const cpuMs = processMs() - begun;
  for (const timer of [look, measure]) clearInterval(timer);
  held.sort((a, b) => a - b);
  const [heldP99 = 0, heldMax = 0] = [held[Math.floor(held.length * 0.99)], held.at(-1)];
  return { ...delayed, heldP99, heldMax, cpuMs, peakBytes };
}
