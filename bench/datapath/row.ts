import type { LoopDelay } from '../loop-delay.ts';

/** Cost of changing many items in the kernel, for this project and for another program. */
export interface DatapathRow {
  readonly operation: string;
  readonly items: number;
  readonly ms: number;
  /** CPU time of the thread, including that of the kernel. */
  readonly cpuMs: number;
  readonly delay: LoopDelay;
  readonly peer: string;
  readonly peerMs: number;
}

/** The delays of an event loop that is never blocked. */
export const STILL: LoopDelay = { p50: 0, p99: 0, max: 0 };
