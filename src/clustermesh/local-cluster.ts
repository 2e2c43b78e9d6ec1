import {
  atLeast,
  BOOLEAN,
  checkArgument,
  checkArguments,
  FUNCTION,
  OBJECT,
  optional,
  optionsWith,
  TEXT,
} from '../base/arguments.ts';
import { CallbackSet } from '../base/listener-set.ts';
import type { Unsubscribe } from '../base/subscription.ts';
import { type Runtime, type RuntimeOptions, withRuntime } from '../base/system-clock.ts';
import type { CopiedResource } from '../kvstore/codec/keys.ts';
import type { KvstoreBackend } from '../kvstore/session/backend.ts';
import type { IdentityCache } from '../model/identity-cache.ts';
import { NEW_CLUSTER } from './cluster-state.ts';
import type { OnClusterChange, RemoteClusterStatus } from './cluster-status.ts';
import { ClusterStores } from './cluster-stores.ts';
import { NO_LIMITS } from './decoders.ts';
import { MESH_ENGINES, type MeshEngines } from './engines.ts';
import { FollowedCluster, type FollowingOptions } from './followed-cluster.ts';
import type { KeyVersion } from './resource-stores.ts';
import {
  SYNC_DEADLINE,
  type SyncDeadline,
  type SyncMembers,
  type SyncProgress,
  waitForSync,
} from './sync-deadline.ts';

/** Options of {@link LocalCluster}. */
export interface LocalClusterOptions
  extends RuntimeOptions,
    FollowingOptions,
    Omit<MeshEngines, 'services' | 'exports' | 'identities'> {
  /** Name of the cluster, which is part of its keys in the kvstore. */
  readonly clusterName: string;
  /** The cluster's kvstore. The caller closes it. */
  readonly backend: KvstoreBackend;
  /**
   * If true, the state is kept while the kvstore has lost the cluster's configuration, or was replaced and is not
   * refilled, as with remote clusters. If false, the kvstore is always trusted, so an empty one deletes everything.
   * Default true.
   */
  readonly failStatic?: boolean | undefined;
  /**
   * Time after which a replaced kvstore without a configuration is trusted if it is not empty. Default 15 min, the
   * lifetime of a lease: within it, every live client has written its keys again.
   */
  readonly refillMs?: number | undefined;
}

/** Status of the local cluster. */
export type LocalClusterStatus = Omit<RemoteClusterStatus, 'servicesExpired'>;

/**
 * Follows the kvstore of the local cluster: its nodes, identities and IPs, with source `kvstore` and no owner. Services
 * are not followed, because Kubernetes provides them.
 */
export class LocalCluster implements SyncMembers, AsyncDisposable {
  readonly #options: LocalClusterOptions & Runtime;
  readonly #cluster: FollowedCluster;
  readonly #listeners = new CallbackSet<string>();
  #started = false;

  constructor(options: LocalClusterOptions) {
    checkArgument('new LocalCluster: options', options, OPTIONS);
    this.#options = withRuntime(options);
    const { clusterName: name, clock, random } = this.#options;
    const { ipcache, nodes, onCause, onWithdrawal, tap, remoteNodeIdentities } = options;
    const { failStatic = true, refillMs, gate, valueLimits, onReject } = options;
    this.#cluster = new FollowedCluster({
      name,
      clock,
      random,
      refillMs,
      gate,
      onReject,
      initial: { ...NEW_CLUSTER, local: true, failStatic },
      stores: (hooks) =>
        new ClusterStores({
          ...hooks,
          cluster: name,
          gate,
          valueLimits,
          writer: { source: 'kvstore' },
          engines: { ipcache, nodes, onCause, onWithdrawal, tap, remoteNodeIdentities },
          limits: () => NO_LIMITS,
        }),
      objection: () => undefined,
      onChange: () => this.#listeners.call(name),
    });
  }

  get identities(): IdentityCache {
    return this.#cluster.identities;
  }

  /** The id in the cluster's configuration; 0 if there is none. */
  get clusterID(): number {
    return this.#cluster.configuredID;
  }

  /** The name of the local cluster, as a list. */
  get names(): readonly string[] {
    return [this.#options.clusterName];
  }

  /** Starts following. Further calls have no effect. */
  start(): void {
    if (this.#started) return;
    this.#started = true;
    void this.#cluster.connect(() => this.#options.backend);
  }

  /** Resolves when every resource has been complete once. */
  synced(): Promise<void> {
    return this.#cluster.synced();
  }

  /** Like `ClusterMesh.clustersSynced`, for the local cluster. */
  syncedWithin(deadline: SyncDeadline): Promise<readonly string[]> {
    return waitForSync(this, { clock: this.#options.clock, ...deadline });
  }

  progressOf(_name: string): SyncProgress {
    return this.#cluster.progress();
  }

  /** Calls back when the state, `connected`, the configured id, the failures or their reason changes. */
  onChange(callback: OnClusterChange): Unsubscribe {
    return this.#listeners.subscribe(callback);
  }

  /**
   * Returns the kvstore key and revision of the entry `name` of a resource, such as of a node; `undefined` if the
   * cluster does not have it.
   */
  versionOf(resource: CopiedResource, name: string): KeyVersion | undefined {
    return this.#cluster.versionOf(resource, name);
  }

  status(): LocalClusterStatus {
    const { servicesExpired: _, ...status } = this.#cluster.status();
    return status;
  }

  /** Stops following. Withdraws nothing (SEMANTICS 6). */
  stop(): Promise<void> {
    return this.#cluster.stop();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }
}

const OPTIONS = optionsWith({
  clusterName: TEXT,
  ...MESH_ENGINES,
  backend: OBJECT,
  failStatic: optional(BOOLEAN),
  refillMs: optional(atLeast(0)),
});

checkArguments(LocalCluster, {
  syncedWithin: { deadline: SYNC_DEADLINE },
  onChange: { callback: FUNCTION },
});
