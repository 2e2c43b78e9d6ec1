import { type Collection, Map as ImmutableMap, Set as ImmutableSet, List } from 'immutable';
import {
  type Check,
  checkArgument,
  ITERABLE,
  isObjectOrList,
  matching,
  type Optional,
  objectWith,
  oneOf,
  optional,
  shaped,
} from '../base/arguments.ts';
import { checkPorts, isPort, type PortProtocol } from '../net/port.ts';
import { canonicalAddress, canonicalCIDR, requireCanonical } from '../net/prefix.ts';
import { SERVICE_ID, type ServiceID } from './service-id.ts';

/**
 * The Kubernetes type of a service. `ExternalName` and `unknown` services are not served: passing one to the cache
 * removes the service (SEMANTICS 3.1).
 */
export type ServiceType = 'ClusterIP' | 'NodePort' | 'LoadBalancer' | 'ExternalName' | 'unknown';

/**
 * Whether a service has a cluster IP. `assigned`: it has one, even if its text is invalid. `headless`:
 * `clusterIP: None`. `unassigned`: it has none; only external IPs can make it reachable.
 */
export type Addressing = 'assigned' | 'headless' | 'unassigned';

/** The backends that receive traffic: all (`Cluster`), or those on the node that received the packet (`Local`). */
export type TrafficPolicy = 'Cluster' | 'Local';

/** The clusters whose backends are preferred. A missing or unknown value means `none`. */
export type ServiceAffinity = 'none' | 'local' | 'remote';

/**
 * The backends that clients prefer. Unknown values mean `none`. The annotation `service.kubernetes.io/topology-mode`
 * means `prefer-close`. {@link ServiceCache.select} applies it.
 */
export type TrafficDistribution = 'none' | 'prefer-close' | 'prefer-same-zone' | 'prefer-same-node';

/** A port that a service offers. */
export interface ServicePort extends PortProtocol {
  /** The port on every node; 0 if none is allocated. */
  readonly nodePort: number;
}

/** The parts of a Kubernetes service that concern traffic (SEMANTICS 3.1). Immutable. */
export interface Service {
  readonly id: ServiceID;
  readonly type: ServiceType;
  readonly addressing: Addressing;
  /** Canonical, the primary one first, at most one of each family. */
  readonly clusterIPs: List<string>;
  /** By name. The first of several ports with the same name is used. */
  readonly ports: ImmutableMap<string, ServicePort>;
  /** Canonical. */
  readonly externalIPs: ImmutableSet<string>;
  /** Addresses of the load balancer. Canonical. */
  readonly ingressIPs: ImmutableSet<string>;
  /**
   * Canonical CIDRs of clients of the load balancer; see `sourceRangesPolicy`. Undefined: all clients are admitted;
   * empty: the list of the service has no valid CIDR.
   */
  readonly sourceRanges: ImmutableSet<string> | undefined;
  /** `allow`: only clients in `sourceRanges` are admitted. `deny`: only clients outside of them. */
  readonly sourceRangesPolicy: 'allow' | 'deny';
  readonly externalTrafficPolicy: TrafficPolicy;
  readonly internalTrafficPolicy: TrafficPolicy;
  /** 0 = none. */
  readonly healthCheckNodePort: number;
  /** Seconds for which a client keeps its backend; 0 = no session affinity. */
  readonly sessionAffinitySeconds: number;
  /** True if backends are used before they are ready. */
  readonly publishNotReady: boolean;
  /** True if backends of other clusters are included. */
  readonly global: boolean;
  /** True if backends are offered to other clusters. */
  readonly shared: boolean;
  readonly affinity: ServiceAffinity;
  readonly trafficDistribution: TrafficDistribution;
  /** A valid label selector of Kubernetes: only matching nodes have the frontends. Undefined: see `nodeLabel`. */
  readonly nodeSelector: string | undefined;
  /** Without `nodeSelector`: only nodes whose label `service.cilium.io/node` has this value. Undefined: all nodes. */
  readonly nodeLabel: string | undefined;
  /** The service has only frontends of this type, and external IPs. Undefined: all types. */
  readonly exposedType: 'ClusterIP' | 'NodePort' | 'LoadBalancer' | undefined;
  readonly labels: ImmutableMap<string, string>;
  /** The selector of the service's pods. If it is empty, Kubernetes does not write the endpoints. */
  readonly selector: ImmutableMap<string, string>;
}

const NO_ADDRESSES: ImmutableSet<string> = ImmutableSet();

