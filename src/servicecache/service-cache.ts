import type { Map as ImmutableMap } from '#immutable';
import {
  type Check,
  checkArguments,
  FUNCTION,
  isObject,
  NUMBER,
  objectWith,
  optional,
  SIGNAL,
  shaped,
  TEXT,
} from '../base/arguments.ts';
import { assert } from '../base/assert.ts';
import { DeliveryQueue } from '../base/delivery-queue.ts';
import { CallbackGuard, type FaultListener } from '../base/guard.ts';
import { ListenerSet } from '../base/listener-set.ts';
import { type Rejection, RejectionLog, rejection } from '../base/rejection.ts';
import type { Unsubscribe } from '../base/subscription.ts';
import type { ClusterService, ClusterServiceKey } from '../net/cluster-service.ts';
import { type AnnouncedService, announcedPart, changeBetween } from './announcement.ts';
import type { Backends, EndpointSlice } from './backend.ts';
import { isSameOffer, remoteBackends } from './cluster-service.ts';
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
import { type ResolvedBackend, resolvePort } from './resolve.ts';
import { type BackendSelection, selectBackends } from './selection.ts';
import { equalServices, type Service, withoutNodePorts } from './service.ts';
import { formatServiceID, type ServiceID } from './service-id.ts';
import {
  isRestoredPart,
  type ServicePart,
  servicePartName,
  servicePartsOf,
  withoutServicePart,
} from './service-parts.ts';
import {
  emptyState,
  partName,
  type ServiceState,
  withRemote,
  withRestored,
  withService,
  withSlice,
} from './service-state.ts';
import { ServiceStream } from './service-stream.ts';
import { ServiceTable } from './service-table.ts';
import { countServices, type ServiceCacheStatus } from './status.ts';

/** Options of {@link ServiceCache}. */
export interface ServiceCacheOptions {
  /** The own cluster: what is said of it as a remote one is ignored. */
  readonly clusterName: string;
  /** Off by default: node ports, external IPs and ingress IPs are then left out of every service. */
  readonly nodePort?: NodePortOptions | undefined;
  /** Default true. Without it no node ports are served on IPv4. */
  readonly enableIPv4?: boolean | undefined;
  /** Default true. Without it no node ports are served on IPv6. */
  readonly enableIPv6?: boolean | undefined;
  /** This node's name and zone, for `select`; `''` when it has none. */
  readonly nodeName?: string | undefined;
  readonly zone?: string | undefined;
  /** Which backends `select` gives; default {@link selectBackends}. */
  readonly selection?: BackendSelection | undefined;
  /** Receives every rejected input, after it was counted. */
  readonly onReject?: ((rejection: Rejection) => void) | undefined;
  /** Receives what a listener, or `onReject`, has thrown or was rejected with (I7). */
  readonly onListenerFault?: FaultListener | undefined;
}

/**
 * `applied`: something changed. `unchanged`: the cache knew. `unsupported`: such a service is not served, and
 * what it was before is gone.
 */
export type UpdateServiceOutcome = 'applied' | 'unchanged' | 'unsupported';

/** `invalid`: rejected, counted and described in `status()`; nothing changed. */
export type MergeOutcome = 'applied' | 'unchanged' | 'invalid';

/** `not-found`: there was nothing of that name. */
export type RemoveOutcome = 'applied' | 'not-found' | 'invalid';

const NODE_PORTS_OFF: NodePortOptions = { enabled: false };

/** Services that a step of a withdrawal looks at: about a ms. */
const SERVICES_PER_STEP = 128;

function familiesOf(options: ServiceCacheOptions): NodePortOptions {
  const { nodePort = NODE_PORTS_OFF, enableIPv4 = true, enableIPv6 = true } = options;
  return {
    enabled: nodePort.enabled,
    ipv4: enableIPv4 ? nodePort.ipv4 : [],
    ipv6: enableIPv6 ? nodePort.ipv6 : [],
  };
}

