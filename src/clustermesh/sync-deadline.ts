import type { Clock } from '../base/clock.ts';
import { sleep } from '../base/sleep.ts';

/** How far the first sync of a cluster has come. */
export interface SyncProgress {
  readonly name: string;
  /** Whether everything of it has been complete. */
  readonly synced: boolean;
  /** Keys that were read and resources that were complete; what is lost with a connection may be left out. */
  readonly arrived: number;
  readonly failures: number;
}

/** How long a first sync is waited for. */
export interface SyncDeadline {
  /**
   * A cluster of which nothing more has arrived for so long is not waited for. A fixed time for all of it would be
   * too short for one mesh and too long for another.
   */
  readonly deadlineMs: number;
  /** Nor is one that has failed so often. Default: only the deadline counts. */
  readonly failures?: number | undefined;
  /** Ends the wait. */
  readonly signal?: AbortSignal | undefined;
}

/** How often the clusters are looked at, which is how exact the deadline is. */
const LOOK_MS = 20;

interface Seen {
  /** The most that has ever arrived: what is read again after a failure is no progress. */
  readonly most: number;
  readonly idleMs: number;
}

const NOTHING: Seen = { most: 0, idleMs: -LOOK_MS };

/**
 * Waits for the clusters that `look` shows, which may come and go meanwhile, each until it is synced or past the
 * deadline; one that goes on after all is waited for again while others are. Gives the names of those that are not
 * synced then, in the order of `look`. Never rejects; when the signal fires it ends as after the deadline.
 *
 * Time is counted in looks, so that neither a clock that is set nor a process that stood still is held against
 * a cluster.
 *
 * @param all settles when the clusters are synced: the wait is then over at once
 */
export async function waitForClusters(
  look: () => readonly SyncProgress[],
  all: Promise<unknown>,
  {
    clock,
    deadlineMs,
    failures = Number.POSITIVE_INFINITY,
    signal,
  }: SyncDeadline & { readonly clock: Clock },
): Promise<readonly string[]> {
  const woken = new AbortController();
  const wake = (): void => woken.abort();
  void all.then(wake, wake);
  const early = signal === undefined ? woken.signal : AbortSignal.any([signal, woken.signal]);
  let seen: ReadonlyMap<string, Seen> = new Map();
  for (;;) {
    const missing = look().filter(({ synced }) => !synced);
    seen = new Map(missing.map((cluster) => [cluster.name, after(seen.get(cluster.name), cluster)]));
    const isAwaited = (cluster: SyncProgress): boolean =>
      cluster.failures < failures && (seen.get(cluster.name)?.idleMs ?? 0) < deadlineMs;
    if (signal?.aborted === true || !missing.some(isAwaited)) return missing.map(({ name }) => name);
    await sleep(clock, LOOK_MS, woken.signal.aborted ? signal : early);
  }
}

function after({ most, idleMs }: Seen = NOTHING, { arrived }: SyncProgress): Seen {
  return arrived > most ? { most: arrived, idleMs: 0 } : { most, idleMs: idleMs + LOOK_MS };
}
