import type { Map as ImmutableMap } from 'immutable';
import {
  BOOLEAN,
  type Check,
  checkArgument,
  checkArguments,
  FUNCTION,
  isObjectOrList,
  LIST,
  listOf,
  NUMBER,
  objectWith,
  optional,
  optionsWith,
  requireAllowed,
  SIGNAL,
  shaped,
  TEXT,
} from '../base/arguments.ts';
import { DeliveryQueue } from '../base/delivery-queue.ts';
import { CallbackGuard, type FaultListener } from '../base/guard.ts';
import { ListenerSet } from '../base/listener-set.ts';
import { type Rejection, RejectionLog, rejection } from '../base/rejection.ts';
import { type Unsubscribe, unsubscribeOnce } from '../base/subscription.ts';
import { runToEnd } from '../base/turn-gate.ts';
import { type ClusterEndpointSlice, SERVICE_NAME_LABEL } from '../model/cluster-endpoint-slice.ts';
import type { ClusterService, ClusterServiceKey } from '../model/cluster-service.ts';
import { type AnnouncedService, announcedPart, changeBetween, shareAnnounced } from './announcement.ts';
import { type Backends, type EndpointSlice, SLICE } from './backend.ts';
import type { ServiceEvent, ServiceListener } from './events.ts';
import { explainState, type ServiceExplanation } from './explain.ts';
import { FrontendIndex, type FrontendMatch } from './frontend-index.ts';
import {
  type Frontend,
  type FrontendKind,
  formatFrontend,
  frontendsOf,
  type NodePortOptions,
} from './frontends.ts';
import { shareSlice } from './offer-difference.ts';
import { remoteBackends } from './remote-backends.ts';
import { remoteSlice } from './remote-slice.ts';
import { type ResolvedBackend, resolvePort } from './resolve.ts';
import { type BackendSelection, selectBackends } from './selection.ts';
import { equalServices, SERVICE, type Service, withoutExternalFrontends } from './service.ts';
import { formatServiceID, SERVICE_ID, type ServiceID, serviceOfSlice } from './service-id.ts';
import {
  clusterOfPart,
  hasServicePart,
  isRestoredPart,
  type ServicePart,
  servicePartName,
  servicePartsOf,
  withoutServicePart,
  withServicePart,
} from './service-parts.ts';
import {
  emptyState,
  partName,
  type ServiceState,
  withoutCluster,
  withPartStatus,
  withRemoteSlice,
  withService,
  withSlice,
  withWholeOffer,
} from './service-state.ts';
import { ServiceStream } from './service-stream.ts';
import { ServiceTable, type StateObserver } from './service-table.ts';
import { countServices, type ServiceCacheStatus } from './status.ts';

/** Options of {@link ServiceCache}. */
export interface ServiceCacheOptions {
  /** Name of the local cluster. Remote services and slices under this name are rejected. */
  readonly clusterName: string;
  /** Off by default. If off, node ports, external IPs and ingress IPs are removed from every service. */
  readonly nodePort?: NodePortOptions | undefined;
  /** Default true. If false, no node ports are served on IPv4. */
  readonly enableIPv4?: boolean | undefined;
  /** Default true. If false, no node ports are served on IPv6. */
  readonly enableIPv6?: boolean | undefined;
  /** Name of this node, for `select`; default empty: unknown. */
  readonly nodeName?: string | undefined;
  /** Topology zone of this node, for `select`; default empty: unknown. */
  readonly zone?: string | undefined;
  /** The policy of `select`; default {@link selectBackends}. */
  readonly selection?: BackendSelection | undefined;
  /** Receives every rejection after it was counted. */
  readonly onReject?: ((rejection: Rejection) => void) | undefined;
  /** Receives the errors and rejected promises of listeners and of `onReject` (I7). */
  readonly onListenerFault?: FaultListener | undefined;
}

/**
 * Outcome of `ServiceCache.updateService`. `applied`: the service changed. `unchanged`: an equal service was stored
 * already. `unsupported`: such a service is not served; an earlier version was removed.
 */
export type UpdateServiceOutcome = 'applied' | 'unchanged' | 'unsupported';

/** Outcome of adding a slice or an offer. `invalid`: nothing changed; the input was counted, see `status()`. */
export type MergeOutcome = 'applied' | 'unchanged' | 'invalid';

