import { Map as ImmutableMap, Set as ImmutableSet, is, List } from 'immutable';
import type { PortProtocol } from '../net/port.ts';
import type { ServiceID } from './service-id.ts';

/**
 * What Kubernetes calls the type. `ExternalName` and `unknown` services are not served: handing one to the
 * cache says that the service, whatever it was before, is gone (SEMANTICS 3.3).
 */
export type ServiceType = 'ClusterIP' | 'NodePort' | 'LoadBalancer' | 'ExternalName' | 'unknown';

/**
 * `assigned`: the service has a cluster IP (even when the text of it could not be read). `headless`: it wants
 * none. `unassigned`: it has none; only external IPs can make it reachable.
 */
export type Addressing = 'assigned' | 'headless' | 'unassigned';

/** `Cluster`: every backend. `Local`: only those on the node that received the packet. */
export type TrafficPolicy = 'Cluster' | 'Local';

/** Which clusters' backends are preferred; literal `none`, unset and unknown values all mean `none`. */
export type ServiceAffinity = 'none' | 'local' | 'remote';

/** Whether clients prefer backends in their own zone. */
export type TrafficDistribution = 'none' | 'prefer-close' | 'prefer-same-zone' | 'prefer-same-node';

/** A port that a service offers. */
export interface ServicePort extends PortProtocol {
  /** The port on every node; 0 when there is none (yet). */
  readonly nodePort: number;
}

/** A Kubernetes service, as far as traffic is concerned (SEMANTICS 3.1). Immutable. */
export interface Service {
  readonly id: ServiceID;
  readonly type: ServiceType;
  readonly addressing: Addressing;
  /** Canonical; the primary one first, at most one of each family. */
  readonly clusterIPs: List<string>;
  /** By name; the first of equal names counts. */
  readonly ports: ImmutableMap<string, ServicePort>;
  /** Canonical. */
  readonly externalIPs: ImmutableSet<string>;
  /** Addresses of the load balancer. Canonical. */
  readonly ingressIPs: ImmutableSet<string>;
  /** Canonical CIDRs that may use the load balancer; empty = all. */
  readonly sourceRanges: ImmutableSet<string>;
  readonly externalTrafficPolicy: TrafficPolicy;
  readonly internalTrafficPolicy: TrafficPolicy;
  /** 0 = none. */
  readonly healthCheckNodePort: number;
  /** Seconds for which a client stays with its backend; 0 = no session affinity. */
  readonly sessionAffinitySeconds: number;
  /** Backends are used before they are ready. */
  readonly publishNotReady: boolean;
  /** Backends of other clusters are included. */
  readonly global: boolean;
  /** Backends are offered to other clusters. */
  readonly shared: boolean;
  readonly affinity: ServiceAffinity;
  readonly trafficDistribution: TrafficDistribution;
  readonly labels: ImmutableMap<string, string>;
  /** Empty: somebody else than Kubernetes writes the endpoints. */
  readonly selector: ImmutableMap<string, string>;
}

/** A cluster-internal service without addresses, ports or anything else: what a new one starts from. */
export const SERVICE_DEFAULTS: Omit<Service, 'id'> = {
  type: 'ClusterIP',
  addressing: 'unassigned',
  clusterIPs: List(),
  ports: ImmutableMap(),
  externalIPs: ImmutableSet(),
  ingressIPs: ImmutableSet(),
  sourceRanges: ImmutableSet(),
  externalTrafficPolicy: 'Cluster',
  internalTrafficPolicy: 'Cluster',
  healthCheckNodePort: 0,
  sessionAffinitySeconds: 0,
  publishNotReady: false,
  global: false,
  shared: false,
  affinity: 'none',
  trafficDistribution: 'none',
  labels: ImmutableMap(),
  selector: ImmutableMap(),
};

function equalServicePorts(
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

/** Whether two services say the same, annotations' effects included (I3). Allocates nothing. */
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
      equalServicePorts(a.ports, b.ports) &&
      is(a.clusterIPs, b.clusterIPs) &&
      is(a.externalIPs, b.externalIPs) &&
      is(a.ingressIPs, b.ingressIPs) &&
      is(a.sourceRanges, b.sourceRanges) &&
      is(a.labels, b.labels) &&
      is(a.selector, b.selector))
  );
}
