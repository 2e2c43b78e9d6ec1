import type { RejectionLog } from '../base/rejection.ts';
import type { TurnGate } from '../base/turn-gate.ts';
import { RESERVED_IDENTITIES } from '../identity/numeric-identity.ts';
import type { RemoteIdentityCache } from '../identity/remote-identity-cache.ts';
import type { Writer } from '../ipcache/types.ts';
import type { KvstoreBackend } from '../kvstore/backend.ts';
import { type KeyLayout, type MeshResource, resourcePrefix } from '../kvstore/codec/keys.ts';
import { WatchStore, type WatchStoreStatus } from '../kvstore/store/watch-store.ts';
import {
  type ClusterLimits,
  identityDecoder,
  ipDecoder,
  NO_LIMITS,
  nodeDecoder,
  serviceDecoder,
} from './decoders.ts';
import type { MeshEngines } from './engines.ts';
import type { GlobalServices } from './global-services.ts';
import { identityObserver, ipObserver, nodeObserver, serviceObserver } from './observers.ts';

/** What {@link ClusterStores} is made of. */
export interface ClusterStoresOptions {
  /** The cluster whose keys are followed. */
  readonly cluster: string;
  /** Who claims what is read: `{source: 'clustermesh', owner: cluster}`, or `{source: 'kvstore'}` for the own cluster. */
  readonly writer: Writer;
  readonly engines: MeshEngines;
  readonly identities: RemoteIdentityCache;
  /** Told of the services that the cluster shares. */
  readonly globalServices?: GlobalServices | undefined;
  readonly rejections: RejectionLog;
  /** See `WatchStoreOptions`. */
  readonly gate?: TurnGate | undefined;
}

/** What is followed of a cluster, where and until when. */
export interface FollowRequest {
  readonly backend: KvstoreBackend;
  readonly layout: KeyLayout;
  readonly signal: AbortSignal;
  /** See `WatchOptions`. */
  readonly endOnDivergence: boolean;
}

/** How each resource that is followed is doing. */
export type ResourceStatuses = Readonly<Partial<Record<MeshResource, WatchStoreStatus>>>;

type AnyStore = Pick<WatchStore<unknown>, 'run' | 'drain' | 'status' | 'synced' | 'isSynced'>;

/**
 * The stores that follow one cluster's keys into the engines, one for each resource. They outlive connections:
 * a new run sweeps what is gone once its list is complete (I9).
 */
export class ClusterStores {
  readonly #options: ClusterStoresOptions;
  readonly #stores = new Map<MeshResource, AnyStore>();
  #limits: ClusterLimits = NO_LIMITS;

  constructor(options: ClusterStoresOptions) {
    this.#options = options;
    const { cluster, writer, engines, identities, globalServices, rejections, gate } = options;
    const limits = (): ClusterLimits => this.#limits;
    const { ipcache, nodes, services } = engines;
    const add = <T>(resource: MeshResource, { decode, observer }: Parts<T>): void => {
      this.#stores.set(resource, new WatchStore<T>({ decode, observer, rejections, gate }));
    };
    // Nodes first: they say how to reach what the others name.
    if (nodes !== undefined) {
      const observer = nodeObserver(nodes, cluster, writer.source);
      add('nodes', { decode: nodeDecoder(cluster, limits), observer });
    }
    if (services !== undefined) {
      add('services', {
        decode: serviceDecoder(cluster, limits),
        observer: serviceObserver(services, cluster, globalServices),
      });
    }
    add('identities', { decode: identityDecoder(limits), observer: identityObserver(identities) });
    if (ipcache !== undefined) {
      const peerHost = RESERVED_IDENTITIES[engines.remoteNodeIdentities === false ? 'host' : 'remote-node'];
      add('ip', { decode: ipDecoder(limits), observer: ipObserver(ipcache, writer, peerHost) });
    }
  }

  /** The resources that are followed. */
  get resources(): readonly MeshResource[] {
    return [...this.#stores.keys()];
  }

  /** Whether every resource has been complete once. */
  get isSynced(): boolean {
    return [...this.#stores.values()].every((store) => store.isSynced);
  }

  /** Keys that the latest lists have shown and resources that have been complete: how far the first sync is. */
  get arrived(): number {
    let arrived = 0;
    for (const store of this.#stores.values()) {
      const { keys, refused, synced } = store.status();
      arrived += keys + refused + (synced ? 1 : 0);
    }
    return arrived;
  }

  /** Resolves once every resource has been complete. */
  async synced(): Promise<void> {
    await Promise.all([...this.#stores.values()].map((store) => store.synced));
  }

  status(): ResourceStatuses {
    return Object.fromEntries([...this.#stores].map(([resource, store]) => [resource, store.status()]));
  }

  /** What the handshake said of the cluster; heeded from the next key on. */
  setLimits(limits: ClusterLimits): void {
    this.#limits = limits;
  }

  /** Follows one resource until the signal fires, or the store turns out to be another one. */
  async follow(resource: MeshResource, request: FollowRequest): Promise<'ended' | 'diverged'> {
    const { backend, layout, signal, endOnDivergence } = request;
    const prefix = resourcePrefix(resource, this.#options.cluster, layout);
    const store = this.#stores.get(resource);
    return (await store?.run({ backend, prefix, signal, endOnDivergence })) ?? 'ended';
  }

  /** Takes the services back that were read. They must not be followed any more. */
  withdrawServices(): void {
    this.#stores.get('services')?.drain();
    this.#options.engines.services?.withdrawCluster(this.#options.cluster);
  }

  /**
   * Takes everything back that was read (I10): key by key, and then whatever the engines still hold of this
   * writer. Nothing must be followed any more.
   */
  withdraw(): void {
    const { cluster, writer, engines, identities } = this.#options;
    for (const store of this.#stores.values()) store.drain();
    engines.services?.withdrawCluster(cluster);
    engines.ipcache?.withdraw(writer);
    engines.nodes?.withdraw({ source: writer.source, cluster });
    identities.clear();
  }
}

type Parts<T> = Pick<ConstructorParameters<typeof WatchStore<T>>[0], 'decode' | 'observer'>;
