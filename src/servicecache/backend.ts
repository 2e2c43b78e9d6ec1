import { Map as ImmutableMap, Set as ImmutableSet, is } from 'immutable';
import {
  type Check,
  checkArgument,
  ITERABLE,
  isObjectOrList,
  listOf,
  matching,
  type Optional,
  objectWith,
  optional,
  shaped,
  TEXT,
} from '../base/arguments.ts';
import { DEFAULT_WEIGHT, isWeight, WEIGHT_RULE } from '../model/backend-weight.ts';
import type { EndpointConditions } from '../model/cluster-endpoint-slice.ts';
import { checkPorts, type PortProtocol, type PortsByName, samePorts } from '../net/port.ts';
import { canonicalAddress, requireCanonical } from '../net/prefix.ts';
import { SERVICE_ID, type ServiceID } from './service-id.ts';

/** Ports by name, which may be empty. Several names may share one port and protocol. */
export type Ports = ImmutableMap<string, PortProtocol>;

export const NO_PORTS: Ports = ImmutableMap();

export const NO_ZONES: ImmutableSet<string> = ImmutableSet();

/**
 * The state of a backend. `active`: accepts new connections. `terminating`: still serving, accepts new connections only
 * if no backend is active. `not-ready`: used only if the service publishes not-ready addresses. `maintenance`: weight
 * 0; never used for new connections.
 */
export type BackendState = 'active' | 'terminating' | 'not-ready' | 'maintenance';

/** One address that serves a service. Immutable. */
export interface Backend {
  /** Canonical text. */
  readonly address: string;
  readonly ports: Ports;
  /**
   * The node of the backend in its cluster; empty if unknown, as for backends that a cluster shares in `services/v1`.
   */
  readonly nodeName: string;
  /** Empty if unknown. */
  readonly zone: string;
  /** The host name of the pod, for headless services; empty if there is none. */
  readonly hostname: string;
  readonly state: BackendState;
  /**
   * 0 to 65,535, from the slice's annotation `service.cilium.io/weight`. Only 0 has an effect here: see
   * {@link BackendState}.
   */
  readonly weight: number;
  /** Zones whose clients should use this backend (topology hints). */
  readonly forZones: ImmutableSet<string>;
  /** Cluster of a remote backend; empty for the local cluster, which sorts first and therefore wins (I4). */
  readonly cluster: string;
}

/** Backends by canonical address. */
export type Backends = ImmutableMap<string, Backend>;

export const NO_BACKENDS: Backends = ImmutableMap();

/**
 * Returns the backends for which `keep` is true. If most are kept, the result shares the unchanged parts, so that both
 * compare fast; if all are, it is the same map. Costs one pass.
 */
export function filterBackends(backends: Backends, keep: (backend: Backend) => boolean): Backends {
  const kept: Backend[] = [];
  const others: Backend[] = [];
  backends.forEach((backend) => {
    (keep(backend) ? kept : others).push(backend);
  });
  if (kept.length > others.length)
    return backends.withMutations((result) => {
      for (const { address } of others) result.delete(address);
    });
  return NO_BACKENDS.withMutations((result) => {
    for (const backend of kept) result.set(backend.address, backend);
  });
}

/** The backends of one `Origin` (a slice or a whole offer), each address once: a map by address, or a list. */
export interface OfferedBackends {
  values(): IterableIterator<Backend>;
}

/** The backends that receive a service's traffic. */
export interface Endpoints {
  readonly backends: Backends;
}

/** No endpoints. One object, so that it can be compared by reference. */
export const NO_ENDPOINTS: Endpoints = { backends: NO_BACKENDS };

/** A slice of a service's backends: one Kubernetes `EndpointSlice`, or an `Endpoints` object under its own name. */
export interface EndpointSlice {
  readonly service: ServiceID;
  /** Unique within the service. */
  readonly name: string;
  readonly backends: Backends;
  /** Used only if the service publishes not-ready addresses. No address is in both maps. */
  readonly notReady: Backends;
}

/**
 * Returns the state for the conditions of an endpoint, as kube-proxy and Cilium do. A missing `ready` or `serving`
 * counts as true. A ready endpoint is `active`, even if it is terminating: Kubernetes reports published not-ready
 * addresses as ready.
 */
export function stateOfConditions(conditions: EndpointConditions): BackendState {
  const { ready = true, serving = true, terminating = false } = conditions;
  if (ready) return 'active';
  return terminating && serving ? 'terminating' : 'not-ready';
}

/**
 * Returns true for the endpoint that Cilium's operator writes for the Service of an Ingress or a Gateway. It is no
 * backend, because Cilium's proxy handles the traffic of these services (`isIngressDummyEndpoint` of Cilium,
 * pkg/loadbalancer/reflectors/endpoints/endpoints.go).
 */
export function isPlaceholder(address: string, ports: PortsByName): boolean {
  return address === '192.192.192.192' && ports.size > 0 && [...ports].every(([, { port }]) => port === 9999);
}

/**
 * Returns the backends of a slice by readiness, without the placeholder of {@link isPlaceholder}. If several have the
 * same address, the first ready one wins.
 */
