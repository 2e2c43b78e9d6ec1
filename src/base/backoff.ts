import type { Clock, Random } from './clock.ts';

/** Bounds of the delays after consecutive failures. A delay has a fixed and a random part. */
export interface Backoff {
  /** The fixed part. Default 0. */
  readonly minMs?: number | undefined;
  /** Upper bound of the random part after the first failure. */
  readonly baseMs: number;
  /** Upper bound of the random part. */
  readonly capMs: number;
}

/**
 * Returns the delay before the next attempt in milliseconds: min, plus a random part which is uniform in
 * [0, min(cap, base × 2^(failures − 1))]. `failures` is at least 1. The jitter is *full*, so that clients that failed
 * together do not retry together.
 */
export function backoffDelay(
  failures: number,
  { minMs = 0, baseMs, capMs }: Backoff,
  random: Random,
): number {
  return minMs + random() * Math.min(capMs, baseMs * 2 ** (failures - 1));
}

/** An outage is recent for one minute, because restarts of a server and most network faults are shorter. */
const RECENT_OUTAGE_MS = 60_000;

/**
 * Largest delay between two attempts during a recent outage, so that the end of the outage is noticed within two
 * seconds.
 */
export const RECENT_OUTAGE_CAP_MS = 1_500;

/** Returns true if an outage that began at `since` is recent, so that its end is expected soon. */
export function isRecentOutage(since: number, clock: Pick<Clock, 'now'>): boolean {
  return clock.now() - since < RECENT_OUTAGE_MS;
}
