import type { Clock } from '../base/clock.ts';
import { sleep } from '../base/sleep.ts';

/** How often progress is looked at. */
const PROGRESS_MS = 20;

/** What is being waited for. */
export interface Syncing {
  /** Settles once everything has been complete. */
  readonly synced: Promise<unknown>;
  /** Grows with everything that arrives. */
  readonly progress: () => number;
  /** Whether waiting any longer is in vain, because what is missing has failed. */
  readonly hopeless: () => boolean;
}

/**
 * Waits for a first sync for as long as there is progress: not for a fixed time, which would be too short for
 * one mesh and too long for another. Ends when all is synced, hopeless, without progress for `patienceMs`, or
 * when the signal fires.
 */
export async function waitForSync(
  { synced, progress, hopeless }: Syncing,
  { clock, patienceMs, signal }: { clock: Clock; patienceMs: number; signal: AbortSignal },
): Promise<void> {
  const over = new AbortController();
  const ended = synced.then(() => over.abort());
  const either = AbortSignal.any([signal, over.signal]);
  let seen = progress();
  let since = clock.now();
  while (!either.aborted && !hopeless()) {
    await sleep(clock, PROGRESS_MS, either);
    const now = progress();
    if (now !== seen) {
      seen = now;
      since = clock.now();
    } else if (clock.now() - since >= patienceMs) break;
  }
  if (over.signal.aborted) await ended;
}