/** A slice of a remote cluster's offer for a service. */
export interface RemoteSliceID {
  readonly cluster: string;
  readonly id: ServiceID;
  /** The name of the slice. */
  readonly name: string;
}

/** Outcome of a delete. `not-found`: no object has that name. `invalid`: as in {@link MergeOutcome}. */
export type RemoveOutcome = 'applied' | 'not-found' | 'invalid';

const NODE_PORTS_OFF: NodePortOptions = { enabled: false };

/** Number of services that one step of a withdrawal scans. A step takes about 1 ms. */
const SERVICES_PER_STEP = 128;

/** A step also ends after this number of backends, which takes about 2 ms if all of them are removed. */
const BACKENDS_PER_STEP = 4096;

function nodePortOptionsOf(options: ServiceCacheOptions): NodePortOptions {
  const { nodePort = NODE_PORTS_OFF, enableIPv4 = true, enableIPv6 = true } = options;
  return {
    enabled: nodePort.enabled,
    ipv4: enableIPv4 ? nodePort.ipv4 : [],
    ipv6: enableIPv6 ? nodePort.ipv6 : [],
  };
}

/**
 * Maps services to their backends over all clusters (SEMANTICS 3).
 *
 * It joins Kubernetes services, endpoint slices and the shared services of remote clusters, in any order, and notifies
 * listeners of services and their endpoints. An *offer* is what a remote cluster shares of a service: its backends as a
 * whole, or in slices.
 *
 * A service is *served* if its type is supported, and it has an address or is headless (SEMANTICS 3.1). Listeners
 * receive a served service as soon as it is *announced*: it is ready, or all inputs are complete (SEMANTICS 3.3).
 *
 * The cache is synchronous and does no I/O. When a write returns, reads show it and listeners have received it. If the
 * write is part of a batch or of a callback, listeners receive it after the batch or callback. Values are kept, so
 * callers must not change them.
 */
export class ServiceCache {
  readonly #clusterName: string;
  readonly #nodePort: NodePortOptions;
  readonly #rejections: RejectionLog;
  readonly #guard: CallbackGuard;
  readonly #deliveries: DeliveryQueue;
  readonly #listeners: ListenerSet<ServiceListener>;
  readonly #table: ServiceTable;
  readonly #selection: BackendSelection;
  readonly #localNode: { readonly nodeName: string; readonly zone: string };
  #frontends: FrontendIndex | undefined;

  constructor(options: ServiceCacheOptions) {
    checkArgument('new ServiceCache: options', options, OPTIONS);
    this.#clusterName = options.clusterName;
    this.#nodePort = nodePortOptionsOf(options);
    this.#selection = options.selection ?? selectBackends;
    this.#localNode = { nodeName: options.nodeName ?? '', zone: options.zone ?? '' };
    this.#guard = new CallbackGuard(options.onListenerFault);
    this.#rejections = new RejectionLog(options.onReject, this.#guard);
    this.#deliveries = new DeliveryQueue(this.#guard);
    this.#listeners = new ListenerSet(this.#deliveries);
    this.#table = new ServiceTable((events, inputsComplete) => this.#publish(events, inputsComplete));
  }

  /**
   * Sets a Kubernetes service. The cost does not grow with its backends, unless the update changes their selection
   * (global, affinity, `publishNotReadyAddresses`).
   */
  updateService(service: Service): UpdateServiceOutcome {
    const key = formatServiceID(service.id);
    const old = this.#table.get(key);
    // No check of `#serves`: only served services are stored, so an equal one is served, too.
    if (old?.service !== undefined && equalServices(old.service, service))
      return this.#confirm(old, partName('service'));
    if (!this.#serves(service)) {
      if (old?.service !== undefined) this.#table.put(withService(old, undefined));
      return 'unsupported';
    }
    const served = this.#asServed(service);
    if (old?.service !== undefined && equalServices(old.service, served))
      return this.#confirm(old, partName('service'));
    this.#table.put(withService(old ?? emptyState(service.id, key), served));
    return 'applied';
  }

  /** Deletes a service. Its endpoints and remote offers are kept for the case that it is created again. */
  deleteService(id: ServiceID): RemoveOutcome {
    const old = this.#stateOf(id);
    if (old?.service === undefined) return 'not-found';
    this.#table.put(withService(old, undefined));
    return 'applied';
  }

