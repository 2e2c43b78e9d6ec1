import type { Clock, Timer } from '../base/clock.ts';
import type { Unsubscribe } from '../base/subscription.ts';

/** How far the first sync of a cluster has come. */
export interface SyncProgress {
  readonly name: string;
  /** Whether everything of it has been complete. */
  readonly synced: boolean;
  /** When more of it than ever before had arrived, on the clock's monotonic time. */
  readonly progressAt: number;
  readonly failures: number;
  /** Its kvstore has answered, and has nothing that could be followed: more time would not help. */
  readonly settled: boolean;
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

/** The clusters that are waited for; they may come and go. */
export interface SyncingClusters {
  readonly names: readonly string[];
  /** Undefined for one that has gone. */
  progressOf(name: string): SyncProgress | undefined;
  /** Calls back when a cluster has come, gone, failed or become complete. */
  onChange(callback: (name: string) => void): Unsubscribe;
}

/** A deadline that is noticed so much later than it was is not held against the clusters: the process stood still. */
const STALL_MS = 1_000;

/**
 * Waits for clusters, which may come and go meanwhile, each until it is synced or past the deadline; one that goes on
 * after all is waited for again while others are. Resolves to the names of those that are not synced then. Never
 * rejects; when the signal fires it ends as after the deadline.
 *
 * Costs one timer, and a look at a cluster when it changes.
 */
export function waitForClusters(
  clusters: SyncingClusters,
  deadline: SyncDeadline & { readonly clock: Clock },
): Promise<readonly string[]> {
  return new Promise((resolve) => new SyncWait(clusters, deadline, resolve).begin());
}

class SyncWait {
  readonly #clusters: SyncingClusters;
  readonly #deadline: SyncDeadline & { readonly clock: Clock };
  readonly #resolve: (missing: readonly string[]) => void;
  /** Clusters that are waited for. */
  readonly #awaited = new Set<string>();
  /** From when a cluster's time counts: when the wait saw it first, or after the process stood still. */
  #since = new Map<string, number>();
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

  begin(): void {
    const { signal } = this.#deadline;
    this.#unsubscribe = this.#clusters.onChange((name) => {
      this.#look(name);
      this.#proceed();
    });
    signal?.addEventListener('abort', this.#end, { once: true });
    if (signal?.aborted === true) this.#end();
    else this.#lookAtAll();
  }

  #lookAtAll(): void {
    for (const name of this.#clusters.names) this.#look(name);
    this.#proceed();
  }

  #look(name: string): void {
    const { clock, deadlineMs, failures = Number.POSITIVE_INFINITY } = this.#deadline;
    const cluster = this.#clusters.progressOf(name);
    const now = clock.now();
    if (cluster !== undefined && !this.#since.has(name)) this.#since.set(name, now);
    const isAwaited =
      cluster !== undefined &&
      !cluster.synced &&
      !cluster.settled &&
      cluster.failures < failures &&
      now < this.#startOf(cluster) + deadlineMs;
    if (isAwaited) this.#awaited.add(name);
    else this.#awaited.delete(name);
  }

  #startOf({ name, progressAt }: SyncProgress): number {
    return Math.max(progressAt, this.#since.get(name) ?? 0);
  }

  /** Ends, or sets the one timer for the cluster that is next to stand still for too long. */
  #proceed(): void {
    if (this.#awaited.size === 0) {
      this.#end();
      return;
    }
    const { clock, deadlineMs } = this.#deadline;
    if (this.#timer !== undefined) return;
    const starts = [...this.#awaited].flatMap((name) => this.#clusters.progressOf(name) ?? []);
    const at = Math.min(...starts.map((cluster) => this.#startOf(cluster))) + deadlineMs;
    this.#timer = { at, timer: clock.after(at - clock.now(), () => this.#due(at)) };
  }

  #due(at: number): void {
    this.#timer = undefined;
    const now = this.#deadline.clock.now();
    if (now - at > STALL_MS) this.#since = new Map([...this.#since.keys()].map((name) => [name, now]));
    this.#lookAtAll();
  }

  readonly #end = (): void => {
    this.#unsubscribe?.();
    this.#timer?.timer.cancel();
    this.#deadline.signal?.removeEventListener('abort', this.#end);
    const isMissing = (name: string): boolean => this.#clusters.progressOf(name)?.synced === false;
    this.#resolve(this.#clusters.names.filter(isMissing));
  };
}
