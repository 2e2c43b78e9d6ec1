import { type ClusterEndpointSlice, SERVICE_NAME_LABEL } from '../../../src/model/cluster-endpoint-slice.ts';
import type { ClusterService, ClusterServiceKey } from '../../../src/model/cluster-service.ts';
import type { Backend, EndpointSlice } from '../../../src/servicecache/backend.ts';
import type { Service } from '../../../src/servicecache/service.ts';
import type { RemoteSliceID } from '../../../src/servicecache/service-cache.ts';
import type { ServiceID } from '../../../src/servicecache/service-id.ts';
import { nameOf, plain, text } from './plain.ts';

interface NaiveClaim {
  readonly cluster: string;
  readonly slice: string;
  readonly backend: { readonly ports: object };
  readonly active: boolean;
}

function ascending(a: string, b: string): number {
  return a < b ? -1 : Number(a > b);
}

function byText(a: unknown, b: unknown): number {
  return ascending(text(a), text(b));
}

interface RemoteBackend {
  readonly address: string;
  readonly state: string;
  readonly backend: NaiveClaim['backend'];
}

/**
 * Returns the backends of a slice of a remote cluster: for each address the first that is ready, else the
 * first.
 */
function remoteBackends({ cluster, endpoints, ports }: ClusterEndpointSlice): readonly RemoteBackend[] {
  const all = endpoints.flatMap(({ addresses, conditions, nodeName, zone, hostname, forZones }) =>
    addresses.map((address): RemoteBackend => {
      const leaves = conditions.terminating === true && conditions.serving !== false;
      const state = conditions.ready !== false ? 'active' : leaves ? 'terminating' : 'not-ready';
      const named = Object.fromEntries(ports.map(({ name, port, protocol }) => [name, { port, protocol }]));
      const rest = {
        nodeName: nodeName ?? '',
        zone: zone ?? '',
        hostname: hostname ?? '',
        state,
        weight: 100,
        forZones,
        cluster,
      };
      return { address, state, backend: plain({ address, ports: named, ...rest }) as NaiveClaim['backend'] };
    }),
  );
  const best = (one: RemoteBackend): RemoteBackend | undefined => {
    const same = all.filter(({ address }) => address === one.address);
    return same.find(({ state }) => state !== 'not-ready') ?? same[0];
  };
  return all.filter((one) => best(one) === one);
}

/** {@link plain}, computed once for each backend, because inputs do not change. */
const plainBackends = new WeakMap<object, NaiveClaim['backend']>();

function plainBackend(backend: object): NaiveClaim['backend'] {
  const known = plainBackends.get(backend) ?? (plain(backend) as NaiveClaim['backend']);
  plainBackends.set(backend, known);
  return known;
}

/**
 * A naive model of SEMANTICS 3: stores the inputs unchanged, and computes everything on each read. Only
 * whether a service has been announced depends on the past.
 */
export class NaiveServiceCache {
  readonly #clusterName: string;
  readonly #nodePorts: boolean;
  readonly #services = new Map<string, Service>();
  readonly #slices = new Map<string, Map<string, EndpointSlice>>();
  readonly #offers = new Map<string, Map<string, ClusterService>>();
  /** By service, then by `<cluster>/<slice>`. */
  readonly #remoteSlices = new Map<string, Map<string, ClusterEndpointSlice>>();
  readonly #announced = new Set<string>();
  #synced = false;

  constructor(clusterName: string, nodePorts: boolean) {
    this.#clusterName = clusterName;
    this.#nodePorts = nodePorts;
  }

