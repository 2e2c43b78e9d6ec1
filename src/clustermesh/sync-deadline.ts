import { type Check, NUMBER, objectWith, optional, SIGNAL } from '../base/arguments.ts';
import type { Clock, Timer } from '../base/clock.ts';
import type { Unsubscribe } from '../base/subscription.ts';
import { withRuntime } from '../base/system-clock.ts';

/** Progress of a cluster's first sync. */
export interface SyncProgress {
  readonly name: string;
  /** True if all resources have been complete once. */
  readonly synced: boolean;
  /** Time of the last progress, monotonic. Progress means more arrived items than ever before. */
  readonly progressAt: number;
  /** Number of failures since the cluster was last followed. */
  readonly failures: number;
  /** True if the kvstore has answered but has nothing to follow, so waiting longer would not help. */
  readonly settled: boolean;
}

/** Limits of the wait for a first sync. */
export interface SyncDeadline {
  /**
   * Maximum time without progress of a cluster before the wait for it ends. A fixed total time would be too short for
   * some meshes and too long for others.
   */
  readonly deadlineMs: number;
  /** Like `deadlineMs`, for a cluster with failures. Default: `deadlineMs`. */
  readonly failedDeadlineMs?: number | undefined;
  /** Number of failures of a cluster after which the wait for it ends. Default: no limit. */
  readonly failures?: number | undefined;
  /** Ends the wait. */
  readonly signal?: AbortSignal | undefined;
}

/** Checks that an argument is a {@link SyncDeadline}. */
export const SYNC_DEADLINE: Check = objectWith({
  deadlineMs: NUMBER,
  failedDeadlineMs: optional(NUMBER),
  failures: optional(NUMBER),
  signal: optional(SIGNAL),
});

/** The clusters of a wait. Clusters may be added and removed. */
export interface SyncingClusters {
  readonly names: readonly string[];
  /** Returns the progress of a cluster; undefined if it was removed. */
  progressOf(name: string): SyncProgress | undefined;
  /** Calls back when a cluster is added, is removed, fails or becomes complete. */
  onChange(callback: (name: string) => void): Unsubscribe;
}

/** Returns the monotonic time of the last progress of any of the clusters; 0 if there is none. */
export function lastProgressAt(clusters: Pick<SyncingClusters, 'names' | 'progressOf'> | undefined): number {
  if (clusters === undefined) return 0;
  return Math.max(0, ...clusters.names.map((name) => clusters.progressOf(name)?.progressAt ?? 0));
}

/**
 * If the timer fires this much too late, the process was suspended. The time without progress then counts from that
 * moment.
 */
const SUSPENDED_MS = 1_000;

/**
 * Waits for each cluster until it is synced or its deadline has passed. Clusters may be added and removed during the
 * wait. If a cluster makes progress after its deadline, it is awaited again as long as others are. Resolves to the
 * names of the clusters that are not synced. Never rejects; if the signal fires, it resolves as after the deadline.
 *
 * Costs one timer, and one check of a cluster per change.
 */
export function waitForClusters(
  clusters: SyncingClusters,
  deadline: SyncDeadline & { readonly clock?: Clock | undefined },
): Promise<readonly string[]> {
  return new Promise((resolve) => new SyncWait(clusters, withRuntime(deadline), resolve).start());
}

class SyncWait {
  readonly #clusters: SyncingClusters;
  readonly #deadline: SyncDeadline & { readonly clock: Clock };
  readonly #resolve: (missing: readonly string[]) => void;
  readonly #awaitedClusters = new Set<string>();
  /**
   * Earliest start of each cluster's deadline: the first check of the cluster, or the end of a suspension of the
   * process.
   */
  #startTimes = new Map<string, number>();
  #timer: { readonly at: number; readonly timer: Timer } | undefined;
  #unsubscribe: Unsubscribe | undefined;

  constructor(
    clusters: SyncingClusters,
    deadline: SyncDeadline & { readonly clock: Clock },
    resolve: (missing: readonly string[]) => void,
  ) {
    this.#clusters = clusters;
    this.#deadline = deadline;
    this.#resolve = resolve;
  }

  start(): void {
    const { signal } = this.#deadline;
    this.#unsubscribe = this.#clusters.onChange((name) => {
      this.#check(name);
      this.#proceed();
    });
    signal?.addEventListener('abort', this.#end, { once: true });
    if (signal?.aborted === true) this.#end();
    else this.#checkAll();
  }

  #checkAll(): void {
    for (const name of this.#clusters.names) this.#check(name);
    this.#proceed();
  }

  #check(name: string): void {
    const { clock, failures = Number.POSITIVE_INFINITY } = this.#deadline;
    const cluster = this.#clusters.progressOf(name);
    const now = clock.now();
    if (cluster !== undefined && !this.#startTimes.has(name)) this.#startTimes.set(name, now);
    const isAwaited =
      cluster !== undefined &&
      !cluster.synced &&
      !cluster.settled &&
      cluster.failures < failures &&
      now < this.#endOf(cluster);
    if (!isAwaited) {
      this.#awaitedClusters.delete(name);
      return;
    }
    this.#awaitedClusters.add(name);
    if (this.#timer !== undefined && this.#endOf(cluster) < this.#timer.at) this.#cancelTimer();
  }

  /** Returns the time until which a cluster is awaited if it makes no progress. */
  #endOf({ name, progressAt, failures }: SyncProgress): number {
    const { deadlineMs, failedDeadlineMs = deadlineMs } = this.#deadline;
    const start = Math.max(progressAt, this.#startTimes.get(name) ?? 0);
    return start + (failures > 0 ? failedDeadlineMs : deadlineMs);
  }

  #cancelTimer(): void {
    this.#timer?.timer.cancel();
    this.#timer = undefined;
  }

  /** Ends the wait if no cluster is awaited. Otherwise sets the timer to the earliest deadline, unless it is set. */
  #proceed(): void {
    if (this.#awaitedClusters.size === 0) {
      this.#end();
      return;
    }
    const { clock } = this.#deadline;
    if (this.#timer !== undefined) return;
    const awaited = [...this.#awaitedClusters].flatMap((name) => this.#clusters.progressOf(name) ?? []);
    const at = Math.min(...awaited.map((cluster) => this.#endOf(cluster)));
    this.#timer = { at, timer: clock.after(at - clock.now(), () => this.#onTimer(at)) };
  }

  #onTimer(at: number): void {
    this.#timer = undefined;
    const now = this.#deadline.clock.now();
    if (now - at > SUSPENDED_MS)
      this.#startTimes = new Map([...this.#startTimes.keys()].map((name) => [name, now]));
    this.#checkAll();
  }

  readonly #end = (): void => {
    this.#unsubscribe?.();
    this.#cancelTimer();
    this.#deadline.signal?.removeEventListener('abort', this.#end);
    const isMissing = (name: string): boolean => this.#clusters.progressOf(name)?.synced === false;
    this.#resolve(this.#clusters.names.filter(isMissing));
  };
}
