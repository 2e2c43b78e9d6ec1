import type { Rejection } from '../base/rejection.ts';
import { RejectionLog, type RejectionStatus } from '../base/rejection.ts';
import type { TurnGate } from '../base/turn-gate.ts';
import { RemoteIdentityCache } from '../identity/remote-identity-cache.ts';
import type { KvstoreBackend } from '../kvstore/backend.ts';
import { ClusterStores, type ResourceStatuses } from './cluster-stores.ts';
import type { MeshEngines } from './engines.ts';
import type { SyncProgress } from './sync-deadline.ts';

/** What an {@link OwnCluster} is made of. */
export interface OwnClusterOptions {
  readonly clusterName: string;
  readonly engines: Omit<MeshEngines, 'services'>;
  /** The cluster's kvstore. The caller closes it. */
  readonly backend: KvstoreBackend;
  /** See `ClusterMeshOptions`; the same one. */
  readonly gate?: TurnGate | undefined;
  readonly onReject?: ((rejection: Rejection) => void) | undefined;
}

/** The own cluster as data. */
export interface OwnClusterStatus {
  readonly name: string;
  readonly ready: boolean;
  readonly resources: ResourceStatuses;
  readonly rejections: RejectionStatus;
}

/**
 * Follows the own cluster's kvstore: nodes, identities and IPs of its other nodes, with source `kvstore` and
 * no owner. Its services come from Kubernetes and not from here.
 */
export class OwnCluster {
  /** The identities that this cluster has allocated. */
  readonly identities: RemoteIdentityCache = new RemoteIdentityCache();
  readonly #options: OwnClusterOptions;
  readonly #rejections: RejectionLog;
  readonly #stores: ClusterStores;
  readonly #stopped = new AbortController();
  #running: Promise<unknown> = Promise.resolve();
  #started = false;

  constructor(options: OwnClusterOptions) {
    this.#options = options;
    this.#rejections = new RejectionLog(options.onReject);
    const { ipcache, nodes, remoteNodeIdentities } = options.engines;
    this.#stores = new ClusterStores({
      cluster: options.clusterName,
      writer: { source: 'kvstore' },
      engines: { ipcache, nodes, remoteNodeIdentities },
      identities: this.identities,
      rejections: this.#rejections,
      gate: options.gate,
    });
  }

  /** Begins to follow. Once only. */
  start(): void {
    if (this.#started) return;
    this.#started = true;
    const { backend } = this.#options;
    const { signal } = this.#stopped;
    const request = { backend, layout: 'state', signal, endOnDivergence: false } as const;
    this.#running = Promise.all(
      this.#stores.resources.map((resource) => this.#stores.follow(resource, request)),
    );
  }

  /** Resolves once every resource has been complete. */
  synced(): Promise<void> {
    return this.#stores.synced();
  }

  /** How far the first sync has come. What its watches fail at they try again: it has no failures of its own. */
  progress(): SyncProgress {
    const { isSynced: synced, arrived } = this.#stores;
    return { name: this.#options.clusterName, synced, arrived, failures: 0 };
  }

  status(): OwnClusterStatus {
    return {
      name: this.#options.clusterName,
      ready: this.#stores.isSynced,
      resources: this.#stores.status(),
      rejections: this.#rejections.status(),
    };
  }

  /** Ends following; withdraws nothing (SEMANTICS 6). */
  async stop(): Promise<void> {
    this.#stopped.abort();
    await this.#running;
  }
}
