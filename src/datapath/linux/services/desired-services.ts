import {
  type Backend,
  type Backends,
  filterBackends,
  NO_BACKENDS,
  type Ports,
} from '../../../servicecache/backend.ts';
import type { ServiceEvent, ServiceListener } from '../../../servicecache/events.ts';
import { isExposedOn, isRestricted } from '../../../servicecache/exposure.ts';
import { FrontendIndex, type ServedFrontend } from '../../../servicecache/frontend-index.ts';
import {
  type Frontend,
  type FrontendKind,
  formatFrontend,
  isExposed,
  type NodePortOptions,
} from '../../../servicecache/frontends.ts';
import { everyDifference } from '../../../servicecache/offer-difference.ts';
import { selectBackends } from '../../../servicecache/selection.ts';
import type { Service } from '../../../servicecache/service.ts';
import { formatServiceID, type ServiceID } from '../../../servicecache/service-id.ts';
import type { DesiredItems } from '../kernel-table.ts';
import { type KnownInputs, NOTHING_KNOWN } from '../known-inputs.ts';

/** The clients of a frontend, by address. */
export interface SourceRanges {
  /** `allow`: only clients in the ranges. `deny`: only other clients. */
  readonly policy: Service['sourceRangesPolicy'];
  /** Canonical CIDRs of the family of the frontend, each once. */
  readonly ranges: readonly string[];
}

/** Desired treatment of traffic to a frontend. */
export interface ServiceItem {
  /** Backends such as `10.0.0.1:8080/TCP` and `[fd00::1]:8080/TCP`, each once, sorted. If empty, traffic is refused. */
  readonly backends: readonly string[];
  /** Time for which a client stays with its backend; 0: as long as its connection. */
  readonly affinitySeconds: number;
  /** True if the client's address is replaced by one of this host, so that the backend answers through this host. */
  readonly masquerade?: boolean | undefined;
  /** Undefined: all clients are admitted. */
  readonly sources?: SourceRanges | undefined;
}

/** Returns true for port 0 of protocol 0: the frontend that refuses those ports of a cluster IP that no service has. */
export function isAnyPort({ port, protocol }: { readonly port: number; readonly protocol: number }): boolean {
  return port === 0 && protocol === 0;
}

export interface DesiredServicesOptions {
  /** Addresses that answer on node ports: those of this host. `0.0.0.0` and `::` have no special meaning here. */
  readonly nodePort: NodePortOptions;
  /** The local node, `''` if it has no name; used for `Local` traffic policies. */
  readonly nodeName: string;
  /** Location of the clients: `externalTrafficPolicy` applies only to clients outside of the cluster. */
  readonly clients: 'inside' | 'outside';
  /** `external`: all except cluster IPs. Default: all. */
  readonly frontends?: 'all' | 'external' | undefined;
  /** True if the ranges of a load balancer's clients apply to node ports, too. Default false. */
  readonly limitsNodePorts?: boolean | undefined;
}

/** An announced service and its backends. */
interface KnownService {
  readonly service: Service;
  readonly backends: Backends;
  /** With {@link MIN_KEPT_TEXTS} backends or more: those of each port and family that was read. */
  candidates: Map<string, Candidates> | undefined;
}

/** The backends with the port and the family of a frontend, and all backends from which they were taken. */
interface Candidates {
  readonly all: Backends;
  readonly found: Backends;
}

export interface NodeLabels {
  get(key: string): string | undefined;
}

const NONE: readonly string[] = [];
const REFUSED: ServiceItem = { backends: NONE, affinitySeconds: 0, masquerade: false };
/** Minimum number of backends whose texts are kept. Creating and sorting so many texts takes about 2 ms. */
const MIN_KEPT_TEXTS = 1024;
/** Port 0 of protocol 0, in the format of `formatFrontend`. */
const ANY_PORT = /^\[?([^\]]+?)\]?:0\/ANY$/;

function isExternal({ ports, externalIPs, ingressIPs }: Service): boolean {
  return externalIPs.size + ingressIPs.size > 0 || ports.some(({ nodePort }) => nodePort !== 0);
}