  /** Sets an endpoint slice of the local cluster, in place of one of the same name. Linear in the slice. */
  updateEndpoints(slice: EndpointSlice): 'applied' | 'unchanged' {
    const key = formatServiceID(slice.service);
    const old = this.#table.get(key);
    const previous = old?.slices.get(slice.name);
    const shared = shareSlice(previous, slice);
    if (old !== undefined && shared === previous) return this.#confirm(old, partName('slice', slice.name));
    this.#table.put(withSlice(old ?? emptyState(slice.service, key), slice.name, shared));
    return 'applied';
  }

  deleteEndpoints(id: ServiceID, sliceName: string): RemoveOutcome {
    const old = this.#stateOf(id);
    if (!old?.slices.has(sliceName)) return 'not-found';
    this.#table.put(withSlice(old, sliceName, undefined));
    return 'applied';
  }

  /**
   * Sets the whole offer of a remote cluster for a service, which need not be known. It replaces an earlier whole offer
   * of that cluster, or deletes it if `shared` is false. An offer of the local cluster is rejected. The cost is linear
   * in the offer.
   */
  mergeExternalServiceUpdate(offer: ClusterService): MergeOutcome {
    if (!this.#isRemote(offer)) return 'invalid';
    if (!offer.shared) return this.#removeOffer(offer) ? 'applied' : 'unchanged';
    const old = this.#stateOf(offer);
    const previous = old?.remotes.get(offer.cluster)?.whole;
    const backends = remoteBackends(offer, previous);
    if (old !== undefined && backends === previous)
      return this.#confirm(old, partName('offer', offer.cluster));
    const id = { namespace: offer.namespace, name: offer.name };
    this.#table.put(withWholeOffer(old ?? emptyState(id), offer.cluster, backends));
    return 'applied';
  }

  /** Deletes the whole offer of a remote cluster for a service, but not its slices and the service. */
  mergeExternalServiceDelete(offer: ClusterServiceKey): RemoveOutcome {
    if (!this.#isRemote(offer)) return 'invalid';
    return this.#removeOffer(offer) ? 'applied' : 'not-found';
  }

  /**
   * Sets a slice of a remote cluster's offer, for the service in its label, which need not be known. It replaces the
   * slice of the same cluster, service and name. A slice of the local cluster, or without the label, is rejected. The
   * cost is linear in the slice.
   */
  mergeExternalSliceUpdate(slice: ClusterEndpointSlice): MergeOutcome {
    const { cluster, name } = slice;
    const id = serviceOfSlice(slice);
    if (!this.#isRemoteSlice({ cluster, id, name })) return 'invalid';
    const old = this.#stateOf(id);
    const previous = old?.remotes.get(cluster)?.slices.get(name);
    const shared = shareSlice(previous, remoteSlice(slice));
    if (old !== undefined && shared === previous)
      return this.#confirm(old, partName('remote-slice', cluster, name));
    this.#table.put(withRemoteSlice(old ?? emptyState(id), cluster, name, shared));
    return 'applied';
  }

  /** Deletes a slice of a remote cluster's offer for a service. The service itself is not deleted. */
  mergeExternalSliceDelete(slice: RemoteSliceID): RemoveOutcome {
    const { cluster, id, name } = slice;
    if (!this.#isRemoteSlice(slice)) return 'invalid';
    const old = this.#stateOf(id);
    if (!old?.remotes.get(cluster)?.slices.has(name)) return 'not-found';
    this.#table.put(withRemoteSlice(old, cluster, name, undefined));
    return 'applied';
  }

  /**
   * Deletes all offers of a remote cluster as one batch (I10). Costs a scan of all services, and 2 µs for each offer.
   */
  withdrawCluster(cluster: string): RemoveOutcome {
    const offering = [...this.#table.values()].filter((state) => state.remotes.has(cluster));
    this.#table.batch(() => {
      for (const state of offering) this.#table.put(withoutCluster(state, cluster));
    });
    return offering.length > 0 ? 'applied' : 'not-found';
  }

  /** Increases with every change of the state, announced or not. */
  get revision(): number {
    return this.#table.changes;
  }

  /**
   * Yields the whole state as parts of services, for a checkpoint; {@link ServiceCache.restorePart} reads them back.
   * The state may change during the iteration: each service is yielded as it is at that moment.
   */
  *parts(): Generator<ServicePart, void, void> {
    for (const state of this.#table.values()) yield* servicePartsOf(state);
  }

  /** Yields the states of all services, unordered. Services may change during the iteration. */
  states(): Iterable<ServiceState> {
    return this.#table.values();
  }

  /**
   * Calls `observer` for every later change of a state, announced or not, before listeners are called. See
   * {@link StateObserver}.
   */
  observeStates(observer: StateObserver): Unsubscribe {
    this.#table.observers.add(observer);
    return unsubscribeOnce(() => void this.#table.observers.delete(observer));
  }

  /**
   * Returns the event that listeners would receive if `changes` were applied to the state of a service in one batch;
   * `undefined` if there would be no event. Writes nothing. The first change receives the current state, or an empty
   * state if there is no input of the service.
   */
  preview(
    id: ServiceID,
    changes: readonly ((state: ServiceState) => ServiceState)[],
  ): ServiceEvent | undefined {
    const old = this.#stateOf(id);
    let next = old ?? emptyState(id);
    for (const change of changes) next = this.#table.withAnnouncement(change(next));
    return changeBetween(old, shareAnnounced(old, next));
  }

  /**
   * Returns a service as this cache would store it, without frontends that are not served here; `undefined` if the
   * cache would not store the service.
   */
  served(service: Service): Service | undefined {
    return this.#serves(service) ? this.#asServed(service) : undefined;
  }

  /**
   * Adds a part of a checkpoint, unless the cache already has that part. It stays until its source sets or deletes it,
   * or until {@link ServiceCache.withdrawRestoredSteps} removes it. Returns false if it was not added.
   */
  restorePart(part: ServicePart): boolean {
    const served = this.#servedPart(part);
    const state = this.#stateOf(part.id) ?? emptyState(part.id);
    if (served === undefined || hasServicePart(state, part)) return false;
    this.#table.put(withPartStatus(withServicePart(state, served), servicePartName(part), 'restored'));
    return true;
  }

  /**
   * Removes the restored parts that their source has not confirmed: the offers of a remote cluster, or the services and
   * slices of the local one (empty name). Each step is a batch over at most `limit` services, fewer if they have many
   * backends, and yields the number of removed parts.
   */
  *withdrawRestoredSteps(cluster: string, limit: number = SERVICES_PER_STEP): Generator<number, void, void> {
    let states: ServiceState[] = [];
    let backends = 0;
    for (const state of this.#table.values()) {
      states.push(state);
      backends += state.correlation.backends.size;
      if (states.length < limit && backends < BACKENDS_PER_STEP) continue;
      yield this.#withdrawRestored(states, cluster);
      states = [];
      backends = 0;
    }
    if (states.length > 0) yield this.#withdrawRestored(states, cluster);
  }

  /** Returns the clusters (empty: the local one) with an unconfirmed restored part of this service, unordered. */
  restoredFrom(id: ServiceID): readonly string[] {
    const state = this.#stateOf(id);
    if (state === undefined || state.restored.size === 0) return [];
    const clusters = Array.from(servicePartsOf(state))
      .filter((part) => isRestoredPart(state, part))
      .map(clusterOfPart);
    return [...new Set(clusters)];
  }

  /**
   * Marks the inputs as complete. Services without backends are announced from now on, and the result no longer depends
   * on the order of the inputs. Cannot be undone, except in a batch that throws.
   */
  markSynced(): void {
    this.#table.markSynced();
  }

  /**
   * Runs `write`, which may call any method, and returns its result. When it returns, listeners receive its net effect,
   * once per service (I8). If it throws, its writes are rolled back. `write` must be synchronous. Batches may be
   * nested.
   */
  batch<T>(write: () => T): T {
    return this.#table.batch(write);
  }

  /**
   * Subscribes a listener. It receives every announced service, then `onSynced`, then every event until it
   * unsubscribes, without gaps or duplicates. If called within a callback, the replay follows the current delivery
   * ({@link ServiceListener}). Must not be called inside a batch, because the batch may be rolled back.
   */
  subscribe(listener: ServiceListener): Unsubscribe {
    requireAllowed(!this.#table.inBatch, 'subscribe must not be called inside a batch');
    return this.#listeners.subscribe(listener, {
      steps: () => this.#replay(),
      ended: (one) => one.onEnded?.(),
    });
  }

  /**
   * Returns a stream for a slow consumer: the latest state of each changed service, which the consumer acknowledges. It
   * subscribes immediately, and ends when it is closed or `signal` aborts.
   */
  stream(signal?: AbortSignal): ServiceStream {
    return new ServiceStream(this, signal);
  }

  /** Counts and reports an input that the caller's parser rejected. */
  reject(rejection: Rejection): void {
    this.#rejections.add(rejection);
  }

  /** Returns an announced service; `undefined` if there is none of that name. */
  get(id: ServiceID): AnnouncedService | undefined {
    return announcedPart(this.#stateOf(id));
  }

  /** Returns all served services, announced or not, by key `namespace/name`, sorted by key. Costs a sort. */
  services(): ReadonlyMap<string, Service> {
    const found = new Map<string, Service>();
    for (const [key, { service }] of this.#table.sorted()) if (service !== undefined) found.set(key, service);
    return found;
  }

  /**
   * Returns all claims on backends of this service with the verdict on each; `undefined` if there is no input of it.
   * Costs about 1.5 µs a claim, in one turn of the event loop.
   */
  explain(id: ServiceID): ServiceExplanation | undefined {
    const steps = this.explainSteps(id);
    return steps && runToEnd(steps);
  }

  /**
   * @internal
   * Like {@link ServiceCache.explain}, in steps. Returns the explanation of the state at the time of the call.
   */
  explainSteps(id: ServiceID): Generator<undefined, ServiceExplanation, void> | undefined {
    const state = this.#stateOf(id);
    return state === undefined ? undefined : explainState(state);
  }

  /**
   * Returns the frontend of the service's primary cluster IP and first port; `undefined` if the service is unknown, is
   * headless, has no port or no cluster IP, or does not expose cluster IPs (`exposedType`).
   */
  getServiceIP(id: ServiceID): Frontend | undefined {
    const service = this.#stateOf(id)?.service;
    if (service === undefined) return undefined;
    return frontendsOf(service, this.#nodePort).find((frontend) => frontend.kind === 'cluster-ip');
  }

  /**
   * Returns the service of an address (in any spelling), port and protocol number: cluster IPs, node ports, external
   * IPs and ingress IPs. The match is exact: a node port on `0.0.0.0` is found at `0.0.0.0` and at the configured node
   * addresses only. The first call builds an index, about 10 µs a service, so call it while the cache is empty. Later
   * writes update it, and later calls cost a map lookup.
   */
  lookupFrontend(ip: string, port: number, protocol: number): FrontendMatch | undefined {
    return this.#trackedFrontends().lookup(ip, port, protocol);
  }

  /**
   * Returns the services and frontends on an address (in any spelling): each port on it as a cluster IP, external IP,
   * ingress IP or configured address of node ports. Costs the same as {@link ServiceCache.lookupFrontend}.
   */
  lookupAddress(ip: string): readonly FrontendMatch[] {
    return this.#trackedFrontends().ofAddress(ip);
  }

  /**
   * Returns the backends for traffic to a frontend of that kind on this node: the endpoints, filtered by the selection
   * (default {@link selectBackends}). An empty result means that traffic must be rejected, `undefined` that the service
   * is not announced. Costs one pass over the backends.
   *
   * Selects among the backends of all ports and both families together. A backend on this node can therefore exclude
   * other backends, even if it lacks a port that they have. To select for one frontend, pass the backends with its port
   * and family to `selectBackends`.
   */
  select(id: ServiceID, frontend: FrontendKind): Backends | undefined {
    const announced = this.get(id);
    if (announced === undefined) return undefined;
    const { service, endpoints } = announced;
    return this.#selection(endpoints.backends, { service, frontend, ...this.#localNode });
  }

  /**
   * Returns the effective backends at a port of a service, by port name or by number (all protocols of that number). An
   * empty result means that traffic must be rejected, `undefined` that the service is not announced or has no such
   * port. Unlike {@link ServiceCache.select}, `resolve` does not filter for this node. Costs one pass over the
   * backends.
   */
  resolve(id: ServiceID, port: string | number): readonly ResolvedBackend[] | undefined {
    const announced = this.get(id);
    return announced && resolvePort(announced, port);
  }

  /**
   * Returns the cluster IPs and node ports of all services as text, `10.0.0.1:80/TCP` or `[fd00::1]:80/TCP`, each once.
   * Costs one pass over the services.
   */
  uniqueServiceFrontends(): ReadonlySet<string> {
    const found = new Set<string>();
    for (const { service } of this.#table.values()) {
      if (service === undefined) continue;
      for (const frontend of frontendsOf(service, this.#nodePort)) {
        if (frontend.kind === 'cluster-ip' || frontend.kind === 'node-port')
          found.add(formatFrontend(frontend));
      }
    }
    return found;
  }

  /**
   * Yields the announced services by key `namespace/name`, unordered. Services may change during the iteration, so that
   * a slow reader can let other work run in between.
   */
  entries(): Generator<readonly [key: string, announced: AnnouncedService], void, void> {
    return this.#table.announced();
  }

  /**
   * Returns all announced services by key `namespace/name` as an immutable map; the same map until something changes.
   * The cost is linear in the changes since the last snapshot: about 2 µs each, so 0.2 s for the first one of 100,000
   * services. {@link ServiceCache.entries} costs nothing in advance.
   */
  snapshot(): ImmutableMap<string, AnnouncedService> {
    return this.#table.snapshot();
  }

  /** Returns counts and rejections (I12). Costs one pass over the services, about 50 ns each. */
  status(): ServiceCacheStatus {
    return {
      ...countServices(this.#table.values()),
      synced: this.#table.synced,
      listeners: this.#listeners.size,
      listenerFaults: this.#guard.faults,
      rejections: this.#rejections.status(),
    };
  }

  #stateOf(id: ServiceID): ServiceState | undefined {
    return this.#table.get(formatServiceID(id));
  }

  /** Returns the index of frontends, which the first call builds. */
  #trackedFrontends(): FrontendIndex {
    this.#frontends ??= this.#table.track(new FrontendIndex(this.#nodePort));
    return this.#frontends;
  }

  /** Marks a part as confirmed because its source set the same value. */
  #confirm(state: ServiceState, part: string): 'unchanged' {
    const confirmed = withPartStatus(state, part, 'confirmed');
    if (confirmed !== state) this.#table.put(confirmed);
    return 'unchanged';
  }

  /** Returns a part as this cache would store it; `undefined` if the cache would not store it. */
  #servedPart(part: ServicePart): ServicePart | undefined {
    if (part.kind === 'slice') return part;
    if (part.kind !== 'service') return this.#isOtherCluster(part.cluster) ? part : undefined;
    const service = this.served(part.service);
    return service && { ...part, service };
  }

  #isOtherCluster(cluster: string): boolean {
    return cluster !== '' && cluster !== this.#clusterName;
  }

  #withdrawRestored(states: readonly ServiceState[], cluster: string): number {
    let count = 0;
    this.#table.batch(() => {
      for (const { id } of states) {
        const state = this.#stateOf(id);
        if (state === undefined || state.restored.size === 0) continue;
        const parts = [...servicePartsOf(state)].filter(
          (part) => clusterOfPart(part) === cluster && isRestoredPart(state, part),
        );
        if (parts.length > 0) this.#table.put(parts.reduce(withoutServicePart, state));
        count += parts.length;
      }
    });
    return count;
  }

  /** Returns true if a service is served: a supported type that is reachable or headless (SEMANTICS 3.1). */
  #serves(service: Service): boolean {
    if (service.type === 'ExternalName' || service.type === 'unknown') return false;
    return service.addressing !== 'unassigned' || (this.#nodePort.enabled && service.externalIPs.size > 0);
  }

  /** Returns the service without frontends that are not served here, so that events do not contain them (I3). */
  #asServed(service: Service): Service {
    return this.#nodePort.enabled ? service : withoutExternalFrontends(service);
  }