/**
 * Which backends serve a service, over all clusters (SEMANTICS 3).
 *
 * Takes Kubernetes services, endpoint slices and what remote clusters share, in any order; listeners receive which
 * services there are and where their traffic goes. Pure and synchronous: when a call returns it has taken effect, and
 * listeners have received it, except within a batch and within a callback. Values that are handed in are kept, and
 * must not be changed.
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
  readonly #place: { readonly nodeName: string; readonly zone: string };
  #frontends: FrontendIndex | undefined;

  constructor(options: ServiceCacheOptions) {
    this.#clusterName = options.clusterName;
    this.#nodePort = familiesOf(options);
    this.#selection = options.selection ?? selectBackends;
    this.#place = { nodeName: options.nodeName ?? '', zone: options.zone ?? '' };
    this.#guard = new CallbackGuard(options.onListenerFault);
    this.#rejections = new RejectionLog(options.onReject, this.#guard);
    this.#deliveries = new DeliveryQueue(this.#guard);
    this.#listeners = new ListenerSet(this.#deliveries);
    this.#table = new ServiceTable((events, inputsComplete) => this.#publish(events, inputsComplete));
  }

  /**
   * A service as Kubernetes has it now. Costs nothing that grows with its backends, unless it changes which of
   * them count (global, affinity, publishing what is not ready).
   */
  updateService(service: Service): UpdateServiceOutcome {
    const old = this.#stateOf(service.id);
    // What is there is as served, so what equals it as it came is served, too, and needs no other look.
    if (old?.service !== undefined && equalServices(old.service, service))
      return this.#confirm(old, partName('service'));
    if (!this.#serves(service)) {
      if (old?.service !== undefined) this.#table.put(withService(old, undefined));
      return 'unsupported';
    }
    const served = this.#asServed(service);
    if (old?.service !== undefined && equalServices(old.service, served))
      return this.#confirm(old, partName('service'));
    this.#table.put(withService(old ?? emptyState(service.id), served));
    return 'applied';
  }

  /** Kubernetes has deleted the service. Its endpoints and remote offers are kept, should it come back. */
  deleteService(id: ServiceID): RemoveOutcome {
    const old = this.#stateOf(id);
    if (old?.service === undefined) return 'not-found';
    this.#table.put(withService(old, undefined));
    return 'applied';
  }

  /** Local endpoints as Kubernetes has them now; replaces the slice of that name. Costs the size of the slice. */
  updateEndpoints(slice: EndpointSlice): 'applied' | 'unchanged' {
    const old = this.#stateOf(slice.service);
    const previous = old?.slices.get(slice.name);
    const shared = shareSlice(previous, slice);
    if (old !== undefined && shared === previous) return this.#confirm(old, partName('slice', slice.name));
    this.#table.put(withSlice(old ?? emptyState(slice.service), slice.name, shared));
    return 'applied';
  }

  /** Kubernetes has deleted that slice. */
  deleteEndpoints(id: ServiceID, sliceName: string): RemoveOutcome {
    const old = this.#stateOf(id);
    if (!old?.slices.has(sliceName)) return 'not-found';
    this.#table.put(withSlice(old, sliceName, undefined));
    return 'applied';
  }

  /**
   * What a remote cluster offers now for a service, known here or not; replaces what that cluster offered
   * before. The own cluster is rejected. Costs the size of the offer.
   */
  mergeExternalServiceUpdate(offer: ClusterService): MergeOutcome {
    if (!this.#isRemote(offer)) return 'invalid';
    if (!offer.shared) return this.#removeOffer(offer) ? 'applied' : 'unchanged';
    const old = this.#stateOf(offer);
    const previous = old?.remotes.get(offer.cluster);
    if (old !== undefined && previous !== undefined && isSameOffer(previous, offer))
      return this.#confirm(old, partName('offer', offer.cluster));
    const id = { namespace: offer.namespace, name: offer.name };
    this.#table.put(withRemote(old ?? emptyState(id), offer.cluster, remoteBackends(offer, previous)));
    return 'applied';
  }

  /** A remote cluster offers that service no more. Never removes the service itself. */
  mergeExternalServiceDelete(offer: ClusterServiceKey): RemoveOutcome {
    if (!this.#isRemote(offer)) return 'invalid';
    return this.#removeOffer(offer) ? 'applied' : 'not-found';
  }

  /** Forgets everything a remote cluster has offered, as one batch (I10). Costs one pass over the services, and 2 µs for each offer. */
  withdrawCluster(cluster: string): RemoveOutcome {
    const offering = [...this.#table.values()].filter((state) => state.remotes.has(cluster));
    this.#table.batch(() => {
      for (const state of offering) this.#table.put(withRemote(state, cluster, undefined));
    });
    return offering.length > 0 ? 'applied' : 'not-found';
  }

  /** Goes up with everything that changes what is known, announced or not. */
  get revision(): number {
    return this.#table.changes;
  }

  /**
   * Everything that is known, in parts of services: what {@link ServiceCache.restorePart} takes after a restart. A walk that
   * may be as slow as its reader: each service is as it was when the walk came to it.
   */
  *parts(): Generator<ServicePart, void, void> {
    for (const state of this.#table.values()) yield* servicePartsOf(state);
  }

  /**
   * Takes a part of a checkpoint, unless it is known already, until its source says it again, changes it or deletes it, or
   * {@link ServiceCache.withdrawRestoredSteps} lets it go. False when it was not taken.
   */
  restorePart(part: ServicePart): boolean {
    const { id } = part;
    const state = this.#stateOf(id) ?? emptyState(id);
    const next = this.#withPart(state, part);
    if (next === undefined) return false;
    this.#table.put(withRestored(next, servicePartName(part), 'restored'));
    return true;
  }

  /**
   * Lets go of the restored parts that their source has not said again: of a remote cluster its offers, of the own one
   * (`''`) services and slices. In steps of at most `limit` services, each a batch, each of which gives how many parts went.
   */
  *withdrawRestoredSteps(cluster: string, limit: number = SERVICES_PER_STEP): Generator<number, void, void> {
    let states: ServiceState[] = [];
    for (const state of this.#table.values()) {
      if (states.push(state) < limit) continue;
      yield this.#withdrawRestored(states, cluster);
      states = [];
    }
    if (states.length > 0) yield this.#withdrawRestored(states, cluster);
  }

  /** The clusters (`''`: the own one) of whose word on this service a part is only restored, in no order. */
  restoredFrom(id: ServiceID): readonly string[] {
    const state = this.#stateOf(id);
    if (state === undefined || state.restored.size === 0) return [];
    const clusters = Array.from(servicePartsOf(state))
      .filter((part) => isRestoredPart(state, part))
      .map((part) => (part.kind === 'offer' ? part.cluster : ''));
    return [...new Set(clusters)];
  }

  /**
   * The inputs are complete: services that nothing makes ready are announced from now on, without backends. From
   * here on the outcome does not depend on the order of the inputs any more. Cannot be taken back, but by a batch
   * that fails.
   */
  markSynced(): void {
    this.#table.markSynced();
  }

  /**
   * Runs `write`, which may call any method; listeners receive its net effect, once per service, when it is
   * done (I8). When it throws, it is rolled back. Synchronous; batches nest.
   */
  batch<T>(write: () => T): T {
    return this.#table.batch(write);
  }

  /**
   * Gives the listener every announced service, then `onSynced`, then every event until it unsubscribes, with
   * nothing lost or doubled in between. Within a callback the replay comes in its turn ({@link ServiceListener}). Not
   * inside a batch: what it would be given may yet be rolled back.
   */
  subscribe(listener: ServiceListener): Unsubscribe {
    assert(!this.#table.inBatch, 'subscribe must not be called inside a batch');
    return this.#listeners.subscribe(listener, {
      steps: () => this.#replay(),
      ended: (one) => one.onEnded?.(),
    });
  }

  /**
   * The same for a consumer that takes its time: the latest state of each service that has changed, to be
   * acknowledged when it is dealt with. Subscribes at once; ends when it is closed or `signal` aborts.
   */
  stream(signal?: AbortSignal): ServiceStream {
    return new ServiceStream(this, signal);
  }

  /** Counts an input of this cache that was rejected before it got here, as by the parsers of `k8s`. */
  reject(rejection: Rejection): void {
    this.#rejections.add(rejection);
  }

  /** A service that is announced; `undefined` when there is none of that name. */
  get(id: ServiceID): AnnouncedService | undefined {
    return announcedPart(this.#stateOf(id));
  }

  /** Every service that is served, announced or not, by key `namespace/name`, in order of keys. Costs a sort of all. */
  services(): ReadonlyMap<string, Service> {
    const found = new Map<string, Service>();
    for (const [key, { service }] of this.#table.sorted()) if (service !== undefined) found.set(key, service);
    return found;
  }

  /** Every claim on a backend of this service, and why it is in or out; `undefined` when nothing is known of it. */
  explain(id: ServiceID): ServiceExplanation | undefined {
    const state = this.#stateOf(id);
    return state === undefined ? undefined : explainState(state);
  }

  /**
   * An address and port of the service's primary cluster IP: that of its first port. `undefined` when the
   * service is not known, is headless, or has no port or no cluster IP.
   */
  getServiceIP(id: ServiceID): Frontend | undefined {
    const service = this.#stateOf(id)?.service;
    if (service === undefined) return undefined;
    return frontendsOf(service, this.#nodePort).find((frontend) => frontend.kind === 'cluster-ip');
  }

  /**
   * The service behind an address (in any spelling), port and protocol number, if there is one: its cluster IPs,
   * node ports, external IPs and ingress IPs. Exact: a node port on `0.0.0.0` is found at `0.0.0.0` and at the
   * node's addresses that were given, not at others. Costs a map lookup, and what has changed since the last one.
   */
  lookupFrontend(ip: string, port: number, protocol: number): FrontendMatch | undefined {
    this.#frontends ??= new FrontendIndex(this.#nodePort);
    this.#table.refresh(this.#frontends);
    return this.#frontends.lookup(ip, port, protocol);
  }

  /**
   * Where traffic goes that comes to a frontend of that kind on this node: the service's endpoints, narrowed by the
   * selection (by default {@link selectBackends}). Empty means that it is to be rejected; `undefined` that there is
   * no such service. Costs one pass over the backends.
   */
  select(id: ServiceID, frontend: FrontendKind): Backends | undefined {
    const announced = this.get(id);
    if (announced === undefined) return undefined;
    const { service, endpoints } = announced;
    return this.#selection(endpoints.backends, { service, frontend, ...this.#place });
  }

  /**
   * Where a service's port leads: its effective backends at that port, given by name or by number (of every protocol that
   * the service has under it). Empty means that traffic is to be rejected; `undefined` that there is no such service, or
   * that it has no such port. Not narrowed to this node, as {@link ServiceCache.select} is. Costs one pass over the
   * backends.
   */
  resolve(id: ServiceID, port: string | number): readonly ResolvedBackend[] | undefined {
    const announced = this.get(id);
    return announced && resolvePort(announced, port);
  }

  /**
   * The cluster IPs and node ports of all services as text, `10.0.0.1:80/TCP` or `[fd00::1]:80/TCP`, each once.
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
   * All announced services by key `namespace/name`: a value that does not change any more, and the same one
   * while nothing changes. Costs what has changed since the last snapshot.
   */
  snapshot(): ImmutableMap<string, AnnouncedService> {
    return this.#table.snapshot();
  }

  /** What the cache holds, in numbers, and what it has rejected (I12). Costs one pass over the services, some 50 ns each. */
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

  /** A source says what is known already: if it was only restored, it is not any more. */
  #confirm(state: ServiceState, part: string): 'unchanged' {
    const confirmed = withRestored(state, part, 'confirmed');
    if (confirmed !== state) this.#table.put(confirmed);
    return 'unchanged';
  }

  /** The state with a restored part; `undefined` when that part is known, or is not served here. */
  #withPart(state: ServiceState, part: ServicePart): ServiceState | undefined {
    if (part.kind === 'service') {
      if (state.service !== undefined || !this.#serves(part.service)) return undefined;
      return withService(state, this.#asServed(part.service));
    }
    if (part.kind === 'slice')
      return state.slices.has(part.slice.name) ? undefined : withSlice(state, part.slice.name, part.slice);
    const { cluster, backends } = part;
    if (state.remotes.has(cluster) || cluster === '' || cluster === this.#clusterName) return undefined;
    return withRemote(state, cluster, backends);
  }

  #withdrawRestored(states: readonly ServiceState[], cluster: string): number {
    let count = 0;
    this.#table.batch(() => {
      for (const { id } of states) {
        const parts = Array.from(servicePartsOf(this.#stateOf(id) ?? emptyState(id)));
        for (const part of parts) {
          const state = this.#stateOf(id);
          const of = part.kind === 'offer' ? part.cluster : '';
          if (of !== cluster || state === undefined || !isRestoredPart(state, part)) continue;
          this.#table.put(withoutServicePart(state, part));
          count++;
        }
      }
    });
    return count;
  }

  /** Whether a service is served: a supported type that can be reached, or is headless (SEMANTICS 3.1). */
  #serves(service: Service): boolean {
    if (service.type === 'ExternalName' || service.type === 'unknown') return false;
    return service.addressing !== 'unassigned' || (this.#nodePort.enabled && service.externalIPs.size > 0);
  }

  /** The service without what is not served here, so that no event mentions it (I3). */
  #asServed(service: Service): Service {
    return this.#nodePort.enabled ? service : withoutNodePorts(service);
  }

  /** Whether an offer is from another cluster; rejects it when not. */
  #isRemote(offer: ClusterServiceKey): boolean {
    if (offer.cluster !== this.#clusterName && offer.cluster !== '') return true;
    const [reason, why] =
      offer.cluster === ''
        ? ['missing', 'a remote service must name its cluster']
        : ['own-cluster', 'this is the own cluster'];
    this.#rejections.add(rejection(reason, 'cluster', offer.cluster, why, formatServiceID(offer)));
    return false;
  }

  #removeOffer(offer: ClusterServiceKey): boolean {
    const old = this.#stateOf(offer);
    if (!old?.remotes.has(offer.cluster)) return false;
    this.#table.put(withRemote(old, offer.cluster, undefined));
    return true;
  }

  /** The steps of a replay of the state of now. */
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
    // Held, so that what a listener of the events causes comes after both.
    this.#deliveries.hold(() => {
      if (events.length > 0) this.#listeners.notify(deliverEvents, events);
      this.#listeners.notify(deliverInputsComplete, undefined);
    });
  }
}

