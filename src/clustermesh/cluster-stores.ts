import type { TurnGate } from '../base/turn-gate.ts';
import { RESERVED_IDENTITIES } from '../identity/numeric-identity.ts';
import type { Writer } from '../ipcache/types.ts';
import type { ClusterConfig } from '../kvstore/codec/cluster-config.ts';
import type { MeshResource } from '../kvstore/codec/keys.ts';
import { decodeInPieces, type ValueDecoder, type ValueLimits } from '../kvstore/codec/value.ts';
import { type StoreObserver, WatchStore } from '../kvstore/store/watch-store.ts';
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
import { ResourceStores, type StoreHooks } from './resource-stores.ts';

/** Options of {@link ClusterStores}. */
export interface ClusterStoresOptions extends StoreHooks {
  /** The cluster whose keys are followed. */
  readonly cluster: string;
  /** Who claims what is read: `{source: 'clustermesh', owner: cluster}`, or `{source: 'kvstore'}` for the own cluster. */
  readonly writer: Writer;
  readonly engines: MeshEngines;
  /** Where the services that the cluster shares are listed. */
  readonly globalServices?: GlobalServices | undefined;
  /** See `WatchStoreOptions`. */
  readonly gate?: TurnGate | undefined;
  readonly valueLimits?: ValueLimits | undefined;
  /** What the cluster may say. */
  readonly limits: (config: ClusterConfig | undefined) => ClusterLimits;
}

/** The stores that follow one cluster's keys into the engines. */
export class ClusterStores extends ResourceStores {
  readonly #options: ClusterStoresOptions;
  #limits: ClusterLimits = NO_LIMITS;

  constructor(options: ClusterStoresOptions) {
    super(options.cluster);
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
      this.stores.set(resource, store);
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

  /** What the cluster may say applies from the next key on. */
  begin(config: ClusterConfig | undefined): void {
    this.#limits = this.#options.limits(config);
  }

  /** Withdraws the services that were read. They must not be followed any more. Ends as {@link withdraw}. */
  withdrawServices(signal: AbortSignal): Promise<void> {
    return inSpiteOfFaults(signal, [
      () => this.stores.get('services')?.drain(signal),
      () => this.#options.engines.services?.withdrawCluster(this.#options.cluster),
    ]);
  }

  /**
   * Withdraws everything that was read (I10): key by key in slices, each resource in turn, nodes last, which the others lead
   * to, and then what faults have left in the engines of this writer. Nothing must be followed any more. Once the signal has
   * fired the rest stays, and it is to be called again. An engine that throws does not spare the others; it rejects with the first of what was
   * thrown then, and is to be called again, too.
   */
  withdraw(signal: AbortSignal): Promise<void> {
    const { cluster, writer, engines, identities } = this.#options;
    const { nodes, ...others } = Object.fromEntries(this.stores);
    return inSpiteOfFaults(signal, [
      ...Object.values(others).map((store) => () => store.drain(signal)),
      () => nodes?.drain(signal),
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