  /** Returns true if an offer is from another cluster. Otherwise the offer is rejected. */
  #isRemote(offer: ClusterServiceKey): boolean {
    if (this.#isOtherCluster(offer.cluster)) return true;
    const at = formatServiceID(offer);
    this.#rejections.add(
      offer.cluster === ''
        ? rejection('missing', 'cluster', '', 'must be set for a remote service', at)
        : rejection('local-cluster', 'cluster', offer.cluster, 'must not be the local cluster', at),
    );
    return false;
  }

  /** Like {@link #isRemote}; the slice must also name its service. */
  #isRemoteSlice({ cluster, id, name }: RemoteSliceID): boolean {
    if (!this.#isRemote({ cluster, ...id })) return false;
    if (id.name !== '') return true;
    const at = `${id.namespace}/${name}`;
    this.#rejections.add(
      rejection('missing', `labels.${SERVICE_NAME_LABEL}`, '', 'the slice belongs to no service', at),
    );
    return false;
  }

  /** Removes the whole offer of a cluster. Returns false if there is none. */
  #removeOffer(offer: ClusterServiceKey): boolean {
    const old = this.#stateOf(offer);
    if (old?.remotes.get(offer.cluster)?.whole === undefined) return false;
    this.#table.put(withWholeOffer(old, offer.cluster, undefined));
    return true;
  }

  /** Returns the steps of a replay of the current state. */
  #replay(): IterableIterator<(listener: ServiceListener) => unknown> {
    const events = this.#table.sorted().flatMap(([, state]) => changeBetween(undefined, state) ?? []);
    const steps: ((listener: ServiceListener) => unknown)[] = [(listener) => listener.onSynced?.()];
    if (events.length > 0) steps.unshift((listener) => listener.onEvents(events));
    if (this.#table.synced) steps.push(deliverInputsComplete);
    return steps.values();
  }

  #publish(events: readonly ServiceEvent[], inputsComplete: boolean): void {
    if (!inputsComplete) {
      this.#listeners.notify(deliverEvents, events);
      return;
    }
    // Deferred, so that writes of these listeners are delivered after the events and `onInputsComplete`.
    this.#deliveries.deliverAfter(() => {
      if (events.length > 0) this.#listeners.notify(deliverEvents, events);
      this.#listeners.notify(deliverInputsComplete, undefined);
    });
  }
}

