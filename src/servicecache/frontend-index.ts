import { ascending, SortedMap } from '../base/sorted-map.ts';
import { canonicalAddress } from '../net/prefix.ts';
import { type Frontend, formatFrontend, frontendsOf, type NodePortOptions } from './frontends.ts';
import { equalServicePorts, type Service } from './service.ts';
import type { ServiceID } from './service-id.ts';

/** The service of an address, port and protocol. */
export interface FrontendMatch {
  readonly id: ServiceID;
  readonly service: Service;
  readonly frontend: Frontend;
  /** Other services with the same frontend, in order of rank; normally empty. */
  readonly overruled: readonly ServiceID[];
}

/** A frontend, and the service that has the strongest claim on it. */
export type ServedFrontend = Omit<FrontendMatch, 'overruled'>;

/** The claim of a service on a frontend. */
interface FrontendClaim {
  /** The key of the service, `namespace/name`. */
  readonly key: string;
  readonly frontend: Frontend;
}

/** Cluster IPs rank first because Kubernetes allocates them and they are unique. External IPs are written by users. */
const KIND_RANK: Readonly<Record<Frontend['kind'], number>> = {
  'cluster-ip': 0,
  'node-port': 1,
  'ingress-ip': 2,
  'external-ip': 3,
};

function compareClaims(a: FrontendClaim, b: FrontendClaim): number {
  return KIND_RANK[a.frontend.kind] - KIND_RANK[b.frontend.kind] || ascending(a.key, b.key);
}

/** Returns the rank: a text whose ascending order is that of {@link compareClaims}. */
function rankOf({ key, frontend }: FrontendClaim): string {
  return `${KIND_RANK[frontend.kind]} ${key}`;
}

/** Returns a service without those external and ingress IPs that `other` has, too, on the same ports. */
function withoutIPsOf(service: Service, other: Service): Service {
  const { externalIPs, ingressIPs } = other;
  if (
    !equalServicePorts(service.ports, other.ports) ||
    service.addressing !== other.addressing ||
    service.exposedType !== other.exposedType
  )
    return service;
  return {
    ...service,
    externalIPs: service.externalIPs.filter((ip) => !externalIPs.has(ip)),
    ingressIPs: service.ingressIPs.filter((ip) => !ingressIPs.has(ip)),
  };
}

/**
 * Finds services by frontend. Services with the same frontend are ranked by kind (cluster IP, node port, ingress IP,
 * external IP), then by `namespace/name`, so that the result does not depend on the order of updates.
 */
export class FrontendIndex {
  #nodePort: NodePortOptions;
  readonly #isIndexed: (frontend: Frontend) => boolean;
  /** The strongest claim on each frontend, as formatted by {@link formatFrontend}. */
  readonly #effective = new Map<string, FrontendClaim>();
  /** The other claims on a frontend, by rank; few frontends have any. */
  readonly #overruled = new Map<string, SortedMap<string, FrontendClaim>>();
  /** The indexed services by `namespace/name`. */
  readonly #indexed = new Map<string, Service>();
  /** The frontends of each IP, as formatted by {@link formatFrontend}. */
  readonly #byAddress = new Map<string, Set<string>>();

  /** Indexes the frontends for which `isIndexed` returns true; by default all. */
  constructor(nodePort: NodePortOptions, isIndexed: (frontend: Frontend) => boolean = () => true) {
    this.#nodePort = nodePort;
    this.#isIndexed = isIndexed;
  }

