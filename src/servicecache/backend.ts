import { Map as ImmutableMap, Set as ImmutableSet, is } from 'immutable';
import type { PortProtocol } from '../net/port.ts';
import type { ServiceID } from './service-id.ts';

/** Ports by name; the empty name is a name. Several names may share one port and protocol. */
export type Ports = ImmutableMap<string, PortProtocol>;

/** No ports. */
export const NO_PORTS: Ports = ImmutableMap();

/** No zones. */
export const NO_ZONES: ImmutableSet<string> = ImmutableSet();

/**
 * How a backend stands. `active`: takes new connections. `terminating`: on its way out but still serving, a
 * last resort for new connections. `not-ready`: serves only where the service publishes it nevertheless.
 */
export type BackendState = 'active' | 'terminating' | 'not-ready';

/** One address that serves a service. Immutable. */
export interface Backend {
  /** Canonical text. */
  readonly address: string;
  readonly ports: Ports;
  /** The node it runs on, `''` when that is not known, as for all backends of another cluster. */
  readonly nodeName: string;
  /** `''` when not known. */
  readonly zone: string;
  /** The host name of the pod, for headless services; `''` when there is none. */
  readonly hostname: string;
  readonly state: BackendState;
  /** Zones whose clients should use this backend (topology hints); empty when there are none. */
  readonly forZones: ImmutableSet<string>;
  /** The remote cluster that offers it; `''` is this cluster. `''` sorts first: local wins (I4). */
  readonly cluster: string;
}

/** Backends by canonical address. */
export type Backends = ImmutableMap<string, Backend>;

/** No backends. */
export const NO_BACKENDS: Backends = ImmutableMap();

/** Where a service's traffic goes. */
export interface Endpoints {
  readonly backends: Backends;
}

/** No endpoints; one object, so that it can be compared by identity. */
export const NO_ENDPOINTS: Endpoints = { backends: NO_BACKENDS };

/**
 * Some of the local backends of a service: one Kubernetes `EndpointSlice`, or a whole `Endpoints` object (its
 * slice name is then the object's name).
 */
export interface EndpointSlice {
  readonly service: ServiceID;
  /** Unique within the service. */
  readonly name: string;
  readonly backends: Backends;
  /** Those that are not ready: used only where the service asks to publish them. No address is in both. */
  readonly notReady: Backends;
}

/** The fields a backend usually leaves at their defaults. */
export const BACKEND_DEFAULTS: Omit<Backend, 'address' | 'ports'> = {
  nodeName: '',
  zone: '',
  hostname: '',
  state: 'active',
  forZones: NO_ZONES,
  cluster: '',
};

/** Whether two sets of ports hold the same names with the same ports. Cheap when they share their map. */
export function equalPorts(a: Ports, b: Ports): boolean {
  if (a === b) return true;
  if (a.size !== b.size) return false;
  return a.every((port, name) => {
    const other = b.get(name);
    return other !== undefined && other.port === port.port && other.protocol === port.protocol;
  });
}

/** Whether two backends say the same (I3). */
export function equalBackends(a: Backend, b: Backend): boolean {
  return (
    a === b ||
    (a.address === b.address &&
      a.state === b.state &&
      a.cluster === b.cluster &&
      a.nodeName === b.nodeName &&
      a.zone === b.zone &&
      a.hostname === b.hostname &&
      equalPorts(a.ports, b.ports) &&
      is(a.forZones, b.forZones))
  );
}

/** Whether two sets of backends say the same. Cost: the size of the set, nothing when they are one object. */
export function equalBackendMaps(a: Backends, b: Backends): boolean {
  if (a === b) return true;
  if (a.size !== b.size) return false;
  return a.every((backend, address) => {
    const other = b.get(address);
    return other !== undefined && equalBackends(backend, other);
  });
}

/**
 * `next` with the parts of `previous` that say the same, so that what is equal is one object; `previous` itself
 * when all of it is. Costs the size of the slice.
 */
export function shareSlice(previous: EndpointSlice | undefined, next: EndpointSlice): EndpointSlice {
  if (previous === undefined || previous === next) return next;
  const sameBackends = equalBackendMaps(previous.backends, next.backends);
  const sameNotReady = equalBackendMaps(previous.notReady, next.notReady);
  if (sameBackends && sameNotReady) return previous;
  return {
    ...next,
    backends: sameBackends ? previous.backends : next.backends,
    notReady: sameNotReady ? previous.notReady : next.notReady,
  };
}
