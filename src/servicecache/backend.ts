import { Map as ImmutableMap, Set as ImmutableSet, is } from '#immutable';
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

/** What one origin offers, each address once: a map by address, or just a list. */
export interface OfferedBackends {
  values(): IterableIterator<Backend>;
}

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

/** What {@link createBackend} takes. Any iterable will do for a collection: a `Map`, an array, an immutable one. */
export interface BackendFields extends Partial<Omit<Backend, 'address' | 'ports' | 'forZones'>> {
  readonly address: string;
  readonly ports: Iterable<readonly [string, PortProtocol]>;
  readonly forZones?: Iterable<string> | undefined;
}

/** Makes a backend; what is left out is empty, active, and of this cluster. Immutable collections are kept, others copied. */
export function createBackend(fields: BackendFields): Backend {
  const { address, nodeName = '', zone = '', hostname = '', state = 'active', cluster = '' } = fields;
  const ports = ImmutableMap(fields.ports);
  const forZones = ImmutableSet(fields.forZones);
  return backendOf({ address, ports, nodeName, zone, hostname, state, forZones, cluster });
}

/**
 * Makes a backend of all that it is. Always in one shape: the engines of JavaScript compare such objects about ten times
 * faster than those that were put together by spreading.
 */
export function backendOf(fields: Backend): Backend {
  return {
    address: fields.address,
    ports: fields.ports,
    nodeName: fields.nodeName,
    zone: fields.zone,
    hostname: fields.hostname,
    state: fields.state,
    forZones: fields.forZones,
    cluster: fields.cluster,
  };
}

/** What {@link createEndpointSlice} takes: its backends, each under its own address. */
export interface EndpointSliceFields {
  readonly service: ServiceID;
  /** Default: the name of the service, as for a whole `Endpoints` object. */
  readonly name?: string | undefined;
  readonly backends: Iterable<Backend>;
  readonly notReady?: Iterable<Backend> | undefined;
}

/** Makes a slice. Of backends with one address the last counts, and one that is ready counts before one that is not. */
export function createEndpointSlice(fields: EndpointSliceFields): EndpointSlice {
  const { service, name = service.name } = fields;
  const backends = byAddress(fields.backends);
  const notReady = byAddress(fields.notReady ?? []).deleteAll(backends.keys());
  return { service, name, backends, notReady };
}

function byAddress(backends: Iterable<Backend>): Backends {
  return ImmutableMap(Array.from(backends, (backend): [string, Backend] => [backend.address, backend]));
}

/** Whether two sets of ports hold the same names with the same ports. Cheap when they share their map. */
export function equalPorts(a: Ports, b: Ports): boolean {
  if (a === b) return true;
  if (a.size !== b.size) return false;
  return a.every((port, name) => {
    const other = b.get(name);
    return other !== undefined && other.port === port.port && other.protocol === port.protocol;
  });
}

/** Whether two backends of one address say the same, but for their ports. */
function equalButPorts(a: Backend, b: Backend): boolean {
  return (
    a.state === b.state &&
    a.cluster === b.cluster &&
    a.nodeName === b.nodeName &&
    a.zone === b.zone &&
    a.hostname === b.hostname &&
    (a.forZones === b.forZones || is(a.forZones, b.forZones))
  );
}

/** Whether two backends say the same (I3). */
export function equalBackends(a: Backend, b: Backend): boolean {
  return a === b || (a.address === b.address && equalButPorts(a, b) && equalPorts(a.ports, b.ports));
}

/**
 * Compares the backends of two sets, address by address. Backends of one set share their ports as a rule, so a
 * pair of ports is compared once, not again for each backend.
 */
export function backendComparison(): (a: Backend, b: Backend) => boolean {
  let portsA: Ports | undefined;
  let portsB: Ports | undefined;
  let samePorts = false;
  return (a, b) => {
    if (a === b) return true;
    if (a.ports !== portsA || b.ports !== portsB) {
      portsA = a.ports;
      portsB = b.ports;
      samePorts = equalPorts(portsA, portsB);
    }
    return samePorts && equalButPorts(a, b);
  };
}