function isName({ namespace, name }: Partial<ServiceID>): boolean {
  return typeof namespace === 'string' && typeof name === 'string';
}

const ID: Check = shaped<ServiceID>('must have a namespace and a name', isName);
const OFFER: Check = shaped<ClusterService>(
  'must have a cluster, a namespace, a name and backends',
  (offer) => isName(offer) && typeof offer.cluster === 'string' && isObject(offer.backends),
);
const SERVICE: Check = shaped<Service>(
  'must be what createService gives',
  ({ id, clusterIPs, ports, externalIPs, ingressIPs, labels, selector }) =>
    ID(id) === undefined &&
    isObject(clusterIPs) &&
    isObject(ports) &&
    isObject(externalIPs) &&
    isObject(ingressIPs) &&
    isObject(labels) &&
    isObject(selector),
);
const SLICE: Check = shaped<EndpointSlice>(
  'must be what createEndpointSlice gives',
  ({ service, name, backends, notReady }) =>
    ID(service) === undefined && typeof name === 'string' && isObject(backends) && isObject(notReady),
);

checkArguments(ServiceCache, {
  updateService: { service: SERVICE },
  deleteService: { id: ID },
  updateEndpoints: { slice: SLICE },
  deleteEndpoints: { id: ID, sliceName: TEXT },
  mergeExternalServiceUpdate: { offer: OFFER },
  mergeExternalServiceDelete: { offer: objectWith({ cluster: TEXT, namespace: TEXT, name: TEXT }) },
  withdrawCluster: { cluster: TEXT },
  restorePart: { part: objectWith({ kind: TEXT, id: ID }) },
  withdrawRestoredSteps: { cluster: TEXT, limit: optional(NUMBER) },
  restoredFrom: { id: ID },
  batch: { write: FUNCTION },
  subscribe: { listener: objectWith({ onEvents: FUNCTION }) },
  stream: { signal: optional(SIGNAL) },
  reject: { rejection: objectWith({ reason: TEXT }) },
  get: { id: ID },
  explain: { id: ID },
  getServiceIP: { id: ID },
  lookupFrontend: { ip: TEXT },
  select: { id: ID },
  resolve: { id: ID },
});

function deliverEvents(listener: ServiceListener, events: readonly ServiceEvent[]): unknown {
  return listener.onEvents(events);
}

function deliverInputsComplete(listener: ServiceListener): unknown {
  return listener.onInputsComplete?.();
}
