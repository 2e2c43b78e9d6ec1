import { isLeaving } from '../api/problems.ts';
import type { Clock, Timer } from '../base/clock.ts';
import type { Unsubscribe } from '../base/subscription.ts';
import { type ClusterCondition, problemText } from '../client/cluster-text.ts';
import type { ClusterSet } from '../clustermesh/cluster-set.ts';
import type { Logger } from '../process/log.ts';
import { clusterCondition } from './followed-clusters.ts';

const GRACE_MS = 1_000;
/** Time after which a cluster is logged if it is connected again, but incomplete. */
const INCOMPLETE_MS = 60_000;
/** The reason of an incomplete cluster without a problem. */
const INCOMPLETE = 'incomplete';

export interface ReportedClusters {
  /** Precedes the name in lines about problems. Default `cluster `. */
  readonly prefix?: string | undefined;
  /** Problems that end within this time are not logged. Default 1 s. */
  readonly graceMs?: number | undefined;
  readonly names: readonly string[];
  /** Returns the status of a cluster; undefined if it has left the mesh. */
  statusOf(name: string): ClusterCondition | undefined;
  /** Calls `callback` when a cluster joins or leaves the mesh, or its status changes. */
  onChange(callback: (name: string) => void): Unsubscribe;
}

/** Returns the remote clusters of a process, for a {@link ClusterReport} that starts before the first one is added. */
export function remoteClusters(clusters: Pick<ClusterSet, 'statusOf' | 'onChange'>): ReportedClusters {
  return {
    names: [],
    statusOf: (name) => {
      const status = clusters.statusOf(name);
      return status && clusterCondition(status);
    },
    onChange: (callback) => clusters.onChange(callback),
  };
}

/** Interval between the first two lines about a problem. It doubles with each line, up to {@link MAX_INTERVAL_MS}. */
const MIN_INTERVAL_MS = 10_000;
const MAX_INTERVAL_MS = 600_000;

interface ClusterProblem {
  /** Monotonic. */
  readonly since: number;
  /** The logged reasons. */
  readonly reported: Set<string>;
  /** Earliest time of the next line, monotonic. */
  reportAt: number;
  timer: Timer | undefined;
  /** True if the timer was set because the cluster is incomplete. */
  isTimerOfIncomplete: boolean;
}

/**
 * Logs when a cluster or API server becomes unreachable, or a cluster loses its configuration, when the reason changes,
 * when it is connected again but stays incomplete, and when it is complete again. Also logs which clusters join and
 * leave. The agent serves the known state all the time (SEMANTICS 6), so nothing else would show the problem. The end
 * of a problem has the same log level as its beginning, so that a filter by level shows both or none.
 */
export class ClusterReport {
  readonly #clusters: ReportedClusters;
  readonly #log: Logger;
  readonly #clock: Clock;
  readonly #known = new Set<string>();
  readonly #problems = new Map<string, ClusterProblem>();
  #unsubscribe: Unsubscribe | undefined;

  constructor(clusters: ReportedClusters, log: Logger, clock: Clock) {
    this.#clusters = clusters;
    this.#log = log;
    this.#clock = clock;
  }

  /** Starts with the current state. Current problems are not logged, because the initial sync has reported them. */
  start(): void {
    const since = this.#clock.now();
    for (const name of this.#clusters.names) {
      this.#known.add(name);
      const status = this.#clusters.statusOf(name);
      if (status?.ready === false) this.#problems.set(name, newProblem(since, reasonOf(status)));
    }
    this.#unsubscribe = this.#clusters.onChange((name) => this.#check(name));
  }

  stop(): void {
    this.#unsubscribe?.();
    for (const name of this.#problems.keys()) this.#forget(name);
  }

  #check(name: string): void {
    const cluster = this.#clusters.statusOf(name);
    if (cluster === undefined) {
      this.#forget(name);
      if (this.#known.delete(name)) this.#log.info(`cluster ${name} has left the mesh`);
      return;
    }
    if (!this.#known.has(name)) this.#log.info(`cluster ${name} has joined the mesh`);
    this.#known.add(name);
    const problem = this.#problems.get(name);
    if (isLeaving(cluster)) this.#forget(name);
    else if (problem === undefined) {
      if (isProblem(cluster)) this.#begin(name, cluster);
    } else if (cluster.ready || (problem.reported.size === 0 && !isProblem(cluster)))
      this.#end(name, problem, cluster);
    else this.#schedule(name, problem, cluster);
  }

  #begin(name: string, cluster: ClusterCondition): void {
    const problem = newProblem(this.#clock.now());
    this.#problems.set(name, problem);
    this.#schedule(name, problem, cluster);
  }

  /** Logs a new reason after the grace time, or after the interval since the previous line. */
  #schedule(name: string, problem: ClusterProblem, cluster: ClusterCondition): void {
    const reason = reasonOf(cluster);
    const isIncomplete = reason === INCOMPLETE;
    // A new failure does not restart the timer of another one: failures may alternate, and none would be logged.
    if (problem.timer !== undefined && problem.isTimerOfIncomplete === isIncomplete) return;
    problem.timer?.cancel();
    problem.timer = undefined;
    if (problem.reported.has(reason)) return;
    const graceMs = isIncomplete ? INCOMPLETE_MS : (this.#clusters.graceMs ?? GRACE_MS);
    const delay = Math.max(graceMs, problem.reportAt - this.#clock.now());
    problem.isTimerOfIncomplete = isIncomplete;
    problem.timer = this.#clock.after(delay, () => this.#report(name, problem));
  }

  #report(name: string, problem: ClusterProblem): void {
    problem.timer = undefined;
    const cluster = this.#clusters.statusOf(name);
    if (cluster === undefined) return;
    const reason = reasonOf(cluster);
    if (problem.reported.has(reason)) return;
    problem.reportAt =
      this.#clock.now() + Math.min(MAX_INTERVAL_MS, MIN_INTERVAL_MS * 2 ** problem.reported.size);
    problem.reported.add(reason);
    this.#log.warn(`${this.#label(name)}: ${problemText(cluster)}`);
  }

  #end(name: string, { since, reported }: ClusterProblem, { missing }: ClusterCondition): void {
    this.#forget(name);
    if (reported.size === 0) return;
    const time = `${Math.round((this.#clock.now() - since) / 1000)} s`;
    const text =
      missing.length === 0
        ? `connected and complete after ${time}`
        : `connected after ${time}, not complete: ${missing.join(', ')}`;
    this.#log.warn(`${this.#label(name)}: ${text}`);
  }

  #label(name: string): string {
    return `${this.#clusters.prefix ?? 'cluster '}${name}`;
  }

  #forget(name: string): void {
    this.#problems.get(name)?.timer?.cancel();
    this.#problems.delete(name);
  }
}

function isProblem({ connected, state }: ClusterCondition): boolean {
  return !connected || state === 'no-configuration' || state === 'failed';
}

/** Returns the last failure without the state of the cluster, which alternates while the cluster is retried. */
function reasonOf(cluster: ClusterCondition): string {
  return isProblem(cluster) ? (cluster.lastFailure ?? '') : INCOMPLETE;
}

function newProblem(since: number, ...reported: readonly string[]): ClusterProblem {
  return {
    since,
    reported: new Set(reported),
    reportAt: since,
    timer: undefined,
    isTimerOfIncomplete: false,
  };
}