const OFFER: Check = shaped<ClusterService>(
  'must have a cluster, a namespace, a name and backends',
  (offer) =>
    SERVICE_ID(offer) === undefined && typeof offer.cluster === 'string' && isObjectOrList(offer.backends),
);
const REMOTE_SLICE: Check = shaped<ClusterEndpointSlice>(
  'must have a cluster, a namespace, a name, labels, endpoints and ports',
  (slice) =>
    SERVICE_ID(slice) === undefined &&
    typeof slice.cluster === 'string' &&
    isObjectOrList(slice.labels) &&
    isObjectOrList(slice.endpoints) &&
    isObjectOrList(slice.ports),
);

const OPTIONS: Check = optionsWith({
  clusterName: TEXT,
  nodePort: optional(
    objectWith({ enabled: BOOLEAN, ipv4: optional(listOf(TEXT)), ipv6: optional(listOf(TEXT)) }),
  ),
  enableIPv4: optional(BOOLEAN),
  enableIPv6: optional(BOOLEAN),
  nodeName: optional(TEXT),
  zone: optional(TEXT),
  selection: optional(FUNCTION),
});

checkArguments(ServiceCache, {
  updateService: { service: SERVICE },
  deleteService: { id: SERVICE_ID },
  updateEndpoints: { slice: SLICE },
  deleteEndpoints: { id: SERVICE_ID, sliceName: TEXT },
  mergeExternalServiceUpdate: { offer: OFFER },
  mergeExternalSliceUpdate: { slice: REMOTE_SLICE },
  mergeExternalSliceDelete: { slice: objectWith({ cluster: TEXT, id: SERVICE_ID, name: TEXT }) },
  mergeExternalServiceDelete: { offer: objectWith({ cluster: TEXT, namespace: TEXT, name: TEXT }) },
  withdrawCluster: { cluster: TEXT },
  restorePart: { part: objectWith({ kind: TEXT, id: SERVICE_ID }) },
  withdrawRestoredSteps: { cluster: TEXT, limit: optional(NUMBER) },
  restoredFrom: { id: SERVICE_ID },
  observeStates: { observer: FUNCTION },
  preview: { id: SERVICE_ID, changes: LIST },
  served: { service: SERVICE },
  batch: { write: FUNCTION },
  subscribe: { listener: objectWith({ onEvents: FUNCTION }) },
  stream: { signal: optional(SIGNAL) },
  reject: { rejection: objectWith({ reason: TEXT }) },
  get: { id: SERVICE_ID },
  explain: { id: SERVICE_ID },
  explainSteps: { id: SERVICE_ID },
  getServiceIP: { id: SERVICE_ID },
  lookupFrontend: { ip: TEXT },
  lookupAddress: { ip: TEXT },
  select: { id: SERVICE_ID },
  resolve: { id: SERVICE_ID },
});

function deliverEvents(listener: ServiceListener, events: readonly ServiceEvent[]): unknown {
  return listener.onEvents(events);
}

function deliverInputsComplete(listener: ServiceListener): unknown {
  return listener.onInputsComplete?.();
}