  updateService(service: Service): string {
    const key = nameOf(service.id);
    const reachable =
      service.addressing !== 'unassigned' || (this.#nodePorts && service.externalIPs.size > 0);
    const supported = service.type !== 'ExternalName' && service.type !== 'unknown';
    const known = text(this.#services.get(key));
    if (reachable && supported) this.#services.set(key, this.#served(service));
    else this.#services.delete(key);
    this.#settle();
    if (!reachable || !supported) return 'unsupported';
    return text(this.#services.get(key)) === known ? 'unchanged' : 'applied';
  }

  deleteService(id: ServiceID): string {
    const found = this.#services.delete(nameOf(id));
    this.#settle();
    return found ? 'applied' : 'not-found';
  }

  updateEndpoints(slice: EndpointSlice): string {
    const key = nameOf(slice.service);
    const known = text(this.#slices.get(key)?.get(slice.name));
    this.#slices.set(key, (this.#slices.get(key) ?? new Map()).set(slice.name, slice));
    this.#settle();
    return text(slice) === known ? 'unchanged' : 'applied';
  }

  deleteEndpoints(id: ServiceID, sliceName: string): string {
    const found = this.#slices.get(nameOf(id))?.delete(sliceName) === true;
    this.#settle();
    return found ? 'applied' : 'not-found';
  }

  mergeExternalServiceUpdate(offer: ClusterService): string {
    if (!offer.shared) {
      const outcome = this.mergeExternalServiceDelete(offer);
      return outcome === 'not-found' ? 'unchanged' : outcome;
    }
    if (offer.cluster === this.#clusterName || offer.cluster === '') return 'invalid';
    const key = nameOf(offer);
    const said = (each: ClusterService | undefined): string =>
      each === undefined ? '' : text([each.backends, each.zones ?? {}, each.hostnames ?? {}]);
    const known = said(this.#offers.get(key)?.get(offer.cluster));
    this.#offers.set(key, (this.#offers.get(key) ?? new Map()).set(offer.cluster, offer));
    this.#settle();
    return said(offer) === known ? 'unchanged' : 'applied';
  }

  mergeExternalServiceDelete(offer: ClusterServiceKey): string {
    if (offer.cluster === this.#clusterName || offer.cluster === '') return 'invalid';
    const found = this.#offers.get(nameOf(offer))?.delete(offer.cluster) === true;
    this.#settle();
    return found ? 'applied' : 'not-found';
  }

  mergeExternalSliceUpdate(slice: ClusterEndpointSlice): string {
    if (slice.cluster === this.#clusterName || slice.cluster === '') return 'invalid';
    const key = nameOf({ namespace: slice.namespace, name: slice.labels.get(SERVICE_NAME_LABEL) ?? '' });
    const said = (each: ClusterEndpointSlice | undefined): string =>
      each === undefined
        ? ''
        : text(
            remoteBackends(each)
              .map(({ backend }) => backend)
              .sort(byText),
          );
    const known = this.#remoteSlices.get(key)?.get(`${slice.cluster}/${slice.name}`);
    const slices = this.#remoteSlices.get(key) ?? new Map<string, ClusterEndpointSlice>();
    this.#remoteSlices.set(key, slices.set(`${slice.cluster}/${slice.name}`, slice));
    this.#settle();
    return known !== undefined && said(slice) === said(known) ? 'unchanged' : 'applied';
  }

  mergeExternalSliceDelete({ cluster, id, name }: RemoteSliceID): string {
    if (cluster === this.#clusterName || cluster === '') return 'invalid';
    const found = this.#remoteSlices.get(nameOf(id))?.delete(`${cluster}/${name}`) === true;
    this.#settle();
    return found ? 'applied' : 'not-found';
  }

  withdrawCluster(cluster: string): string {
    const found = [...this.#offers.values()].filter((offers) => offers.delete(cluster)).length;
    let slices = 0;
    for (const each of this.#remoteSlices.values())
      for (const name of each.keys()) if (name.startsWith(`${cluster}/`) && each.delete(name)) slices++;
    this.#settle();
    return found + slices > 0 ? 'applied' : 'not-found';
  }

  markSynced(): void {
    this.#synced = true;
    this.#settle();
  }

  /** Returns the numbers of objects, counted one by one. */
  counts(): Readonly<Record<string, unknown>> {
    const sizes = (maps: Iterable<ReadonlyMap<string, unknown>>): number =>
      [...maps].reduce((sum, { size }) => sum + size, 0);
    const spokenOf = [this.#slices, this.#offers, this.#remoteSlices].flatMap((maps) =>
      Array.from<[string, ReadonlyMap<string, unknown>]>(maps)
        .filter(([, inner]) => inner.size > 0)
        .map(([key]) => key),
    );
    const offering = spokenOf.flatMap((key) =>
      [...(this.#offers.get(key)?.keys() ?? []), ...(this.#remoteSlices.get(key)?.keys() ?? [])].map(
        (name) => `${key} ${name.split('/')[0]}`,
      ),
    );
    const addresses = [...new Set([...this.#services.keys(), ...spokenOf])].flatMap((key) => {
      const claimed = this.#claims(key).map(([address]) => address);
      return [...new Set(claimed.filter((address, i) => claimed.indexOf(address) !== i))];
    });
    return {
      services: this.#services.size,
      announced: this.#announced.size,
      backends: [...this.#announced].reduce((sum, key) => sum + Object.keys(this.#selected(key)).length, 0),
      contested: addresses.length,
      slices: sizes(this.#slices.values()),
      remoteServices: new Set(offering).size,
      unknown: new Set(spokenOf.filter((key) => !this.#services.has(key))).size,
      synced: this.#synced,
    };
  }

  /**
   * Returns every claim on a backend, as `address cluster/slice verdict`, and every origin with the number of
   * its backends.
   */
  explained(key: string): unknown {
    const service = this.#services.get(key);
    const slices = [...(this.#slices.get(key) ?? [])];
    const offers = [...(this.#offers.get(key) ?? [])];
    const remote = [...(this.#remoteSlices.get(key)?.values() ?? [])];
    if (service === undefined && slices.length + offers.length + remote.length === 0) return undefined;
    const origins = [
      ...slices.map(
        ([slice, { backends, notReady }]) => ['', slice, [...backends.keys(), ...notReady.keys()]] as const,
      ),
      ...offers.map(([cluster, { backends }]) => [cluster, '', [...backends.keys()]] as const),
      ...remote.map(
        (slice) => [slice.cluster, slice.name, remoteBackends(slice).map(({ address }) => address)] as const,
      ),
    ].sort(([a, s], [b, t]) => ascending(a, b) || ascending(s, t));
    const counted = this.#claims(key);
    const winners = this.#winners(key);
    const selected = this.#selected(key);
    const verdict = (cluster: string, slice: string, address: string): string => {
      if (cluster !== '' && service?.global !== true) return 'not-global';
      const counts = counted.some(
        ([claimed, claim]) => claimed === address && claim.cluster === cluster && claim.slice === slice,
      );
      if (!counts) return 'not-ready';
      const winner = winners.get(address);
      if (winner?.cluster !== cluster) return 'overruled';
      if (winner.slice !== slice) return 'merged';
      return address in selected ? 'effective' : 'affinity';
    };
    const claims = origins.flatMap(([cluster, slice, addresses], rank) =>
      addresses.map((address) => ({
        address,
        rank,
        shown: `${address} ${cluster}/${slice} ${verdict(cluster, slice, address)}`,
      })),
    );
    return {
      service: plain(service),
      ready: this.isReady(key),
      announced: this.#announced.has(key),
      origins: origins.map(([cluster, slice, addresses]) => `${cluster}/${slice} ${addresses.length}`),
      claims: claims
        .sort((a, b) => ascending(a.address, b.address) || a.rank - b.rank)
        .map(({ shown }) => shown),
    };
  }

  /** Announced services as texts: key → service and effective backends by address. */
  view(): ReadonlyMap<string, string> {
    const view = new Map<string, string>();
    for (const key of [...this.#announced].sort(ascending)) {
      view.set(key, text({ service: this.#services.get(key), backends: this.#selected(key) }));
    }
    return view;
  }

  isReady(key: string): boolean {
    return (this.#slices.get(key)?.size ?? 0) > 0 || this.#winners(key).size > 0;
  }

  /** An announced service stays announced while it exists. */
  #settle(): void {
    for (const key of this.#announced) if (!this.#services.has(key)) this.#announced.delete(key);
    for (const key of this.#services.keys()) {
      if (this.#synced || this.isReady(key)) this.#announced.add(key);
    }
  }

  #served(service: Service): Service {
    if (this.#nodePorts) return service;
    return {
      ...service,
      type: 'ClusterIP',
      ports: service.ports.map((port) => ({ ...port, nodePort: 0 })),
      externalIPs: service.externalIPs.clear(),
      ingressIPs: service.ingressIPs.clear(),
    };
  }

  /**
   * Returns all claims that count, the strongest of each address first: local, then clusters, then slices by
   * name.
   */
  #claims(key: string): readonly (readonly [string, NaiveClaim])[] {
    const service = this.#services.get(key);
    const claims: [string, NaiveClaim][] = [];
    const add = (cluster: string, slice: string, backend: Backend): void => {
      const active = backend.state === 'active';
      claims.push([backend.address, { cluster, slice, backend: plainBackend(backend), active }]);
    };
    for (const [name, slice] of this.#slices.get(key) ?? []) {
      for (const backend of slice.backends.values()) add('', name, backend);
      if (service?.publishNotReady) for (const backend of slice.notReady.values()) add('', name, backend);
    }
    for (const [cluster, offer] of service?.global ? (this.#offers.get(key) ?? []) : []) {
      for (const [address, ports] of offer.backends) {
        const zone = offer.zones?.get(address)?.zone ?? '';
        const forZones = offer.zones?.get(address)?.forZones ?? [];
        const hostname = offer.hostnames?.get(address) ?? '';
        const backend = {
          address,
          ports,
          nodeName: '',
          zone,
          hostname,
          state: 'active',
          weight: 100,
          forZones,
          cluster,
        };
        claims.push([
          address,
          { cluster, slice: '', backend: plain(backend) as NaiveClaim['backend'], active: true },
        ]);
      }
    }
    for (const slice of service?.global ? (this.#remoteSlices.get(key)?.values() ?? []) : []) {
      for (const { address, state, backend } of remoteBackends(slice)) {
        if (state === 'not-ready' && !service?.publishNotReady) continue;
        const { cluster, name } = slice;
        claims.push([address, { cluster, slice: name, backend, active: state === 'active' }]);
      }
    }
    return claims.sort(([, a], [, b]) => ascending(a.cluster, b.cluster) || ascending(a.slice, b.slice));
  }

  #winners(key: string): ReadonlyMap<string, NaiveClaim> {
    const winners = new Map<string, NaiveClaim>();
    for (const [address, claim] of this.#claims(key)) {
      const winner = winners.get(address);
      if (winner === undefined) winners.set(address, claim);
      else if (winner.cluster === claim.cluster) {
        const ports = { ...claim.backend.ports, ...winner.backend.ports };
        winners.set(address, { ...winner, backend: { ...winner.backend, ports } });
      }
    }
    return winners;
  }

  #selected(key: string): Readonly<Record<string, unknown>> {
    const affinity = this.#services.get(key)?.affinity;
    const winners = [...this.#winners(key)];
    const preferred = winners.filter(([, claim]) =>
      affinity === 'local' ? claim.cluster === '' : claim.cluster !== '',
    );
    const steered = affinity !== 'none' && preferred.some(([, claim]) => claim.active);
    return Object.fromEntries(
      (steered ? preferred : winners).map(([address, { backend }]) => [address, backend]),
    );
  }
}
