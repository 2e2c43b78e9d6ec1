import { rejection } from '../base/rejection.ts';
import { OPEN_GATE, type TurnGate } from '../base/turn-gate.ts';
import type { Writer } from '../ipcache/types.ts';
import {
  type ClusterConfig,
  type EndpointSlicesExportMode,
  exportsResource,
} from '../kvstore/codec/cluster-config.ts';
import { endpointSliceSize } from '../kvstore/codec/cluster-endpoint-slice.ts';
import {
  type CopiedResource,
  clusterConfigKey,
  isServiceResource,
  resourcePrefix,
  SERVICE_RESOURCES,
  type ServiceResource,
} from '../kvstore/codec/keys.ts';
import { decodeInPieces, type ValueDecoder, type ValueLimits } from '../kvstore/codec/value.ts';
import { type StoreObserver, WatchStore, type WatchStoreOptions } from '../kvstore/stores/watch-store.ts';
import { RESERVED_IDENTITIES } from '../model/numeric-identity.ts';
import { ClusterDecoders, type ClusterLimits, NO_LIMITS } from './decoders.ts';
import type { MeshCause, MeshEngines } from './engines.ts';
import { tapped } from './mesh-tap.ts';
import {
  exportObserver,
  identityObserver,
  ipObserver,
  nodeObserver,
  serviceObserver,
  sliceObserver,
} from './observers.ts';
import {
  EXPIRING_RESOURCES,
  type FollowEnd,
  type FollowRequest,
  ResourceStores,
  type StoreHooks,
} from './resource-stores.ts';
import type { ServiceFormat } from './service-format.ts';

export interface ClusterStoresOptions extends StoreHooks {
  readonly cluster: string;
  /**
   * Writer of the claims: `{source: 'clustermesh', owner: cluster}`, or `{source: 'kvstore'}` for the local cluster.
   */
  readonly writer: Writer;
  readonly engines: MeshEngines;
  /** See `WatchStoreOptions`. */
  readonly gate?: TurnGate | undefined;
  readonly valueLimits?: ValueLimits | undefined;
  readonly limits: (config: ClusterConfig | undefined) => ClusterLimits;
  /** Default `auto`. */
  readonly serviceV2?: ServiceFormat | undefined;
}

/**
 * Returns the format in which the services of a cluster are read; `undefined` if `setting` excludes all formats of the
 * cluster.
 */
export function serviceFormat(
  setting: ServiceFormat,
  mode: EndpointSlicesExportMode | undefined,
): ServiceResource | undefined {
  if (mode === undefined) return 'services';
  if (mode === 'services-and-endpointslices') return setting === 'slices' ? 'endpointslices' : 'services';
  return setting === 'legacy' ? undefined : 'endpointslices';
}

function withdrawalOf(cluster: string): MeshCause {
  return { store: cluster, revision: '', withdrawal: true };
}

/** The stores that write a cluster's keys into the engines. */
export class ClusterStores extends ResourceStores {
  readonly #options: ClusterStoresOptions;
  #limits: ClusterLimits = NO_LIMITS;
  #isWithdrawing = false;
  /** True if the beginning of a withdrawal was reported and its end was not. */
  #isWithdrawalReported = false;