/** Returns a function that returns true for backends with the port and the family of a frontend. */
function candidateTest({ ip, portName, protocol }: Frontend): (backend: Backend) => boolean {
  const isIPv6 = ip.includes(':');
  let last: Ports | undefined; // most backends share one object
  let hasPort = false;
  return ({ address, ports }) => {
    if (ports !== last) {
      last = ports;
      hasPort = ports.get(portName)?.protocol === protocol;
    }
    return hasPort && address.includes(':') === isIPv6;
  };
}

/**
 * Returns the candidates of a frontend after a change of the backends. Shares the unchanged part with the earlier ones,
 * so that both compare at the cost of the changes.
 */
function withChanges({ all, found }: Candidates, backends: Backends, frontend: Frontend): Backends {
  const isCandidate = candidateTest(frontend);
  return found.withMutations((result) => {
    everyDifference(all, backends, (before, after) => {
      if (after !== undefined && isCandidate(after)) result.set(after.address, after);
      else if (before !== undefined) result.delete(before.address);
      return true;
    });
  });
}

/** Returns a backend of a frontend as text. */
function backendText({ portName, protocol }: Frontend, backend: Backend | undefined): string | undefined {
  const at = backend?.ports.get(portName);
  return backend && at && formatFrontend({ ip: backend.address, port: at.port, protocol });
}

function anyPortOf(ip: string): string {
  return formatFrontend({ ip, port: 0, protocol: 0 });
}

/**
 * Computes the desired frontends and their backends on this node from the events of a service cache. Keys are written
 * by `formatFrontend`. If two services claim a frontend, the winner does not depend on the order of events. Backends
 * are selected on each read; if there are many, only the changed ones are formatted. Each cluster IP has one more item,
 * for port 0 of protocol 0, which refuses the ports that no service has.
 */
export class DesiredServices implements DesiredItems<ServiceItem> {
  readonly #options: DesiredServicesOptions;
  readonly #index: FrontendIndex;
  /** Cluster IPs by service, and the number of services of each. */
  readonly #clusterIPs = new Map<string, Iterable<string>>();
  readonly #ipUsers = new Map<string, number>();
  /** By name. */
  readonly #services = new Map<string, KnownService>();
  /** By frontend with {@link MIN_KEPT_TEXTS} backends or more: their texts, and the selection that they are of. */
  readonly #lists = new Map<
    string,
    { readonly portName: string; readonly selected: Backends; readonly texts: readonly string[] }
  >();
  /** Services whose frontends exist on some nodes only. */
  readonly #restricted = new Map<string, Service>();
  #nodeLabels: NodeLabels | undefined;
  #inputs: KnownInputs = NOTHING_KNOWN;

  constructor(options: DesiredServicesOptions) {
    this.#options = options;
    const { nodePort, frontends = 'all' } = options;
    this.#index = new FrontendIndex(nodePort, ({ kind }) => frontends === 'all' || kind !== 'cluster-ip');
  }

  /** Sets the addresses that answer on node ports. Returns the frontends which may have changed. */
  setNodePort(nodePort: NodePortOptions): ReadonlySet<string> {
    return this.#index.setNodePort(nodePort);
  }

