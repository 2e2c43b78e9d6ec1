import { checkArguments, FUNCTION, requireAllowed, TEXT } from '../base/arguments.ts';
import type { Clock } from '../base/clock.ts';
import { CallbackSet } from '../base/listener-set.ts';
import type { Unsubscribe } from '../base/subscription.ts';
import { type RuntimeOptions, systemClock } from '../base/system-clock.ts';
import type { OnClusterChange, RemoteClusterStatus } from './cluster-status.ts';
import type { ConnectKvstore, FollowedCluster } from './followed-cluster.ts';
import { RetryPacer } from './retry-pacer.ts';
import {
  SYNC_DEADLINE,
  type SyncDeadline,
  type SyncMembers,
  type SyncProgress,
  waitForSync,
} from './sync-deadline.ts';

/**
 * Outcome of adding a cluster to the mesh. `added`: a new cluster. `reconnected`: a known cluster has the new
 * connection. All other outcomes change nothing; `stopped`: the set was stopped while the call waited for earlier
 * operations on the cluster.
 */
export type AddClusterOutcome = 'added' | 'reconnected' | 'local-cluster' | 'invalid-name' | 'stopped';

/** Options of {@link ClusterSet}. */
export interface ClusterSetOptions extends Pick<RuntimeOptions, 'clock'> {
  /** Name of the local cluster, which is never followed as a remote one. */
  readonly clusterName: string;
}

/** Returns true if a remote cluster may have this name, which is a part of kvstore keys. */
export function isRemoteClusterName(name: string): boolean {
  return /^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$/.test(name);
}

/** The set of followed remote clusters. Operations on a cluster run one after the other. */
export abstract class ClusterSet implements SyncMembers, AsyncDisposable {
  readonly #clusterName: string;
  readonly #clock: Clock;
  readonly #clusters = new Map<string, FollowedCluster>();
  /** The last operation on each cluster, until it has ended. Never rejects. */
  readonly #operations = new Map<string, Promise<void>>();
  readonly #listeners = new CallbackSet<string>();
  /** @internal Paces the retries of unreachable clusters. */
  protected readonly retries: RetryPacer;
  #stopped = false;

  constructor({ clusterName, clock = systemClock }: ClusterSetOptions) {
    this.#clusterName = clusterName;
    this.#clock = clock;
    this.retries = new RetryPacer(clock);
  }

  /** @internal Returns a new cluster without a connection. It must report its changes to {@link ClusterSet.notify}. */
  protected abstract newCluster(name: string): FollowedCluster;

  /** Names of all clusters, ascending. */
  get names(): readonly string[] {
    return [...this.#clusters.keys()].sort();
  }

  /** @internal All clusters by name, unordered. */
  protected get clusters(): ReadonlyMap<string, FollowedCluster> {
    return this.#clusters;
  }

  /**
   * Follows the cluster `name` with the client of `connect`. If the cluster is known, it changes to the new client, and
   * keeps each entry until a complete list of the new client lacks it. Resolves when the previous attempt has ended;
   * does not wait for the connection.
   */
  add(name: string, connect: ConnectKvstore): Promise<AddClusterOutcome> {
    requireAllowed(!this.#stopped, 'add must not be called after stop');
    const fault = this.check(name);
    if (fault !== undefined) return Promise.resolve(fault);
    return this.#runInOrder(name, async () => {
      if (this.#stopped) return 'stopped';
      const known = this.#clusters.get(name);
      const cluster = known ?? this.newCluster(name);
      this.#clusters.set(name, cluster);
      const connecting = cluster.connect(connect);
      this.notify(name);
      await connecting;
      return known === undefined ? 'added' : 'reconnected';
    });
  }

  /** Returns the reason why this name cannot be added; `undefined` if it can. */
  check(name: string): 'local-cluster' | 'invalid-name' | undefined {
    if (name === this.#clusterName) return 'local-cluster';
    return isRemoteClusterName(name) ? undefined : 'invalid-name';
  }

  /** Removes a cluster and withdraws all its state (I10). Resolves to false if the cluster is unknown. */
  remove(name: string): Promise<boolean> {
    return this.#runInOrder(name, async () => {
      const cluster = this.#clusters.get(name);
      if (cluster === undefined) return false;
      await cluster.remove();
      this.#clusters.delete(name);
      this.notify(name);
      return true;
    });
  }

  /** Resolves when every current cluster has been complete once. */
  async synced(): Promise<void> {
    await Promise.all([...this.#clusters.values()].map((cluster) => cluster.synced()));
  }

  /**
   * Waits until every cluster has been complete once or has made no progress for the deadline. Includes clusters that
   * are added during the wait. Resolves to the names of the incomplete clusters, ascending; empty if all are complete.
   * Never rejects; if the signal fires, it resolves to the clusters incomplete by then.
   */
  clustersSynced(deadline: SyncDeadline): Promise<readonly string[]> {
    return waitForSync(this, { ...deadline, clock: this.#clock });
  }

  /** Returns the progress of a cluster's first sync; `undefined` if the cluster is unknown. */
  progressOf(name: string): SyncProgress | undefined {
    return this.#clusters.get(name)?.progress();
  }

  /** Returns the status of a cluster; `undefined` if it is unknown. */
  statusOf(name: string): RemoteClusterStatus | undefined {
    return this.#clusters.get(name)?.status();
  }

  /** @internal Returns the status of each cluster, by name, ascending. */
  protected statuses(): readonly RemoteClusterStatus[] {
    return this.names.flatMap((name) => this.#clusters.get(name)?.status() ?? []);
  }

  /**
   * Calls back when a cluster is added or removed, and when its state, `connected`, its failures or their reason
   * changes.
   */
  onChange(callback: OnClusterChange): Unsubscribe {
    return this.#listeners.subscribe(callback);
  }

  /** @internal Notifies the callbacks of a change of a cluster. */
  protected notify(name: string): void {
    this.#listeners.call(name);
  }

  /** Stops following all clusters. Withdraws nothing (SEMANTICS 6). */
  async stop(): Promise<void> {
    this.#stopped = true;
    await Promise.all(this.#operations.values());
    await Promise.all([...this.#clusters.values()].map((cluster) => cluster.stop()));
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  /**
   * Runs the operations of a cluster one after the other, because a cluster that is added during its removal must not
   * be affected by the withdrawal. Clusters do not wait for each other.
   */
  #runInOrder<T>(name: string, work: () => Promise<T>): Promise<T> {
    const turn = (this.#operations.get(name) ?? Promise.resolve()).then(work);
    const settled = turn.then(
      () => {},
      () => {},
    );
    this.#operations.set(name, settled);
    void settled.then(() => {
      if (this.#operations.get(name) === settled) this.#operations.delete(name);
    });
    return turn;
  }
}

checkArguments(ClusterSet, {
  add: { name: TEXT, connect: FUNCTION },
  remove: { name: TEXT },
  clustersSynced: { deadline: SYNC_DEADLINE },
  onChange: { callback: FUNCTION },
});
