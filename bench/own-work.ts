import { type Delayed, delayDuring } from './loop-delay.ts';
import { processMs, threadMs } from './thread-clock.ts';

/** What the event loop was held up by, and what of that was work of its own thread, in milliseconds. */
export interface OwnWork extends Delayed {
  /** How much its thread worked between two looks at the loop, 99th percentile: a delay, however busy the machine is. */
  readonly heldP99: number;
  readonly heldMax: number;
  /** CPU time of all threads of the process. */
  readonly cpuMs: number;
  /** Largest resident memory of the process, in bytes. */
  readonly peakBytes: number;
}

/** Interval of looks at the memory: 5 µs each. */
const MEMORY_MS = 20;

/** {@link delayDuring}, with the CPU time that the thread had between two looks, and the memory of the process. */
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
