import type { TurnGate } from '../base/turn-gate.ts';
import type { Writer } from '../ipcache/types.ts';
import type { ClusterConfig } from '../kvstore/codec/cluster-config.ts';
import type { MeshResource } from '../kvstore/codec/keys.ts';
import { decodeInPieces, type ValueDecoder, type ValueLimits } from '../kvstore/codec/value.ts';
import { type StoreObserver, WatchStore } from '../kvstore/stores/watch-store.ts';
import { RESERVED_IDENTITIES } from '../model/numeric-identity.ts';
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
  /** Name of the followed cluster. */
  readonly cluster: string;
  /** Writer of the claims: `{source: 'clustermesh', owner: cluster}`, or `{source: 'kvstore'}` for the own cluster. */
  readonly writer: Writer;
  readonly engines: MeshEngines;
  /** Index of shared services to update. */
  readonly globalServices?: GlobalServices | undefined;
  /** See `WatchStoreOptions`. */
  readonly gate?: TurnGate | undefined;
  readonly valueLimits?: ValueLimits | undefined;
  /** Returns the limits of the cluster's values. */
  readonly limits: (config: ClusterConfig | undefined) => ClusterLimits;
}

/** The stores that write a cluster's keys into the engines. */
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
    // Nodes first, because the other resources refer to them.
    if (nodes !== undefined) {
      const observer = nodeObserver(nodes, cluster, writer.source);
      add('nodes', nodeDecoder(cluster, limits, valueLimits), observer);
    }
    if (services !== undefined) {
      const observer = serviceObserver(services, cluster, globalServices);
      add('services', serviceDecoder(cluster, limits, valueLimits), observer);
    }
    // The own kvstore may hold identities of other clusters.
    add('identities', identityDecoder(writer.owner, limits, valueLimits), identityObserver(identities));
    if (ipcache !== undefined) {
      const peerHost = RESERVED_IDENTITIES[engines.remoteNodeIdentities === false ? 'host' : 'remote-node'];
      add('ip', ipDecoder(limits, valueLimits), ipObserver(ipcache, writer, peerHost));
    }
  }

  /** Sets the limits of the cluster's values. They apply from the next key on. */
  configure(config: ClusterConfig | undefined): void {
    this.#limits = this.#options.limits(config);
  }

  /** Withdraws all services. They must not be followed any more. Signal and errors as with {@link withdraw}. */
  withdrawServices(signal: AbortSignal): Promise<void> {
    return runAllSteps(signal, [
      () => this.stores.get('services')?.drain(signal),
      () => this.#options.engines.services?.withdrawCluster(this.#options.cluster),
    ]);
  }

  /**
   * Withdraws everything (I10): key by key in slices, one resource after the other, nodes last because the others refer to them.
   * Then withdraws the writer from the engines, in case faults have left claims. No resource may be followed any more. If the
   * signal fires, the rest stays and it must be called again. If an engine throws, the other steps still run; then it rejects
   * with the first error and must be called again.
   */
  withdraw(signal: AbortSignal): Promise<void> {
    const { cluster, writer, engines, identities } = this.#options;
    const { nodes, ...others } = Object.fromEntries(this.stores);
    return runAllSteps(signal, [
      ...Object.values(others).map((store) => () => store.drain(signal)),
      () => nodes?.drain(signal),
      () => engines.services?.withdrawCluster(cluster),
      () => engines.ipcache?.withdraw(writer),
      () => engines.nodes?.withdraw({ source: writer.source, cluster }),
      () => identities.clear(),
    ]);
  }
}

/** Runs all steps until the signal fires, even if some throw. Rejects with the first fault at the end. */
async function runAllSteps(signal: AbortSignal, steps: readonly (() => unknown)[]): Promise<void> {
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