type ServiceCollections =
  | 'clusterIPs'
  | 'ports'
  | 'externalIPs'
  | 'ingressIPs'
  | 'sourceRanges'
  | 'labels'
  | 'selector';

/** Accepts a {@link Service}. */
export const SERVICE: Check = shaped<Service>(
  'must be a result of createService',
  ({ id, clusterIPs, ports, externalIPs, ingressIPs, labels, selector }) =>
    SERVICE_ID(id) === undefined &&
    isObjectOrList(clusterIPs) &&
    isObjectOrList(ports) &&
    isObjectOrList(externalIPs) &&
    isObjectOrList(ingressIPs) &&
    isObjectOrList(labels) &&
    isObjectOrList(selector),
);

/** The input of {@link createService}. Collections may be any iterables. */
export interface ServiceFields extends Optional<Omit<Service, 'id' | 'addressing' | ServiceCollections>> {
  readonly id: ServiceID;
  /** Default: `assigned` if there are `clusterIPs`, else `unassigned`. */
  readonly addressing?: Addressing | undefined;
  readonly clusterIPs?: Iterable<string> | undefined;
  /** A port without `nodePort` has none allocated. */
  readonly ports?: Iterable<readonly [string, PortProtocol | ServicePort]> | undefined;
  readonly externalIPs?: Iterable<string> | undefined;
  readonly ingressIPs?: Iterable<string> | undefined;
  readonly sourceRanges?: Iterable<string> | undefined;
  readonly labels?: Iterable<readonly [string, string]> | undefined;
  readonly selector?: Iterable<readonly [string, string]> | undefined;
}

const PORT: Check = matching('must be an integer from 0 to 65535', isPort);

const SERVICE_FIELDS = objectWith({
  id: SERVICE_ID,
  type: optional(oneOf('ClusterIP', 'NodePort', 'LoadBalancer', 'ExternalName', 'unknown')),
  addressing: optional(oneOf('assigned', 'headless', 'unassigned')),
  clusterIPs: optional(ITERABLE),
  ports: optional(ITERABLE),
  externalIPs: optional(ITERABLE),
  ingressIPs: optional(ITERABLE),
  sourceRanges: optional(ITERABLE),
  healthCheckNodePort: optional(PORT),
  labels: optional(ITERABLE),
  selector: optional(ITERABLE),
});

/**
 * Returns a service. Defaults are those of a cluster-internal service without addresses and ports. Immutable
 * collections are kept, others are copied. Addresses and CIDRs are made canonical. Throws a `UsageError` if one is
 * invalid, or a port is out of range.
 */
export function createService(fields: ServiceFields): Service {
  checkArgument('createService: fields', fields, SERVICE_FIELDS);
  const clusterIPs = canonicalTexts('clusterIPs', List(fields.clusterIPs));
  return {
    id: fields.id,
    type: fields.type ?? 'ClusterIP',
    addressing: fields.addressing ?? (clusterIPs.isEmpty() ? 'unassigned' : 'assigned'),
    clusterIPs,
    ports: portsOf(fields.ports),
    externalIPs: canonicalTexts('externalIPs', ImmutableSet(fields.externalIPs)),
    ingressIPs: canonicalTexts('ingressIPs', ImmutableSet(fields.ingressIPs)),
    sourceRanges: fields.sourceRanges && canonicalTexts('sourceRanges', ImmutableSet(fields.sourceRanges)),
    sourceRangesPolicy: fields.sourceRangesPolicy ?? 'allow',
    externalTrafficPolicy: fields.externalTrafficPolicy ?? 'Cluster',
    internalTrafficPolicy: fields.internalTrafficPolicy ?? 'Cluster',
    healthCheckNodePort: fields.healthCheckNodePort ?? 0,
    sessionAffinitySeconds: fields.sessionAffinitySeconds ?? 0,
    publishNotReady: fields.publishNotReady ?? false,
    global: fields.global ?? false,
    shared: fields.shared ?? false,
    affinity: fields.affinity ?? 'none',
    trafficDistribution: fields.trafficDistribution ?? 'none',
    nodeSelector: fields.nodeSelector,
    nodeLabel: fields.nodeLabel,
    exposedType: fields.exposedType,
    labels: ImmutableMap(fields.labels),
    selector: ImmutableMap(fields.selector),
  };
}

