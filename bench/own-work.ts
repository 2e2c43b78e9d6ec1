import { type Delayed, delayDuring } from './loop-delay.ts';
import { threadMs } from './thread-clock.ts';

/** What the event loop was held up by, and what of that was work of its own thread, in milliseconds. */
export interface OwnWork extends Delayed {
  /** How much its thread worked between two looks at the loop, 99th percentile: a delay, however busy the machine is. */
  readonly heldP99: number;
  readonly heldMax: number;
}

/** {@link delayDuring}, with the CPU time that the thread had between two looks. */
export async function ownWorkDuring(work: () => Promise<void>): Promise<OwnWork> {
  const held: number[] = [];
  let last = threadMs();
  const look = setInterval(() => {
    const now = threadMs();
    held.push(now - last);
    last = now;
  }, 1);
  const delayed = await delayDuring(work);
  clearInterval(look);
  held.sort((a, b) => a - b);
  return { ...delayed, heldP99: held[Math.floor(held.length * 0.99)] ?? 0, heldMax: held.at(-1) ?? 0 };
}