  /**
   * Sets the labels of the local node. Before the first call, services whose frontends exist on some nodes only are
   * omitted. Returns the frontends that may have changed.
   */
  setNodeLabels(labels: NodeLabels): ReadonlySet<string> {
    const touched = new Set<string>();
    const before = new Map(Array.from(this.#restricted, ([name, service]) => [name, this.#isHere(service)]));
    this.#nodeLabels = labels;
    for (const [name, service] of this.#restricted) {
      if (before.get(name) === this.#isHere(service)) continue;
      this.#setFrontends(name, service, touched);
      for (const frontend of this.#frontendsOf(service)) touched.add(frontend);
    }
    return touched;
  }

  setInputs(inputs: KnownInputs): void {
    this.#inputs = inputs;
  }

  /**
   * Returns true if all inputs of a frontend are known, so that the state of an earlier process may be replaced. A
   * service that uses no remote cluster need not wait for remote clusters. For an unknown frontend, also returns false
   * until the cache has announced all services and, if one of them exists on some nodes only, the labels of this node
   * are known.
   */
  isComplete(key: string): boolean {
    const { isLocalComplete, areClustersKnown, isSynced } = this.#inputs;
    const match = this.#index.get(key);
    const areLabelsKnown = this.#nodeLabels !== undefined || this.#restricted.size === 0;
    if (match === undefined) return isLocalComplete && isSynced && areLabelsKnown;
    return isLocalComplete && (areClustersKnown || !this.#usesClusters(match));
  }

  get size(): number {
    return this.#index.size + this.#ipUsers.size;
  }

  /** Returns the names of services with session affinity, such as `shop/web`; unordered. Linear. */
  affinityServices(): readonly string[] {
    return this.#namesOf(({ sessionAffinitySeconds }) => sessionAffinitySeconds > 0);
  }

  /** Returns the names of services with node ports, external IPs or load-balancer addresses; unordered. Linear. */
  externalServices(): readonly string[] {
    return this.#namesOf(isExternal);
  }

  get(key: string): ServiceItem | undefined {
    const match = this.#index.get(key);
    if (match !== undefined) return this.#itemOf(match);
    this.#lists.delete(key);
    const ip = this.#ipUsers.size > 0 ? ANY_PORT.exec(key)?.[1] : undefined;
    return ip !== undefined && this.#ipUsers.has(ip) ? REFUSED : undefined;
  }

  *entries(): Generator<readonly [string, ServiceItem], void, void> {
    for (const key of this.#index.frontends()) {
      const item = this.get(key);
      if (item !== undefined) yield [key, item];
    }
    for (const ip of this.#ipUsers.keys()) yield [anyPortOf(ip), REFUSED];
  }

  /** Returns a listener for the events of a cache that marks the frontends that may have changed. */
  listener(mark: (frontend: string) => void): ServiceListener {
    return {
      onEvents: (events) => {
        for (const event of events) this.#apply(event, mark);
      },
    };
  }

  #apply(
    { action, id, service, oldService, endpoints }: ServiceEvent,
    mark: (frontend: string) => void,
  ): void {
    const name = formatServiceID(id);
    const isGone = action === 'delete';
    if (!isGone && isRestricted(service)) this.#restricted.set(name, service);
    else this.#restricted.delete(name);
    if (isGone) this.#services.delete(name);
    else {
      const known = this.#services.get(name);
      const candidates = known?.service === service ? known.candidates : undefined;
      this.#services.set(name, { service, backends: endpoints.backends, candidates });
    }
    const touched = new Set<string>();
    this.#setFrontends(name, isGone ? undefined : service, touched);
    for (const one of new Set([service, oldService])) {
      if (one !== undefined) for (const frontend of this.#frontendsOf(one)) touched.add(frontend);
    }
    for (const frontend of touched) mark(frontend);
  }

  #backendsOf(id: ServiceID): Backends {
    return this.#services.get(formatServiceID(id))?.backends ?? NO_BACKENDS;
  }

  /**
   * Returns the backends from which those of a frontend are selected. As in kube-proxy, a backend without the port or
   * of the other family excludes no other.
   */
  #candidatesOf({ id, frontend }: ServedFrontend): Backends {
    const known = this.#services.get(formatServiceID(id));
    if (known === undefined) return NO_BACKENDS;
    const { backends } = known;
    const newCandidates = (): Backends => filterBackends(backends, candidateTest(frontend));
    if (backends.size < MIN_KEPT_TEXTS) {
      known.candidates = undefined;
      return newCandidates();
    }
    const { ip, portName, protocol } = frontend;
    const key = `${ip.includes(':') ? 6 : 4} ${protocol} ${portName}`;
    known.candidates ??= new Map();
    const kept = known.candidates.get(key);
    const found = kept === undefined ? newCandidates() : withChanges(kept, backends, frontend);
    known.candidates.set(key, { all: backends, found });
    return found;
  }

  #namesOf(isWanted: (service: Service) => boolean): readonly string[] {
    return [...this.#services].flatMap(([name, { service }]) => (isWanted(service) ? [name] : []));
  }

  /** Returns true if the local node has the frontends of a service. */
  #isHere(service: Service): boolean {
    if (!isRestricted(service)) return true;
    return this.#nodeLabels !== undefined && isExposedOn(service, this.#nodeLabels);
  }

  /**
   * Stores the frontends of a service, none if the local node has none. For each cluster IP that the service gains or
   * loses, adds the frontend of all its ports to `touched`.
   */
  #setFrontends(name: string, service: Service | undefined, touched: Set<string>): void {
    const here = service !== undefined && this.#isHere(service) ? service : undefined;
    this.#index.update(name, here);
    if (this.#options.frontends === 'external') return;
    const before = new Set(this.#clusterIPs.get(name));
    const after = new Set(here !== undefined && isExposed(here, 'ClusterIP') ? here.clusterIPs : NONE);
    if (after.size === 0) this.#clusterIPs.delete(name);
    else this.#clusterIPs.set(name, after);
    for (const ip of after) {
      if (before.delete(ip)) continue;
      this.#ipUsers.set(ip, (this.#ipUsers.get(ip) ?? 0) + 1);
      touched.add(anyPortOf(ip));
    }
    for (const ip of before) {
      const left = (this.#ipUsers.get(ip) ?? 0) - 1;
      if (left > 0) this.#ipUsers.set(ip, left);
      else this.#ipUsers.delete(ip);
      touched.add(anyPortOf(ip));
    }
  }

  #frontendsOf(service: Service): readonly string[] {
    return this.#index.indexedFrontendsOf(service).map(formatFrontend);
  }

  #itemOf(match: ServedFrontend): ServiceItem {
    const { service, frontend } = match;
    const { nodeName, clients: client } = this.#options;
    const context = { service, frontend: frontend.kind, client, nodeName, zone: '' };
    return {
      backends: this.#listOf(frontend, selectBackends(this.#candidatesOf(match), context)),
      affinitySeconds: service.sessionAffinitySeconds,
      masquerade: this.#isMasqueraded(service, frontend.kind),
      sources: this.#sourcesOf(service, frontend),
    };
  }

  /** Returns the backends of a frontend as texts: the kept ones, with the changes of the selection since then. */
  #listOf(frontend: Frontend, selected: Backends): readonly string[] {
    const key = formatFrontend(frontend);
    const { portName } = frontend;
    const kept = this.#lists.get(key);
    const base = kept?.portName === portName ? kept : { selected: NO_BACKENDS, texts: NONE };
    const removed = new Set<string>();
    const added: string[] = [];
    everyDifference(base.selected, selected, (old, next) => {
      const [before, after] = [backendText(frontend, old), backendText(frontend, next)];
      if (before === after) return true;
      if (before !== undefined) removed.add(before);
      if (after !== undefined) added.push(after);
      return true;
    });
    const staying = removed.size === 0 ? base.texts : base.texts.filter((text) => !removed.has(text));
    const texts = added.length === 0 ? staying : [...staying, ...added.sort()].sort();
    if (texts.length < MIN_KEPT_TEXTS) this.#lists.delete(key);
    else this.#lists.set(key, { portName, selected, texts });
    return texts;
  }

  /** Returns the clients of a frontend. As in Cilium, ranges apply to external addresses and clients outside only. */
  #sourcesOf(service: Service, { kind, ip }: Frontend): SourceRanges | undefined {
    const { sourceRanges, sourceRangesPolicy: policy } = service;
    const { clients, limitsNodePorts = false } = this.#options;
    const isLimited =
      kind === 'ingress-ip' || kind === 'external-ip' || (kind === 'node-port' && limitsNodePorts);
    if (sourceRanges === undefined || clients === 'inside' || !isLimited) return undefined;
    return { policy, ranges: [...sourceRanges].filter((range) => range.includes(':') === ip.includes(':')) };
  }

  /** Returns true if backends on other nodes answer through this host. With policy `Local` there are none. */
  #isMasqueraded({ externalTrafficPolicy }: Service, kind: FrontendKind): boolean {
    return this.#options.clients === 'outside' && kind !== 'cluster-ip' && externalTrafficPolicy !== 'Local';
  }

  /** Returns true if a frontend may have backends of remote clusters. */
  #usesClusters({ id, service, frontend: { kind } }: ServedFrontend): boolean {
    if (!service.global) return false;
    if (kind === 'cluster-ip' && service.internalTrafficPolicy === 'Local') return false;
    const backends = this.#backendsOf(id);
    const prefersLocal = service.affinity === 'local' && backends.some(({ state }) => state === 'active');
    return !(prefersLocal && backends.every(({ cluster }) => cluster === ''));
  }
}
