import { ascending, lowerBound } from '../base/sorted-map.ts';
import { canonicalAddress } from '../net/prefix.ts';
import { type Frontend, formatFrontend, frontendsOf, type NodePortOptions } from './frontends.ts';
import type { Service } from './service.ts';
import type { ServiceID } from './service-id.ts';

/** The service of an address, port and protocol. */
export interface FrontendMatch {
  readonly id: ServiceID;
  readonly service: Service;
  readonly frontend: Frontend;
  /** Other services with the same frontend, in order of rank; normally empty. */
  readonly overruled: readonly ServiceID[];
}

interface FrontendClaim {
  /** The key of the service, `namespace/name`. */
  readonly key: string;
  readonly service: Service;
  readonly frontend: Frontend;
}

/** Cluster IPs rank first because Kubernetes allocates them and they are unique. Users write the others. */
const KIND_RANK: Readonly<Record<Frontend['kind'], number>> = {
  'cluster-ip': 0,
  'node-port': 1,
  'ingress-ip': 2,
  'external-ip': 3,
};

function compareClaims(a: FrontendClaim, b: FrontendClaim): number {
  return KIND_RANK[a.frontend.kind] - KIND_RANK[b.frontend.kind] || ascending(a.key, b.key);
}

/** Returns the position after all claims that rank before or equal to `claim`. */
function endOfRank(claims: readonly FrontendClaim[], claim: FrontendClaim): number {
  return lowerBound(claims, (other) => compareClaims(other, claim) <= 0);
}

/**
 * Finds services by frontend. Services with the same frontend are ranked by kind (cluster IP, node port, ingress IP,
 * external IP), then by `namespace/name`, so that the result does not depend on the order of updates.
 */
export class FrontendIndex {
  #nodePort: NodePortOptions;
  readonly #isIndexed: (frontend: Frontend) => boolean;
  /** The claims on each frontend, as formatted by {@link formatFrontend}, by rank. */
  readonly #claims = new Map<string, FrontendClaim[]>();
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
    if (old !== undefined) this.#remove(key, old);
    if (service === undefined) this.#indexed.delete(key);
    else this.#add(key, service);
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
    return address === undefined ? undefined : this.get(formatFrontend({ ip: address, port, protocol }));
  }

  /**
   * Returns the services of all frontends on an IP in any spelling, ordered by rank, `namespace/name` and port. Each
   * service has its own match, so `overruled` is always empty.
   */
  ofAddress(ip: string): readonly FrontendMatch[] {
    const texts = this.#byAddress.get(canonicalAddress(ip) ?? '') ?? [];
    const claims = [...texts].flatMap((text) => this.#claims.get(text) ?? []);
    return claims
      .sort((a, b) => compareClaims(a, b) || a.frontend.port - b.frontend.port)
      .map(({ service, frontend }) => ({ id: service.id, service, frontend, overruled: [] }));
  }

  /** Returns all frontends, as formatted by {@link formatFrontend}. */
  frontends(): IterableIterator<string> {
    return this.#claims.keys();
  }

  get size(): number {
    return this.#claims.size;
  }

  /** Returns the service of a frontend, as formatted by {@link formatFrontend}. */
  get(text: string): FrontendMatch | undefined {
    const [first, ...rest] = this.#claims.get(text) ?? [];
    if (first === undefined) return undefined;
    // A service can have several claims on a frontend, such as a node port and an external IP.
    const others = new Map(rest.map(({ key, service }) => [key, service.id]));
    others.delete(first.key);
    return {
      id: first.service.id,
      service: first.service,
      frontend: first.frontend,
      overruled: [...others.values()],
    };
  }

  #add(key: string, service: Service): void {
    this.#indexed.set(key, service);
    for (const frontend of this.indexedFrontendsOf(service)) {
      const text = formatFrontend(frontend);
      const claim = { key, service, frontend };
      const claims = this.#claims.get(text);
      if (claims === undefined) this.#claims.set(text, [claim]);
      else claims.splice(endOfRank(claims, claim), 0, claim);
      const ofAddress = this.#byAddress.get(frontend.ip);
      if (ofAddress === undefined) this.#byAddress.set(frontend.ip, new Set([text]));
      else ofAddress.add(text);
    }
  }

  #remove(key: string, service: Service): void {
    for (const frontend of this.indexedFrontendsOf(service)) {
      const text = formatFrontend(frontend);
      const claims = this.#claims.get(text);
      if (claims === undefined) continue;
      claims.splice(endOfRank(claims, { key, service, frontend }) - 1, 1);
      if (claims.length > 0) continue;
      this.#claims.delete(text);
      const ofAddress = this.#byAddress.get(frontend.ip);
      ofAddress?.delete(text);
      if (ofAddress?.size === 0) this.#byAddress.delete(frontend.ip);
    }
  }
}
