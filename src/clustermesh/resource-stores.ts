import type { Failure } from '../base/failure.ts';
import type { FaultListener } from '../base/guard.ts';
import type { RejectionLog } from '../base/rejection.ts';
import type { RemoteIdentityCache } from '../identity/remote-identity-cache.ts';
import type { WatchState } from '../kvstore/backend.ts';
import type { ClusterConfig } from '../kvstore/codec/cluster-config.ts';
import { type KeyLayout, type MeshResource, resourcePrefix } from '../kvstore/codec/keys.ts';
import type { WatchStore, WatchStoreRun, WatchStoreStatus } from '../kvstore/store/watch-store.ts';

/** What a cluster that is followed gives to its stores. */
export interface StoreHooks {
  readonly identities: RemoteIdentityCache;
  readonly rejections: RejectionLog;
  /** To be called after each batch of each resource. */
  readonly onApplied: () => void;
  /** Receives what the receiver of a key has thrown; the key counts as received. */
  readonly onFault: FaultListener;
}

/** Why following has ended: the signal has fired, or the kvstore is another one. */
export type FollowEnd = 'ended' | 'diverged';

/** What is followed of a cluster, where and until when. */
export interface FollowRequest
  extends Pick<WatchStoreRun, 'backend' | 'signal' | 'mayDelete' | 'keepUnlisted'> {
  readonly layout: KeyLayout;
  readonly onListed: (resource: MeshResource) => void;
  readonly onReading: OnReading;
}

/** Notified of the states of all that reads a cluster: its resources, its configuration, its canaries, its deletes. */
export type OnReading = (
  reading: MeshResource | 'config' | 'canaries' | 'deletes',
  state: WatchState,
  failure: Failure | undefined,
) => void;

/** How each resource that is followed is doing. */
export type ResourceStatuses = Readonly<Partial<Record<MeshResource, WatchStoreStatus>>>;

type AnyStore = Pick<
  WatchStore<unknown>,
  'run' | 'drain' | 'size' | 'rejected' | 'status' | 'synced' | 'isSynced'
>;

/**
 * The stores that follow one cluster's keys, one for each resource, wherever the content goes. They outlive connections:
 * a new run sweeps what is gone once its list is complete (I9).
 */
export abstract class ResourceStores {
  readonly #cluster: string;
  /** In the order in which they are followed. */
  protected readonly stores: Map<MeshResource, AnyStore> = new Map();

  /** @param cluster the cluster whose keys are followed */
  constructor(cluster: string) {
    this.#cluster = cluster;
  }

  /** The resources that are followed. */
  get resources(): readonly MeshResource[] {
    return [...this.stores.keys()];
  }

  /** Whether every resource has been complete once. */
  get isSynced(): boolean {
    return [...this.stores.values()].every((store) => store.isSynced);
  }

  /** Keys that the latest lists have shown and resources that have been complete: how far the first sync is. */
  get arrived(): number {
    let arrived = 0;
    for (const store of this.stores.values()) {
      arrived += store.size + store.rejected + (store.isSynced ? 1 : 0);
    }
    return arrived;
  }

  /** Resolves once every resource has been complete. */
  async synced(): Promise<void> {
    await Promise.all([...this.stores.values()].map((store) => store.synced));
  }

  /** Keys that are held of all resources. */
  get size(): number {
    let size = 0;
    for (const store of this.stores.values()) size += store.size;
    return size;
  }

  /** Keys that the present watches have shown: unlike those that are held, they are in the kvstore now. */
  get shown(): number {
    let shown = 0;
    for (const store of this.stores.values()) shown += store.status().watch?.keys ?? 0;
    return shown;
  }

  status(): ResourceStatuses {
    return Object.fromEntries([...this.stores].map(([resource, store]) => [resource, store.status()]));
  }

  /** What the handshake said of the cluster. Resolves, or the signal fires, before anything is followed. */
  abstract begin(config: ClusterConfig | undefined, signal: AbortSignal): void | Promise<void>;

  /** Withdraws the services that were read. They must not be followed any more. Ends as {@link withdraw}. */
  abstract withdrawServices(signal: AbortSignal): Promise<void>;

  /**
   * Withdraws everything that was read (I10). Nothing must be followed any more. Once the signal has fired the rest stays,
   * and it is to be called again; as it is when it rejects.
   */
  abstract withdraw(signal: AbortSignal): Promise<void>;

  /** Follows one resource until the signal fires, or the kvstore turns out to be another one. */
  follow(resource: MeshResource, request: FollowRequest): Promise<FollowEnd> {
    const { layout, onListed, onReading, ...run } = request;
    const store = this.stores.get(resource);
    if (store === undefined) return Promise.resolve('ended');
    return store.run({
      ...run,
      prefix: resourcePrefix(resource, this.#cluster, layout),
      endOnDivergence: true,
      onListed: () => onListed(resource),
      onState: (state, failure) => onReading(resource, state, failure),
    });
  }
}
