import type { ClusterService, ClusterServiceKey } from '../../../src/net/cluster-service.ts';
import type { Backend, EndpointSlice } from '../../../src/servicecache/backend.ts';
import type { Service } from '../../../src/servicecache/service.ts';
import type { ServiceID } from '../../../src/servicecache/service-id.ts';
import { nameOf, plain } from './plain.ts';

interface NaiveClaim {
  readonly cluster: string;
  readonly slice: string;
  readonly backend: unknown;
  readonly active: boolean;
}

function ascending(a: string, b: string): number {
  return a < b ? -1 : Number(a > b);
}

/**
 * SEMANTICS 3 in the most obvious way: keeps the inputs as they are, and works everything out from scratch
 * whenever it is asked. Only whether a service has been announced depends on the past.
 */
export class NaiveServiceCache {
  readonly #clusterName: string;
  readonly #nodePorts: boolean;
  readonly #services = new Map<string, Service>();
  readonly #slices = new Map<string, Map<string, EndpointSlice>>();
  readonly #offers = new Map<string, Map<string, ClusterService>>();
  readonly #announced = new Set<string>();
  #synced = false;

  constructor(clusterName: string, nodePorts: boolean) {
    this.#clusterName = clusterName;
    this.#nodePorts = nodePorts;
  }

  updateService(service: Service): void {
    const reachable =
      service.addressing !== 'unassigned' || (this.#nodePorts && service.externalIPs.size > 0);
    const supported = service.type !== 'ExternalName' && service.type !== 'unknown';
    if (reachable && supported) this.#services.set(nameOf(service.id), this.#served(service));
    else this.#services.delete(nameOf(service.id));
    this.#settle();
  }

  deleteService(id: ServiceID): void {
    this.#services.delete(nameOf(id));
    this.#settle();
  }

  updateEndpoints(slice: EndpointSlice): void {
    const key = nameOf(slice.service);
    this.#slices.set(key, (this.#slices.get(key) ?? new Map()).set(slice.name, slice));
    this.#settle();
  }

  deleteEndpoints(id: ServiceID, sliceName: string): void {
    this.#slices.get(nameOf(id))?.delete(sliceName);
    this.#settle();
  }

  mergeExternalServiceUpdate(offer: ClusterService): void {
    if (offer.cluster === this.#clusterName || offer.cluster === '') return;
    if (!offer.shared) {
      this.mergeExternalServiceDelete(offer);
      return;
    }
    const key = nameOf(offer);
    this.#offers.set(key, (this.#offers.get(key) ?? new Map()).set(offer.cluster, offer));
    this.#settle();
  }

  mergeExternalServiceDelete(offer: ClusterServiceKey): void {
    if (offer.cluster === this.#clusterName || offer.cluster === '') return;
    this.#offers.get(nameOf(offer))?.delete(offer.cluster);
    this.#settle();
  }

  withdrawCluster(cluster: string): void {
    for (const offers of this.#offers.values()) offers.delete(cluster);
    this.#settle();
  }

  markSynced(): void {
    this.#synced = true;
    this.#settle();
  }

  /** Announced services as plain values: key → service and effective backends by address. */
  view(): ReadonlyMap<string, unknown> {
    const view = new Map<string, unknown>();
    for (const key of [...this.#announced].sort(ascending)) {
      view.set(key, plain({ service: this.#services.get(key), backends: this.#selected(key) }));
    }
    return view;
  }

  isReady(key: string): boolean {
    return (this.#slices.get(key)?.size ?? 0) > 0 || this.#winners(key).size > 0;
  }

  /** Announced stays announced while the service is known. */
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

  /** All claims that count, the strongest of each address first: local, then clusters, then slices by name. */
  #claims(key: string): readonly (readonly [string, NaiveClaim])[] {
    const service = this.#services.get(key);
    const claims: [string, NaiveClaim][] = [];
    const add = (cluster: string, slice: string, backend: Backend): void => {
      const active = backend.state === 'active';
      claims.push([backend.address, { cluster, slice, backend: plain(backend), active }]);
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
        const backend = { address, ports, nodeName: '', zone, hostname, state: 'active', forZones, cluster };
        claims.push([address, { cluster, slice: '', backend: plain(backend), active: true }]);
      }
    }
    return claims.sort(([, a], [, b]) => ascending(a.cluster, b.cluster) || ascending(a.slice, b.slice));
  }

  #winners(key: string): ReadonlyMap<string, NaiveClaim> {
    const winners = new Map<string, NaiveClaim>();
    for (const [address, claim] of this.#claims(key)) if (!winners.has(address)) winners.set(address, claim);
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
