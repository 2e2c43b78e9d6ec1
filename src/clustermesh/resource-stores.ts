import type { Failure } from '../base/failure.ts';
import type { FaultListener } from '../base/guard.ts';
import type { RejectionLog } from '../base/rejection.ts';
import { type Deferred, deferred } from '../base/sleep.ts';
import type { ClusterConfig } from '../kvstore/codec/cluster-config.ts';
import {
  type CopiedResource,
  isServiceResource,
  type KeyLayout,
  resourcePrefix,
  SERVICE_RESOURCES,
} from '../kvstore/codec/keys.ts';
import type { WatchState } from '../kvstore/session/backend.ts';
import type { WatchStore, WatchStoreRun, WatchStoreStatus } from '../kvstore/stores/watch-store.ts';
import type { IdentityCache } from '../model/identity-cache.ts';

/** The resources to withdraw after the service TTL. */
export const EXPIRING_RESOURCES: readonly CopiedResource[] = [...SERVICE_RESOURCES, 'serviceexports'];

/** Dependencies of the stores of a followed cluster. */
export interface StoreHooks {
  readonly identities: IdentityCache;
  readonly rejections: RejectionLog;
  /** Must be called after each batch of each resource. */
  readonly onApplied: () => void;
  /** Receives the errors of observers. The key whose observer failed counts as applied. */
  readonly onFault: FaultListener;
}

/**
 * Reason why following ended. `ended`: the signal fired, or the configuration changed. `diverged`: the kvstore was
 * replaced.
 */
export type FollowEnd = 'ended' | 'diverged';

export interface FollowRequest
  extends Pick<WatchStoreRun, 'backend' | 'signal' | 'mayDelete' | 'keepUnlisted'> {
  readonly layout: KeyLayout;
  /** Called when the resource is complete and keys that no longer exist were deleted. */
  readonly onListed: (resource: CopiedResource) => void;
  readonly onReaderState: OnReaderState;
}

/** Receives the state of each reader of a cluster: resources, configuration, canaries, and the proof of deletes. */
export type OnReaderState = (
  reader: CopiedResource | 'config' | 'canaries' | 'deletes',
  state: WatchState,
  failure: Failure | undefined,
) => void;

/** A key of a kvstore and its mod revision. */
export interface KeyVersion {
  readonly key: string;
  readonly revision: number;
}

/** Status of each followed resource. */
export type ResourceStatuses = Readonly<Partial<Record<CopiedResource, WatchStoreStatus>>>;

type AnyStore = Pick<
  WatchStore<unknown>,
  'run' | 'drain' | 'size' | 'rejected' | 'status' | 'synced' | 'isSynced' | 'revisionOf'
>;

/**
 * The stores of a cluster's keys, one per resource. Subclasses decide where the values go. Stores outlive connections:
 * when the list of a new run is complete, the run deletes keys that no longer exist (I9).
 */
export abstract class ResourceStores {
  readonly #cluster: string;
  /** Stores in the order of their start. */
  protected readonly stores: Map<CopiedResource, AnyStore> = new Map();

  /** The prefixes of the last runs. */
  readonly #prefixes = new Map<CopiedResource, string>();
  /** The resources not exported by the cluster, or read in another format. `configure` sets it. */
  protected skipped: ReadonlySet<CopiedResource> = new Set();
  /** Must be resolved if the services are in no readable format, so that nothing waits for them. */
  protected readonly servicesSkipped: Deferred = deferred();
  /** Must be resolved if the cluster exports no services by the multi-cluster services API. */
  protected readonly exportsSkipped: Deferred = deferred();

  constructor(cluster: string) {
    this.#cluster = cluster;
  }

  /** The followed resources. Skipped ones are not among them, because their canaries may never be written. */
  get resources(): readonly CopiedResource[] {
    return [...this.stores.keys()].filter((resource) => !this.skipped.has(resource));
  }

