import type { LoopDelay } from '../loop-delay.ts';

/** What it took to change many items in the kernel, and what it took another program. */
export interface DatapathRow {
  readonly operation: string;
  readonly items: number;
  readonly ms: number;
  /** CPU of the thread that does it, the kernel's part included. */
  readonly cpuMs: number;
  readonly delay: LoopDelay;
  readonly peer: string;
  readonly peerMs: number;
}

/** Of what does not let the event loop turn. */
export const STILL: LoopDelay = { p50: 0, p99: 0, max: 0 };
