import { checkArguments, FUNCTION, NUMBER, objectWith, optional, SIGNAL } from '../base/arguments.ts';
import type { Clock, Random } from '../base/clock.ts';
import type { Unsubscribe } from '../base/subscription.ts';
import { systemClock } from '../base/system-clock.ts';
import type { RemoteIdentityCache } from '../identity/remote-identity-cache.ts';
import type { KvstoreBackend } from '../kvstore/backend.ts';
import { ClusterChanges, type OnClusterChange } from './cluster-changes.ts';
import { NEW_CLUSTER } from './cluster-state.ts';
import type { RemoteClusterStatus } from './cluster-status.ts';
import { ClusterStores } from './cluster-stores.ts';
import { NO_LIMITS } from './decoders.ts';
import type { MeshEngines } from './engines.ts';
import { FollowedCluster, type FollowingOptions } from './followed-cluster.ts';
import {
  type SyncDeadline,
  type SyncingClusters,
  type SyncProgress,
  waitForClusters,
} from './sync-deadline.ts';

/** Options of {@link OwnCluster}. */
export interface OwnClusterOptions extends FollowingOptions {
  readonly clusterName: string;
  readonly engines: Omit<MeshEngines, 'services'>;
  /** The cluster's kvstore. The caller closes it. */
  readonly backend: KvstoreBackend;
  /** Default: the system's. */
  readonly clock?: Clock | undefined;
  /** Default: `Math.random`. */
  readonly random?: Random | undefined;
  /**
   * Keep what is known while the kvstore has lost the cluster's configuration, or was replaced and has not been filled
   * again, as with remote clusters. Default true; false: the kvstore is believed, and an empty one takes everything away.
   */
  readonly failStatic?: boolean | undefined;
  /**
   * Without a configuration nothing says that a replaced kvstore is filled again; it is believed after this time, unless
   * it is empty. Default 15 min, the life of a lease: every client that is alive has put its keys again by then.
   */
  readonly refillMs?: number | undefined;
}

/** The own cluster as data. */
export type OwnClusterStatus = Omit<RemoteClusterStatus, 'servicesExpired'>;

/**
 * Follows the own cluster's kvstore: nodes, identities and IPs of its other nodes, with source `kvstore` and
 * no owner. Its services come from Kubernetes and not from here.
 */
export class OwnCluster implements SyncingClusters {
  readonly #options: OwnClusterOptions;
  readonly #cluster: FollowedCluster;
  readonly #changes = new ClusterChanges();
  #started = false;

  constructor(options: OwnClusterOptions) {
    const { clusterName: name, engines, clock = systemClock, random = Math.random } = options;
    const { failStatic = true, refillMs, gate, valueLimits, onReject } = options;
    const { ipcache, nodes, remoteNodeIdentities } = engines;
    this.#options = options;
    this.#cluster = new FollowedCluster({
      ...{ name, clock, random, refillMs, gate, onReject },
      initial: { ...NEW_CLUSTER, own: true, failStatic },
      stores: (hooks) =>
        new ClusterStores({
          ...{ ...hooks, cluster: name, gate, valueLimits },
          writer: { source: 'kvstore' },
          engines: { ipcache, nodes, remoteNodeIdentities },
          limits: () => NO_LIMITS,
        }),
      objection: () => undefined,
      onChange: () => this.#changes.notify(name),
    });
  }

  /** The identities that this cluster has allocated. */
  get identities(): RemoteIdentityCache {
    return this.#cluster.identities;
  }

  /** The id that the cluster's configuration says; 0 while there is none. */
  get clusterID(): number {
    return this.#cluster.configuredID;
  }

  /** The name of the own cluster. */
  get names(): readonly string[] {
    return [this.#options.clusterName];
  }

  /** Begins to follow. Once only. */
  start(): void {
    if (this.#started) return;
    this.#started = true;
    void this.#cluster.connect(() => this.#options.backend);
  }

  /** Resolves once every resource has been complete. */
  synced(): Promise<void> {
    return this.#cluster.synced();
  }

  /** As `ClusterMesh.clustersSynced`, for this one. */
  syncedWithin(deadline: SyncDeadline): Promise<readonly string[]> {
    return waitForClusters(this, { clock: this.#options.clock ?? systemClock, ...deadline });
  }

  progressOf(_name: string): SyncProgress {
    return this.#cluster.progress();
  }

  /** Calls back when what `status` shows has changed: state, ready, connected, failures. */
  onChange(callback: OnClusterChange): Unsubscribe {
    return this.#changes.add(callback);
  }

  status(): OwnClusterStatus {
    const { servicesExpired: _, ...status } = this.#cluster.status();
    return status;
  }

  /** Ends following; withdraws nothing (SEMANTICS 6). */
  stop(): Promise<void> {
    return this.#cluster.stop();
  }
}

checkArguments(OwnCluster, {
  syncedWithin: { deadline: objectWith({ deadlineMs: NUMBER, signal: optional(SIGNAL) }) },
  onChange: { callback: FUNCTION },
});
