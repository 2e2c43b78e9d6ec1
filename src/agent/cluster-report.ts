import type { ClusterDocument } from '../api/status-document.ts';
import type { Clock, Timer } from '../base/clock.ts';
import type { Unsubscribe } from '../base/subscription.ts';
import { troubleText } from './agent-status.ts';
import type { Logger } from './log.ts';

/** Trouble that is over so soon is not reported. */
const GRACE_MS = 1_000;

/** The clusters that are reported on. */
export interface ReportedClusters {
  readonly names: readonly string[];
  /** Undefined for one that has gone. */
  statusOf(name: string): ClusterDocument | undefined;
  /** Calls back when a cluster has come or gone, or its status has changed. */
  onChange(callback: (name: string) => void): Unsubscribe;
}

/** A cluster that is in trouble. */
interface Trouble {
  readonly since: number;
  /** Whether it has been reported. */
  reported: boolean;
  readonly timer: Timer | undefined;
}

/**
 * Logs when a cluster becomes unreachable, or loses its configuration, and when it is complete again, and which clusters
 * come and go. What is known stays meanwhile (SEMANTICS 6), so that nothing else would show it. The end of trouble has
 * the level of its beginning: a reader of the one has to find the other.
 */
export class ClusterReport {
  readonly #clusters: ReportedClusters;
  readonly #log: Logger;
  readonly #clock: Clock;
  readonly #known = new Set<string>();
  readonly #troubles = new Map<string, Trouble>();
  #unsubscribe: Unsubscribe | undefined;

  constructor(clusters: ReportedClusters, log: Logger, clock: Clock) {
    this.#clusters = clusters;
    this.#log = log;
    this.#clock = clock;
  }

  /** Begins with what stands now; what is not complete was reported with the first sync. */
  start(): void {
    const since = this.#clock.now();
    for (const name of this.#clusters.names) {
      this.#known.add(name);
      if (this.#clusters.statusOf(name)?.ready === false)
        this.#troubles.set(name, { since, reported: true, timer: undefined });
    }
    this.#unsubscribe = this.#clusters.onChange((name) => this.#look(name));
  }

  stop(): void {
    this.#unsubscribe?.();
    for (const name of this.#troubles.keys()) this.#forget(name);
  }

  #look(name: string): void {
    const cluster = this.#clusters.statusOf(name);
    if (cluster === undefined) {
      this.#forget(name);
      if (this.#known.delete(name)) this.#log.info(`cluster ${name} has left the mesh`);
      return;
    }
    if (!this.#known.has(name)) this.#log.info(`cluster ${name} has joined the mesh`);
    this.#known.add(name);
    const trouble = this.#troubles.get(name);
    if (trouble === undefined) {
      if (isTrouble(cluster)) this.#begin(name);
    } else if (cluster.ready || (!trouble.reported && !isTrouble(cluster))) this.#end(name, trouble);
  }

  #begin(name: string): void {
    const timer = this.#clock.after(GRACE_MS, () => this.#report(name));
    this.#troubles.set(name, { since: this.#clock.now(), reported: false, timer });
  }

  #report(name: string): void {
    const trouble = this.#troubles.get(name);
    const cluster = this.#clusters.statusOf(name);
    if (trouble === undefined || cluster === undefined) return;
    trouble.reported = true;
    this.#log.warn(`cluster ${name}: ${troubleText(cluster)}`);
  }

  #end(name: string, { since, reported }: Trouble): void {
    this.#forget(name);
    if (!reported) return;
    const seconds = Math.round((this.#clock.now() - since) / 1000);
    this.#log.warn(`cluster ${name}: connected, complete, after ${seconds} s`);
  }

  #forget(name: string): void {
    this.#troubles.get(name)?.timer?.cancel();
    this.#troubles.delete(name);
  }
}

function isTrouble({ connected, state }: ClusterDocument): boolean {
  return !connected || state === 'no-configuration' || state === 'failed';
}