/** Returns a collection of addresses or CIDRs in canonical form; the same object if it already is. */
function canonicalTexts<C extends Collection<unknown, string>>(
  field: 'clusterIPs' | 'externalIPs' | 'ingressIPs' | 'sourceRanges',
  texts: C,
): C {
  const canonical = field === 'sourceRanges' ? canonicalCIDR : canonicalAddress;
  if (texts.every((text) => typeof text === 'string' && canonical(text) === text)) return texts;
  return texts.map((text) => requireCanonical(`createService: fields.${field}`, text, canonical)) as C;
}

/** Returns the ports; the same object if it is an immutable map whose ports all have a node port. */
function portsOf(fields: ServiceFields['ports']): ImmutableMap<string, ServicePort> {
  const ports = ImmutableMap(fields);
  checkPorts('createService: fields', ports);
  // `map` alone costs more than the rest of `createService`.
  if (ports.every((port) => 'nodePort' in port && isPort(port.nodePort)))
    return ports as ImmutableMap<string, ServicePort>;
  return ports.map((port, name) => {
    if (!('nodePort' in port)) return { ...port, nodePort: 0 };
    checkArgument(`createService: fields.ports ${JSON.stringify(name)}.nodePort`, port.nodePort, PORT);
    return port;
  });
}

/** Returns a service with only its cluster IPs, as type `ClusterIP`; the same object if it already is one. */
export function withoutExternalFrontends(service: Service): Service {
  const isInternal = service.type === 'ClusterIP' && service.ports.every((port) => port.nodePort === 0);
  if (isInternal && service.externalIPs.size === 0 && service.ingressIPs.size === 0) return service;
  return createService({
    ...service,
    type: 'ClusterIP',
    ports: service.ports.map(({ port, protocol }) => ({ port, protocol, nodePort: 0 })),
    externalIPs: NO_ADDRESSES,
    ingressIPs: NO_ADDRESSES,
  });
}

/** Returns true if all ports are equal. */
export function equalServicePorts(
  a: ImmutableMap<string, ServicePort>,
  b: ImmutableMap<string, ServicePort>,
): boolean {
  if (a === b) return true;
  if (a.size !== b.size) return false;
  return a.every((port, name) => {
    const other = b.get(name);
    return (
      other !== undefined &&
      other.port === port.port &&
      other.protocol === port.protocol &&
      other.nodePort === port.nodePort
    );
  });
}

function equalTexts(a: ImmutableMap<string, string>, b: ImmutableMap<string, string>): boolean {
  return a === b || (a.size === b.size && a.every((text, key) => b.get(key) === text));
}

function equalAddresses(a: ImmutableSet<string> | undefined, b: ImmutableSet<string> | undefined): boolean {
  if (a === b) return true;
  return a !== undefined && a.size === b?.size && a.every((address) => b.has(address));
}

function equalLists(a: List<string>, b: List<string>): boolean {
  if (a === b) return true;
  if (a.size !== b.size) return false;
  for (let at = 0; at < a.size; at++) if (a.get(at) !== b.get(at)) return false;
  return true;
}

/** Returns true if two services are equal (I3). Allocates nothing. */
export function equalServices(a: Service, b: Service): boolean {
  return (
    a === b ||
    (a.id.name === b.id.name &&
      a.id.namespace === b.id.namespace &&
      a.type === b.type &&
      a.addressing === b.addressing &&
      a.externalTrafficPolicy === b.externalTrafficPolicy &&
      a.internalTrafficPolicy === b.internalTrafficPolicy &&
      a.healthCheckNodePort === b.healthCheckNodePort &&
      a.sessionAffinitySeconds === b.sessionAffinitySeconds &&
      a.publishNotReady === b.publishNotReady &&
      a.global === b.global &&
      a.shared === b.shared &&
      a.affinity === b.affinity &&
      a.trafficDistribution === b.trafficDistribution &&
      a.nodeSelector === b.nodeSelector &&
      a.nodeLabel === b.nodeLabel &&
      a.exposedType === b.exposedType &&
      a.sourceRangesPolicy === b.sourceRangesPolicy &&
      equalServicePorts(a.ports, b.ports) &&
      equalLists(a.clusterIPs, b.clusterIPs) &&
      equalAddresses(a.externalIPs, b.externalIPs) &&
      equalAddresses(a.ingressIPs, b.ingressIPs) &&
      equalAddresses(a.sourceRanges, b.sourceRanges) &&
      equalTexts(a.labels, b.labels) &&
      equalTexts(a.selector, b.selector))
  );
}