  /** True if every resource, except skipped ones, has been complete once; services in one of their formats. */
  get isSynced(): boolean {
    let areServicesRead = false;
    let areServicesSynced = false;
    for (const [resource, store] of this.stores) {
      if (isServiceResource(resource)) {
        areServicesRead ||= !this.skipped.has(resource);
        areServicesSynced ||= store.isSynced;
      } else if (!store.isSynced && !this.skipped.has(resource)) return false;
    }
    return areServicesSynced || !areServicesRead;
  }

  /**
   * Progress of the first sync: the number of received keys, rejected ones included, plus the number of complete
   * resources.
   */
  get progressCount(): number {
    let count = 0;
    for (const store of this.stores.values()) {
      count += store.size + store.rejected + (store.isSynced ? 1 : 0);
    }
    return count;
  }

  /** Resolves when every resource has been complete once. */
  async synced(): Promise<void> {
    const others = [...this.stores].filter(([resource]) => !isServiceResource(resource));
    const services = SERVICE_RESOURCES.flatMap((resource) => this.stores.get(resource)?.synced ?? []);
    await Promise.all(
      others.map(([resource, { synced }]) =>
        resource === 'serviceexports' ? Promise.race([synced, this.exportsSkipped.promise]) : synced,
      ),
    );
    if (services.length > 0) await Promise.race([...services, this.servicesSkipped.promise]);
  }

  /** Number of known keys of all resources, those of an unreachable kvstore included. */
  get size(): number {
    let size = 0;
    for (const store of this.stores.values()) size += store.size;
    return size;
  }

  /** Number of keys from the current watches. Unlike other known keys, these are in the kvstore now. */
  get watchedKeys(): number {
    let watchedKeys = 0;
    for (const store of this.stores.values()) watchedKeys += store.status().watch?.keys ?? 0;
    return watchedKeys;
  }

  /** Returns the status of each followed resource, and of a skipped one that still has keys. */
  status(): ResourceStatuses {
    const shown = [...this.stores].filter(([resource, { size }]) => !this.skipped.has(resource) || size > 0);
    return Object.fromEntries(shown.map(([resource, store]) => [resource, store.status()]));
  }

  /**
   * Returns the kvstore key of a name of a resource and the last read revision; `undefined` if the name is not
   * known. The revision may be of an earlier connection while the kvstore does not answer.
   */
  versionOf(resource: CopiedResource, name: string): KeyVersion | undefined {
    const revision = this.stores.get(resource)?.revisionOf(name);
    const prefix = this.#prefixes.get(resource);
    return revision === undefined || prefix === undefined ? undefined : { key: prefix + name, revision };
  }

  /** Applies the configuration from the handshake. Nothing is followed before it resolves or the signal fires. */
  abstract configure(config: ClusterConfig | undefined, signal: AbortSignal): void | Promise<void>;

  /** Withdraws all services. They must not be followed any more. Signal and errors as with {@link withdraw}. */
  abstract withdrawServices(signal: AbortSignal): Promise<void>;

  /**
   * Withdraws everything (I10). No resource may be followed any more. If the signal fires, or if it rejects, some state
   * remains and it must be called again.
   */
  abstract withdraw(signal: AbortSignal): Promise<void>;

  /** Reports the end of a withdrawal. Must be called if a withdrawal that rejected is not repeated. */
  endWithdrawal(): void {}

  /** Follows one resource until the signal fires or the kvstore turns out to be replaced. */
  follow(resource: CopiedResource, request: FollowRequest): Promise<FollowEnd> {
    const { layout, onListed, onReaderState, ...run } = request;
    const store = this.stores.get(resource);
    if (store === undefined) return Promise.resolve('ended');
    const prefix = resourcePrefix(resource, this.#cluster, layout);
    this.#prefixes.set(resource, prefix);
    return store.run({
      ...run,
      prefix,
      endOnDivergence: true,
      onListed: () => onListed(resource),
      onState: (state, failure) => onReaderState(resource, state, failure),
    });
  }
}
