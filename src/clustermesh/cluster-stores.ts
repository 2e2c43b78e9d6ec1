import type { Failure } from '../base/failure.ts';
import type { FaultListener } from '../base/guard.ts';
import type { RejectionLog } from '../base/rejection.ts';
import type { TurnGate } from '../base/turn-gate.ts';
import { RESERVED_IDENTITIES } from '../identity/numeric-identity.ts';
import type { RemoteIdentityCache } from '../identity/remote-identity-cache.ts';
import type { Writer } from '../ipcache/types.ts';
import type { WatchState } from '../kvstore/backend.ts';
import { type KeyLayout, type MeshResource, resourcePrefix } from '../kvstore/codec/keys.ts';

import { decodeInPieces, type ValueDecoder, type ValueLimits } from '../kvstore/codec/value.ts';
import {
  type StoreObserver,
  WatchStore,
  type WatchStoreRun,
  type WatchStoreStatus,
} from '../kvstore/store/watch-store.ts';
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

/** Options of {@link ClusterStores}. */
export interface ClusterStoresOptions {
  /** The cluster whose keys are followed. */
  readonly cluster: string;
  /** Who claims what is read: `{source: 'clustermesh', owner: cluster}`, or `{source: 'kvstore'}` for the own cluster. */
  readonly writer: Writer;
  readonly engines: MeshEngines;
  readonly identities: RemoteIdentityCache;
  /** Where the services that the cluster shares are listed. */
  readonly globalServices?: GlobalServices | undefined;
  readonly rejections: RejectionLog;
  /** See `WatchStoreOptions`. */
  readonly gate?: TurnGate | undefined;
  readonly valueLimits?: ValueLimits | undefined;
  /** Called after each batch of each resource. */
  readonly onApplied: () => void;
  /** Receives what an engine has thrown; the key counts as received. */
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
 * The stores that follow one cluster's keys into the engines, one for each resource. They outlive connections:
 * a new run sweeps what is gone once its list is complete (I9).
 */
export class ClusterStores {
  readonly #options: ClusterStoresOptions;
  readonly #stores = new Map<MeshResource, AnyStore>();
  #limits: ClusterLimits = NO_LIMITS;

  constructor(options: ClusterStoresOptions) {
    this.#options = options;
    const { cluster, writer, engines, identities, globalServices, rejections, gate, onApplied } = options;
    const { valueLimits, onFault } = options;
    const limits = (): ClusterLimits => this.#limits;
    const { ipcache, nodes, services } = engines;
    const add = <T>(resource: MeshResource, decode: ValueDecoder<T>, observer: StoreObserver<T>): void => {
      const decodeLarge = decodeInPieces(decode, valueLimits);
      const store = new WatchStore<T>({
        ...{ decode, decodeLarge, observer, rejections, gate, onApplied, onFault },
      });
      this.#stores.set(resource, store);
    };
    // Nodes first: they say how to reach what the others name.
    if (nodes !== undefined) {
      const observer = nodeObserver(nodes, cluster, writer.source);
      add('nodes', nodeDecoder(cluster, limits, valueLimits), observer);
    }
    if (services !== undefined) {
      const observer = serviceObserver(services, cluster, globalServices);
      add('services', serviceDecoder(cluster, limits, valueLimits), observer);
    }
    add('identities', identityDecoder(limits, valueLimits), identityObserver(identities));
    if (ipcache !== undefined) {
      const peerHost = RESERVED_IDENTITIES[engines.remoteNodeIdentities === false ? 'host' : 'remote-node'];
      add('ip', ipDecoder(limits, valueLimits), ipObserver(ipcache, writer, peerHost));
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
      arrived += store.size + store.rejected + (store.isSynced ? 1 : 0);
    }
    return arrived;
  }

  /** Resolves once every resource has been complete. */
  async synced(): Promise<void> {
    await Promise.all([...this.#stores.values()].map((store) => store.synced));
  }

  /** Keys that are held of all resources. */
  get size(): number {
    let size = 0;
    for (const store of this.#stores.values()) size += store.size;
    return size;
  }

  /** Keys that the present watches have shown: unlike those that are held, they are in the kvstore now. */
  get shown(): number {
    let shown = 0;
    for (const store of this.#stores.values()) shown += store.status().watch?.keys ?? 0;
    return shown;
  }

  status(): ResourceStatuses {
    return Object.fromEntries([...this.#stores].map(([resource, store]) => [resource, store.status()]));
  }

  /** What the handshake said of the cluster; applies from the next key on. */
  setLimits(limits: ClusterLimits): void {
    this.#limits = limits;
  }

  /** Follows one resource until the signal fires, or the kvstore turns out to be another one. */
  follow(resource: MeshResource, request: FollowRequest): Promise<FollowEnd> {
    const { layout, onListed, onReading, ...run } = request;
    const store = this.#stores.get(resource);
    if (store === undefined) return Promise.resolve('ended');
    return store.run({
      ...run,
      prefix: resourcePrefix(resource, this.#options.cluster, layout),
      endOnDivergence: true,
      onListed: () => onListed(resource),
      onState: (state, failure) => onReading(resource, state, failure),
    });
  }

  /** Withdraws the services that were read. They must not be followed any more. Ends as {@link withdraw}. */
  withdrawServices(signal: AbortSignal): Promise<void> {
    return inSpiteOfFaults(signal, [
      () => this.#stores.get('services')?.drain(signal),
      () => this.#options.engines.services?.withdrawCluster(this.#options.cluster),
    ]);
  }

  /**
   * Withdraws everything that was read (I10): key by key in slices, each resource in turn, and then what faults have
   * left in the engines of this writer. Nothing must be followed any more. Once the signal has fired the rest stays, and
   * it is to be called again. An engine that throws does not spare the others; it rejects with the first of what was
   * thrown then, and is to be called again, too.
   */
  withdraw(signal: AbortSignal): Promise<void> {
    const { cluster, writer, engines, identities } = this.#options;
    return inSpiteOfFaults(signal, [
      ...[...this.#stores.values()].map((store) => () => store.drain(signal)),
      () => engines.services?.withdrawCluster(cluster),
      () => engines.ipcache?.withdraw(writer),
      () => engines.nodes?.withdraw({ source: writer.source, cluster }),
      () => identities.clear(),
    ]);
  }
}

/** Does all of it, until the signal fires; rejects with the first fault at the end. */
async function inSpiteOfFaults(signal: AbortSignal, steps: readonly (() => unknown)[]): Promise<void> {
  const faults: unknown[] = [];
  for (const step of steps) {
    if (signal.aborted) return;
    try {
      await step();
    } catch (fault) {
      faults.push(fault);
    }
  }
  if (faults.length > 0) throw faults[0];
}