export function backendsByReadiness(listed: Iterable<Backend>): Pick<EndpointSlice, 'backends' | 'notReady'> {
  const backends = new Map<string, Backend>();
  const notReady = new Map<string, Backend>();
  for (const backend of listed) {
    if (isPlaceholder(backend.address, backend.ports)) continue;
    const target = backend.state === 'not-ready' ? notReady : backends;
    if (!target.has(backend.address)) target.set(backend.address, backend);
  }
  if (notReady.size > 0) for (const address of backends.keys()) notReady.delete(address);
  return { backends: immutableBackends(backends), notReady: immutableBackends(notReady) };
}

function immutableBackends(backends: ReadonlyMap<string, Backend>): Backends {
  return backends.size === 0 ? NO_BACKENDS : ImmutableMap(backends);
}

/** The input of {@link createBackend}. Collections may be any iterables. */
export interface BackendFields extends Optional<Omit<Backend, 'address' | 'ports' | 'forZones'>> {
  readonly address: string;
  readonly ports: Iterable<readonly [string, PortProtocol]>;
  readonly forZones?: Iterable<string> | undefined;
}

const SLICE_FIELDS = objectWith({ service: SERVICE_ID, name: optional(TEXT), backends: ITERABLE });

const BACKEND_FIELDS = objectWith({
  ports: ITERABLE,
  forZones: optional(ITERABLE),
  weight: optional(matching(WEIGHT_RULE, isWeight)),
});

/**
 * Returns a backend. Defaults: empty fields, weight 100, active (with weight 0: in maintenance), local cluster.
 * Immutable collections are kept, others are copied. The address is made canonical. Throws a `UsageError` if the
 * address is invalid, or a port or the weight is out of range.
 */
export function createBackend(fields: BackendFields): Backend {
  checkArgument('createBackend: fields', fields, BACKEND_FIELDS);
  const address = requireCanonical('createBackend: fields.address', fields.address, canonicalAddress);
  const { nodeName = '', zone = '', hostname = '', weight = DEFAULT_WEIGHT, cluster = '' } = fields;
  const state = weight === 0 ? 'maintenance' : (fields.state ?? 'active');
  const ports = ImmutableMap(fields.ports);
  checkPorts('createBackend: fields', ports);
  const forZones = ImmutableSet(fields.forZones);
  return backendOf({ address, ports, nodeName, zone, hostname, state, weight, forZones, cluster });
}

/**
 * Returns a backend with all fields. All backends have one hidden class, because V8 compares such objects about ten
 * times faster than objects created by spreading.
 */
export function backendOf(fields: Backend): Backend {
  return {
    address: fields.address,
    ports: fields.ports,
    nodeName: fields.nodeName,
    zone: fields.zone,
    hostname: fields.hostname,
    state: fields.state,
    weight: fields.weight,
    forZones: fields.forZones,
    cluster: fields.cluster,
  };
}

/** Accepts an {@link EndpointSlice}. */
export const SLICE: Check = shaped<EndpointSlice>(
  'must be a result of createEndpointSlice',
  ({ service, name, backends, notReady }) =>
    SERVICE_ID(service) === undefined &&
    typeof name === 'string' &&
    isObjectOrList(backends) &&
    isObjectOrList(notReady),
);

const BACKENDS: Check = listOf(
  shaped<Backend>(
    'must be a result of createBackend',
    ({ address, ports }) => typeof address === 'string' && isObjectOrList(ports),
  ),
);

/** The input of {@link createEndpointSlice}. */
export interface EndpointSliceFields {
  readonly service: ServiceID;
  /** Default: the name of the service, as for a whole `Endpoints` object. */
  readonly name?: string | undefined;
  /** Ready or not: those with the state `not-ready` become `notReady` of the slice. */
  readonly backends: Iterable<Backend>;
}

/** Returns a slice. If several backends have the same address, the first ready one is used, or else the first. */
export function createEndpointSlice(fields: EndpointSliceFields): EndpointSlice {
  checkArgument('createEndpointSlice: fields', fields, SLICE_FIELDS);
  const { service, name = service.name } = fields;
  const backends = [...fields.backends];
  checkArgument('createEndpointSlice: fields.backends', backends, BACKENDS);
  return { service, name, ...backendsByReadiness(backends) };
}

/** Returns true if two backends of one address are equal except for their ports. */
function equalButPorts(a: Backend, b: Backend): boolean {
  return (
    a.state === b.state &&
    a.weight === b.weight &&
    a.cluster === b.cluster &&
    a.nodeName === b.nodeName &&
    a.zone === b.zone &&
    a.hostname === b.hostname &&
    (a.forZones === b.forZones || is(a.forZones, b.forZones))
  );
}

/** Returns true if two backends are equal (I3). */
export function equalBackends(a: Backend, b: Backend): boolean {
  return a === b || (a.address === b.address && equalButPorts(a, b) && samePorts(a.ports, b.ports));
}

/** Returns a comparison of backends by address. It caches the last pair of port maps, which backends share. */
export function backendComparison(): (a: Backend, b: Backend) => boolean {
  let portsA: Ports | undefined;
  let portsB: Ports | undefined;
  let haveSamePorts = false;
  return (a, b) => {
    if (a === b) return true;
    if (a.ports !== portsA || b.ports !== portsB) {
      portsA = a.ports;
      portsB = b.ports;
      haveSamePorts = samePorts(portsA, portsB);
    }
    return haveSamePorts && equalButPorts(a, b);
  };
}