  indexedFrontendsOf(service: Service): readonly Frontend[] {
    return frontendsOf(service, this.#nodePort).filter(this.#isIndexed);
  }

  /** Sets or removes the service with the key `namespace/name`. The cost is linear in its frontends. */
  update(key: string, service: Service | undefined): void {
    const old = this.#indexed.get(key);
    if (old === service) return;
    if (service === undefined) this.#indexed.delete(key);
    else this.#indexed.set(key, service);
    const isUpdate = old !== undefined && service !== undefined;
    if (old !== undefined) this.#remove(key, isUpdate ? withoutIPsOf(old, service) : old);
    if (service !== undefined) this.#add(key, isUpdate ? withoutIPsOf(service, old) : service);
  }

  /**
   * Sets the addresses of node ports. Returns the frontends, as formatted by {@link formatFrontend}, that a service
   * gained or lost; each may now belong to another service. The cost is linear in the services and in the frontends of
   * those with node ports.
   */
  setNodePort(nodePort: NodePortOptions): ReadonlySet<string> {
    const changedFrontends = new Set<string>();
    const withNodePorts = [...this.#indexed].filter(([, { ports }]) =>
      ports.some((port) => port.nodePort !== 0),
    );
    for (const [, service] of withNodePorts) {
      const before = new Set(frontendsOf(service, this.#nodePort).map(formatFrontend));
      const after = new Set(frontendsOf(service, nodePort).map(formatFrontend));
      for (const text of before) if (!after.has(text)) changedFrontends.add(text);
      for (const text of after) if (!before.has(text)) changedFrontends.add(text);
    }
    for (const [key, service] of withNodePorts) this.#remove(key, service);
    this.#nodePort = nodePort;
    for (const [key, service] of withNodePorts) this.#add(key, service);
    return changedFrontends;
  }

  /** Returns the service of an address in any spelling. The match is exact: `0.0.0.0` is no wildcard. */
  lookup(ip: string, port: number, protocol: number): FrontendMatch | undefined {
    const address = canonicalAddress(ip);
    if (address === undefined) return undefined;
    const text = formatFrontend({ ip: address, port, protocol });
    const match = this.get(text);
    if (match === undefined) return undefined;
    // A service can have several claims on a frontend, such as a node port and an external IP.
    const others = new Set(this.#overruledOn(text).map((claim) => this.#serviceOf(claim).id));
    others.delete(match.id);
    return { ...match, overruled: [...others] };
  }

  /**
   * Returns the services of all frontends on an IP in any spelling, ordered by kind, `namespace/name` and port. Each
   * service has its own match, so `overruled` is always empty.
   */
  ofAddress(ip: string): readonly FrontendMatch[] {
    const texts = this.#byAddress.get(canonicalAddress(ip) ?? '') ?? [];
    return [...texts]
      .flatMap((text) => [this.#effective.get(text) ?? [], this.#overruledOn(text)].flat())
      .sort((a, b) => compareClaims(a, b) || a.frontend.port - b.frontend.port)
      .map((claim) => ({ ...this.#matchOf(claim), overruled: [] }));
  }

  /** Returns all frontends, as formatted by {@link formatFrontend}. */
  frontends(): IterableIterator<string> {
    return this.#effective.keys();
  }

  get size(): number {
    return this.#effective.size;
  }

  /** Returns the service of a frontend, as formatted by {@link formatFrontend}. */
  get(text: string): ServedFrontend | undefined {
    const claim = this.#effective.get(text);
    return claim && this.#matchOf(claim);
  }

  #matchOf(claim: FrontendClaim): ServedFrontend {
    const service = this.#serviceOf(claim);
    return { id: service.id, service, frontend: claim.frontend };
  }

  #serviceOf({ key }: FrontendClaim): Service {
    return this.#indexed.get(key) as Service; // each claim is of an indexed service
  }

  /** Returns the claims on a frontend except the strongest one, by rank. */
  #overruledOn(text: string): readonly FrontendClaim[] {
    return Array.from(this.#overruled.get(text)?.from('') ?? [], ([, claim]) => claim);
  }

  #add(key: string, service: Service): void {
    for (const frontend of this.indexedFrontendsOf(service)) {
      const text = formatFrontend(frontend);
      const effective = this.#effective.get(text);
      if (effective !== undefined) {
        this.#addOther(text, effective, { key, frontend });
        continue;
      }
      this.#effective.set(text, { key, frontend });
      const ofAddress = this.#byAddress.get(frontend.ip);
      if (ofAddress === undefined) this.#byAddress.set(frontend.ip, new Set([text]));
      else ofAddress.add(text);
    }
  }

  /** Adds a claim on a frontend that has an effective one. Of two equal ports of a service, the first one stays. */
  #addOther(text: string, effective: FrontendClaim, claim: FrontendClaim): void {
    const order = compareClaims(claim, effective);
    const overruled = this.#overruled.get(text) ?? new SortedMap<string, FrontendClaim>(ascending);
    if (order === 0 || overruled.get(rankOf(claim)) !== undefined) return;
    const weaker = order < 0 ? effective : claim;
    if (order < 0) this.#effective.set(text, claim);
    overruled.set(rankOf(weaker), weaker);
    this.#overruled.set(text, overruled);
  }

  #remove(key: string, service: Service): void {
    for (const frontend of this.indexedFrontendsOf(service)) {
      const text = formatFrontend(frontend);
      const overruled = this.#overruled.get(text);
      const effective = this.#effective.get(text);
      if (effective?.key === key && effective.frontend.kind === frontend.kind)
        this.#removeEffective(text, effective, overruled);
      else overruled?.delete(rankOf({ key, frontend }));
      if (overruled?.size === 0) this.#overruled.delete(text);
    }
  }

  /** Removes the effective claim on a frontend. The strongest of the others becomes effective. */
  #removeEffective(
    text: string,
    { frontend }: FrontendClaim,
    overruled: SortedMap<string, FrontendClaim> | undefined,
  ): void {
    const rank = overruled?.first;
    const next = rank === undefined ? undefined : overruled?.get(rank);
    if (rank !== undefined && next !== undefined) {
      this.#effective.set(text, next);
      overruled?.delete(rank);
      return;
    }
    this.#effective.delete(text);
    const ofAddress = this.#byAddress.get(frontend.ip);
    ofAddress?.delete(text);
    if (ofAddress?.size === 0) this.#byAddress.delete(frontend.ip);
  }
}
