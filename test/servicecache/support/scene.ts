import { Map as ImmutableMap, List } from 'immutable';
import type { ClusterService } from '../../../src/model/cluster-service.ts';
import type { PortProtocol } from '../../../src/net/port.ts';
import { type Backend, createBackend, type EndpointSlice } from '../../../src/servicecache/backend.ts';
import type { ServiceEvent } from '../../../src/servicecache/events.ts';
import { createService, type Service, type ServicePort } from '../../../src/servicecache/service.ts';
import { ServiceCache, type ServiceCacheOptions } from '../../../src/servicecache/service-cache.ts';
import { formatServiceID, type ServiceID } from '../../../src/servicecache/service-id.ts';

const TCP = 6;

/** The service of most tests. */
export const SHOP: ServiceID = { namespace: 'shop', name: 'checkout' };

/** A cache of cluster `own`. */
export function cacheOf(options: Partial<ServiceCacheOptions> = {}): ServiceCache {
  return new ServiceCache({ clusterName: 'own', ...options });
}

/** Returns `shop/checkout` on 172.16.0.10:80, with changed fields. */
export function service(fields: Partial<Service> = {}): Service {
  return createService({
    id: SHOP,
    addressing: 'assigned',
    clusterIPs: List(['172.16.0.10']),
    ports: ImmutableMap<string, ServicePort>({ http: { port: 80, protocol: TCP, nodePort: 0 } }),
    ...fields,
  });
}

/**
 * Returns a slice of that service with active backends on port 8080, or with the given fields for an address.
 */
export function slice(
  name: string,
  addresses: readonly string[] | Readonly<Record<string, Partial<Backend>>>,
  port = 8080,
): EndpointSlice {
  const entries: readonly (readonly [string, Partial<Backend>])[] = Array.isArray(addresses)
    ? addresses.map((address) => [address, {}])
    : Object.entries(addresses);
  const all = entries.map(
    ([address, fields]): Backend =>
      createBackend({
        address,
        ports: ImmutableMap<string, PortProtocol>({ http: { port, protocol: TCP } }),
        ...fields,
      }),
  );
  const byAddress = (notReady: boolean): EndpointSlice['backends'] =>
    ImmutableMap(
      all.filter(({ state }) => (state === 'not-ready') === notReady).map((each) => [each.address, each]),
    );
  return { service: SHOP, name, backends: byAddress(false), notReady: byAddress(true) };
}

/** Returns the offer of a remote cluster for that service. */
export function offer(cluster: string, addresses: readonly string[], port = 8080): ClusterService {
  return {
    cluster,
    ...SHOP,
    frontends: new Map(),
    backends: new Map(addresses.map((address) => [address, new Map([['http', { port, protocol: TCP }]])])),
    labels: new Map(),
    selector: new Map(),
    includeExternal: true,
    shared: true,
    clusterID: 2,
  };
}

/** Subscribes, and lists the events as short text: `update shop/checkout 10.0.0.1:8080`. */
export function transcript(cache: ServiceCache): string[] {
  const lines: string[] = [];
  const describe = ({ action, id, endpoints }: ServiceEvent): string => {
    const backends = [...endpoints.backends.values()]
      .map(
        (each) =>
          `${each.cluster}${each.cluster && '/'}${each.address}:${[...each.ports.values()].map(({ port }) => port)}`,
      )
      .sort();
    return [action, formatServiceID(id), ...backends].join(' ');
  };
  cache.subscribe({
    onEvents: (events) => {
      lines.push(...events.map(describe));
    },
  });
  return lines;
}
