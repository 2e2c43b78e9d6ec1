import type { Random } from './clock.ts';

/** Bounds of an exponential backoff. */
export interface Backoff {
  /** The largest delay after the first failure. */
  readonly baseMs: number;
  /** No delay is larger than this. */
  readonly capMs: number;
}

/**
 * How long to wait before the next try, in milliseconds: uniform in [0, min(cap, base × 2^(failures − 1))], with
 * `failures` ≥ 1. *Full* jitter, so that those who failed together do not come back together.
 */
export function backoffDelay(failures: number, { baseMs, capMs }: Backoff, random: Random): number {
  return random() * Math.min(capMs, baseMs * 2 ** (failures - 1));
}