  constructor(options: ClusterStoresOptions) {
    super(options.cluster);
    this.#options = options;
    const { cluster, writer, engines, identities, valueLimits } = options;
    const limits = (): ClusterLimits => this.#limits;
    // The kvstore of the local cluster, whose writer has no owner, may contain identities of other clusters.
    const anyLabels = writer.owner === undefined;
    const decoders = new ClusterDecoders({ cluster, limits, valueLimits, anyLabels });
    const { ipcache, nodes, services, exports } = engines;
    // Nodes first, because the other resources refer to them.
    if (nodes !== undefined) this.#add('nodes', decoders.nodes, nodeObserver(nodes, cluster, writer.source));
    if (services !== undefined) {
      this.#add('services', decoders.services, serviceObserver(services, cluster));
      this.#add('endpointslices', decoders.endpointslices, sliceObserver(services, cluster), {
        decodeLarge: decoders.largeSlices,
        sizeOf: endpointSliceSize,
      });
      this.skipped = new Set(['endpointslices']); // until `configure`
    }
    if (exports !== undefined)
      this.#add('serviceexports', decoders.serviceexports, exportObserver(exports, cluster));
    if (engines.identities !== false)
      this.#add('identities', decoders.identities, identityObserver(identities));
    if (ipcache !== undefined) {
      const peerHost = RESERVED_IDENTITIES[engines.remoteNodeIdentities === false ? 'host' : 'remote-node'];
      this.#add('ip', decoders.ip, ipObserver(ipcache, writer, peerHost), {
        decodeLarge: decodeInPieces(decoders.ip, valueLimits),
        scan: decoders.scanIP,
      });
    }
  }

  #add<T>(
    resource: CopiedResource,
    decode: ValueDecoder<T>,
    observer: StoreObserver<T>,
    large: Pick<WatchStoreOptions<T>, 'decodeLarge' | 'sizeOf' | 'scan'> = {
      decodeLarge: decodeInPieces(decode, this.#options.valueLimits),
    },
  ): void {
    const { rejections, gate, onApplied, onFault } = this.#options;
    const observed = this.#observed(resource, observer);
    const hooks = { rejections, gate, onApplied, onFault };
    this.stores.set(resource, new WatchStore<T>({ decode, ...large, ...hooks, ...observed }));
  }

  /**
   * Returns an observer that passes all calls to the tap first, and the causes of changes to `onCause`: the revision of
   * each event, or a withdrawal, which deletes without kvstore events.
   */
  #observed<T>(
    resource: CopiedResource,
    observer: StoreObserver<T>,
  ): Pick<WatchStoreOptions<T>, 'observer' | 'onEvent'> {
    const { cluster, engines } = this.#options;
    const { onCause } = engines;
    const tap = engines.tap?.storeTap(cluster, resource);
    if (tap === undefined && onCause === undefined) return { observer };
    const batch = (apply: () => void): void => {
      try {
        if (this.#isWithdrawing) onCause?.(withdrawalOf(cluster));
        if (observer.batch === undefined) apply();
        else observer.batch(apply);
      } finally {
        tap?.onApplied();
        onCause?.(undefined);
      }
    };
    return {
      observer: tap === undefined ? { ...observer, batch } : { ...tapped(observer, tap), batch },
      onEvent: (name, event) => {
        onCause?.({ store: cluster, revision: String(event.modRevision) });
        tap?.onEvent(name, event);
      },
    };
  }

  /** Sets the limits of the cluster's values, which apply from the next key on, and the format of its services. */
  async configure(config: ClusterConfig | undefined, signal: AbortSignal): Promise<void> {
    this.#limits = this.#options.limits(config);
    await this.#chooseFormat(config, signal);
    if (!signal.aborted) this.#options.engines.tap?.onConfigured(this.#options.cluster, config);
  }

  async #chooseFormat(config: ClusterConfig | undefined, signal: AbortSignal): Promise<void> {
    const { serviceV2 = 'auto', cluster, rejections } = this.#options;
    const mode = config?.capabilities.endpointSlicesExportMode;
    const format = serviceFormat(serviceV2, mode);
    const skipped = new Set<CopiedResource>(SERVICE_RESOURCES.filter((resource) => resource !== format));
    if (!exportsResource('serviceexports', config?.capabilities ?? {})) skipped.add('serviceexports');
    this.skipped = skipped;
    if (skipped.has('serviceexports')) {
      this.exportsSkipped.resolve();
      // Those of an earlier configuration are withdrawn.
      if (config !== undefined) await this.stores.get('serviceexports')?.drain(signal);
    }
    if (format !== undefined || !this.stores.has('services')) return;
    const reason = `exports its services only as slices, which the setting service-v2 ${serviceV2} does not read`;
    rejections.add(
      rejection('unread-format', 'endpointSlicesExportMode', mode, reason, clusterConfigKey(cluster)),
    );
    this.servicesSkipped.resolve();
    // Otherwise the old services would stay forever, because they are withdrawn only when another format is complete.
    await this.#withdrawSkipped(signal);
  }

  /**
   * Follows one resource. If the cluster changed to another format of services, the state in the old format is served
   * until the new one is complete, and is then withdrawn. So no service loses a backend which both formats contain.
   */
  override async follow(resource: CopiedResource, request: FollowRequest): Promise<FollowEnd> {
    const { engines, cluster } = this.#options;
    const { tap } = engines;
    if (tap === undefined || !this.stores.has(resource)) return this.#follow(resource, request);
    const { layout, mayDelete, onReaderState, onListed } = request;
    tap.onFollow(cluster, resource, resourcePrefix(resource, cluster, layout), mayDelete === 'never');
    const tappedRequest: FollowRequest = {
      ...request,
      onReaderState: (reader, state, failure) => {
        tap.onReaderState(cluster, reader, state);
        onReaderState(reader, state, failure);
      },
      onListed: (listed) => {
        tap.onListed(cluster, listed);
        onListed(listed);
      },
    };
    try {
      return await this.#follow(resource, tappedRequest);
    } finally {
      tap.onFollowEnd(cluster, resource);
    }
  }

  async #follow(resource: CopiedResource, request: FollowRequest): Promise<FollowEnd> {
    let withdrawal: Promise<void> | undefined;
    const onListed = (listed: CopiedResource): void => {
      withdrawal = this.#withdrawSkipped(request.signal).then((isDone) => {
        if (isDone) request.onListed(listed);
      });
    };
    const isSwitched = isServiceResource(resource) && this.#skippedStores().length > 0;
    const end = await super.follow(resource, isSwitched ? { ...request, onListed } : request);
    await withdrawal;
    return end;
  }

  /** Returns the skipped stores with state from an earlier run. */
  #skippedStores(): readonly Pick<WatchStore<unknown>, 'drain'>[] {
    return [...this.skipped].flatMap((resource) => {
      const store = this.stores.get(resource);
      return store === undefined || (store.size === 0 && store.rejected === 0) ? [] : [store];
    });
  }

  /** Resolves to true if the state of all skipped stores was withdrawn, to false if the signal fired before. */
  async #withdrawSkipped(signal: AbortSignal): Promise<boolean> {
    for (const store of this.#skippedStores()) if (!(await store.drain(signal))) return false;
    return true;
  }

  /**
   * Withdraws all services and service exports. They must not be followed any more. Signal and errors as with
   * {@link withdraw}.
   */
  withdrawServices(signal: AbortSignal): Promise<void> {
    return this.#withdraw(signal, 'services', [
      ...EXPIRING_RESOURCES.map((resource) => () => this.stores.get(resource)?.drain(signal)),
      () =>
        this.#runStep(() => this.#options.engines.services?.withdrawCluster(this.#options.cluster), signal),
    ]);
  }

  /**
   * Withdraws everything (I10): key by key in steps, one resource after the other, nodes last because the others refer
   * to them. Then withdraws the writer's claims from the engines, in case faults have left any. No resource may be
   * followed any more. If the signal fires, the remaining state stays and the caller must call again. If an engine
   * throws, the other steps still run. The call then rejects with the first error and must be repeated.
   */
  withdraw(signal: AbortSignal): Promise<void> {
    const { cluster, writer, engines, identities } = this.#options;
    const { nodes, ...others } = Object.fromEntries(this.stores);
    return this.#withdraw(signal, 'everything', [
      ...Object.values(others).map((store) => () => store.drain(signal)),
      () => nodes?.drain(signal),
      () => this.#runStep(() => engines.services?.withdrawCluster(cluster), signal),
      () => this.#runStep(() => engines.ipcache?.withdraw(writer), signal),
      () => this.#runStep(() => engines.nodes?.withdraw({ source: writer.source, cluster }), signal),
      () => identities.clear(),
    ]);
  }

  /**
   * Runs a step that scans an engine when the gate admits it, because all clusters may be withdrawn at the same moment.
   */
  #runStep(step: () => unknown, signal: AbortSignal): Promise<boolean> {
    const { cluster, gate = OPEN_GATE, engines } = this.#options;
    const work = (): void => {
      engines.onCause?.(withdrawalOf(cluster));
      try {
        step();
      } finally {
        engines.onCause?.(undefined);
      }
    };
    return gate.run(gate.slice, work, signal);
  }

  override endWithdrawal(): void {
    if (!this.#isWithdrawalReported) return;
    this.#isWithdrawalReported = false;
    this.#options.engines.onWithdrawal?.(this.#options.cluster, false);
  }

  /** Runs the steps of a withdrawal, and reports it, unless there is nothing to withdraw. */
  async #withdraw(
    signal: AbortSignal,
    scope: 'services' | 'everything',
    steps: readonly (() => unknown)[],
  ): Promise<void> {
    const { cluster, engines } = this.#options;
    const { onWithdrawal, tap } = engines;
    // If a withdrawal failed or was interrupted after its last key, nothing is left, but its end must still be
    // reported.
    this.#isWithdrawalReported ||= this.size > 0;
    if (this.#isWithdrawalReported) onWithdrawal?.(cluster, true);
    this.#isWithdrawing = true;
    try {
      await runAllSteps(signal, steps);
      if (signal.aborted) return;
      tap?.onWithdrawn(cluster, scope);
      this.endWithdrawal();
    } finally {
      this.#isWithdrawing = false;
    }
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
