import { Map as ImmutableMap, Set as ImmutableSet, List } from 'immutable';
import type {
  Addressing,
  Service,
  ServiceAffinity,
  ServicePort,
  ServiceType,
  TrafficDistribution,
} from '../servicecache/service.ts';
import { createService } from '../servicecache/service.ts';
import type { ServiceID } from '../servicecache/service-id.ts';
import { readAddress, readAddresses, readCIDR } from './addresses.ts';
import { type FieldReader, field, type Parsed, type ParseOptions } from './field-reader.ts';
import { readerFor, readID } from './metadata.ts';
import { readNamedPort, readPort } from './ports.ts';

/** What Kubernetes assumes when a ClientIP affinity names no timeout: 3 hours. */
const SESSION_AFFINITY_SECONDS = 3 * 60 * 60;
/** The longest that Kubernetes allows: a day. */
const LONGEST_SESSION_AFFINITY_SECONDS = 24 * 60 * 60;

const SERVED_TYPES = ['ClusterIP', 'NodePort', 'LoadBalancer', 'ExternalName'] as const;
const POLICIES = ['Cluster', 'Local'] as const;
const SESSION_AFFINITIES = ['None', 'ClientIP'] as const;
const DISTRIBUTIONS: ReadonlyMap<string, TrafficDistribution> = new Map([
  ['PreferClose', 'prefer-close'],
  ['PreferSameZone', 'prefer-same-zone'],
  ['PreferSameNode', 'prefer-same-node'],
]);

// Annotations, today's name before that of 1.8 (SEMANTICS 3.1).
const GLOBAL = ['service.cilium.io/global', 'io.cilium/global-service'] as const;
const SHARED = ['service.cilium.io/shared', 'io.cilium/shared-service'] as const;
const AFFINITY = ['service.cilium.io/affinity', 'io.cilium/service-affinity'] as const;
const TOPOLOGY_MODE = [
  'service.kubernetes.io/topology-mode',
  'service.kubernetes.io/topology-aware-hints',
] as const;

type Annotations = ReadonlyMap<string, string>;

function annotation(annotations: Annotations, names: readonly string[]): string | undefined {
  for (const name of names) {
    const value = annotations.get(name);
    if (value !== undefined) return value.toLowerCase();
  }
  return undefined;
}

function readType(spec: unknown, reader: FieldReader): ServiceType {
  const value = field(spec, 'type');
  if (value === undefined || value === null || value === '') return 'ClusterIP';
  return reader.word(value, 'spec.type', SERVED_TYPES) ?? 'unknown';
}

function readClusterIPs(spec: unknown, reader: FieldReader): Pick<Service, 'addressing' | 'clusterIPs'> {
  const primary = reader.string(field(spec, 'clusterIP'), 'spec.clusterIP') ?? '';
  const listed = reader.list(field(spec, 'clusterIPs'), 'spec.clusterIPs');
  const first = primary === '' ? listed[0] : primary;
  const texts = listed.length > 0 ? listed : [primary];
  if (typeof first !== 'string' || first === '') return { addressing: 'unassigned', clusterIPs: List() };
  if (first.toLowerCase() === 'none') return { addressing: 'headless', clusterIPs: List() };
  const addressing: Addressing = 'assigned';
  const path = (index: number): string =>
    listed.length > 0 ? `spec.clusterIPs[${index}]` : 'spec.clusterIP';
  const addresses = texts.map((text, index) => readAddress(text, path(index), reader));
  return { addressing, clusterIPs: List(new Set(addresses.filter((address) => address !== undefined))) };
}

function readServicePorts(
  spec: unknown,
  type: ServiceType,
  reader: FieldReader,
): ImmutableMap<string, ServicePort> {
  const ports = new Map<string, ServicePort>();
  reader.list(field(spec, 'ports'), 'spec.ports').forEach((item, index) => {
    const path = `spec.ports[${index}]`;
    const named = readNamedPort(item, path, reader);
    if (named === undefined || ports.has(named.name)) return;
    const hasNodePorts = type === 'NodePort' || type === 'LoadBalancer';
    const nodePort = readPort(field(item, 'nodePort'), `${path}.nodePort`, 0, reader) ?? 0;
    const { name, port, protocol } = named;
    ports.set(name, { port, protocol, nodePort: hasNodePorts ? nodePort : 0 });
  });
  return ImmutableMap(ports);
}

function readIngressIPs(object: unknown, reader: FieldReader): ImmutableSet<string> {
  const path = 'status.loadBalancer.ingress';
  const loadBalancer = reader.nested(object, 'status', 'loadBalancer');
  const ips = reader
    .list(field(loadBalancer, 'ingress'), path)
    // A load balancer in proxy mode delivers to nodes under their own addresses.
    .map((item, index) =>
      field(item, 'ipMode') === 'Proxy'
        ? undefined
        : readAddress(field(item, 'ip'), `${path}[${index}].ip`, reader),
    );
  return ImmutableSet(ips.filter((ip) => ip !== undefined));
}

/** A refused range is left out. That never widens who is let in: when all are refused, nobody is. */
function readSourceRanges(spec: unknown, reader: FieldReader): Service['sourceRanges'] {
  const path = 'spec.loadBalancerSourceRanges';
  const given = field(spec, 'loadBalancerSourceRanges') ?? [];
  if (Array.isArray(given) && given.length === 0) return undefined;
  const ranges = reader.list(given, path).map((item, index) => readCIDR(item, `${path}[${index}]`, reader));
  return ImmutableSet(ranges.filter((range) => range !== undefined));
}

function readSessionAffinity(spec: unknown, reader: FieldReader): number {
  if (
    reader.word(field(spec, 'sessionAffinity'), 'spec.sessionAffinity', SESSION_AFFINITIES) !== 'ClientIP'
  ) {
    return 0;
  }
  const path = 'spec.sessionAffinityConfig.clientIP.timeoutSeconds';
  const clientIP = reader.nested({ spec }, 'spec', 'sessionAffinityConfig', 'clientIP');
  const seconds = reader.integer(
    field(clientIP, 'timeoutSeconds'),
    path,
    0,
    LONGEST_SESSION_AFFINITY_SECONDS,
  );
  return seconds === undefined || seconds === 0 ? SESSION_AFFINITY_SECONDS : seconds;
}

function readAffinity(annotations: Annotations): ServiceAffinity {
  const value = annotation(annotations, AFFINITY);
  // Unknown words mean none; so does the literal `none`, which must not turn traffic away.
  return value === 'local' || value === 'remote' ? value : 'none';
}

/** How traffic is to be spread. The annotation counts before the field, as in Kubernetes; other words mean none. */
function readDistribution(spec: unknown, annotations: Annotations, reader: FieldReader): TrafficDistribution {
  const value = reader.string(field(spec, 'trafficDistribution'), 'spec.trafficDistribution') ?? '';
  if (annotation(annotations, TOPOLOGY_MODE) === 'auto') return 'prefer-close';
  return DISTRIBUTIONS.get(value) ?? 'none';
}

/** What annotations say (SEMANTICS 3.1): a flag is set by `true`, in any case, and by nothing else. */
function readAnnotated(
  object: unknown,
  reader: FieldReader,
): Pick<Service, 'global' | 'shared' | 'affinity' | 'trafficDistribution'> {
  const path = 'metadata.annotations';
  const annotations = new Map(reader.strings(field(field(object, 'metadata'), 'annotations'), path));
  const global = annotation(annotations, GLOBAL) === 'true';
  const shared = annotation(annotations, SHARED);
  return {
    global,
    shared: shared === undefined ? global : shared === 'true',
    affinity: readAffinity(annotations),
    trafficDistribution: readDistribution(field(object, 'spec'), annotations, reader),
  };
}

function readSpec(id: ServiceID, object: unknown, reader: FieldReader): Service {
  const spec = reader.object(field(object, 'spec'), 'spec');
  const type = readType(spec, reader);
  const policy = (name: string): 'Cluster' | 'Local' =>
    reader.word(field(spec, name), `spec.${name}`, POLICIES) ?? 'Cluster';
  const labels = field(field(object, 'metadata'), 'labels');
  return createService({
    ...readAnnotated(object, reader),
    ...readClusterIPs(spec, reader),
    id,
    type,
    ports: readServicePorts(spec, type, reader),
    externalIPs: ImmutableSet(readAddresses(field(spec, 'externalIPs'), 'spec.externalIPs', reader)),
    ingressIPs: readIngressIPs(object, reader),
    sourceRanges: readSourceRanges(spec, reader),
    externalTrafficPolicy: policy('externalTrafficPolicy'),
    internalTrafficPolicy: policy('internalTrafficPolicy'),
    healthCheckNodePort:
      readPort(field(spec, 'healthCheckNodePort'), 'spec.healthCheckNodePort', 0, reader) ?? 0,
    sessionAffinitySeconds: readSessionAffinity(spec, reader),
    publishNotReady:
      reader.boolean(field(spec, 'publishNotReadyAddresses'), 'spec.publishNotReadyAddresses') ?? false,
    labels: ImmutableMap(reader.strings(labels, 'metadata.labels')),
    selector: ImmutableMap(reader.strings(field(spec, 'selector'), 'spec.selector')),
  });
}

/**
 * Reads a v1 `Service` from outside. Without a usable namespace and name it is refused as a whole; any other
 * bad field (a port out of range, a source range that is no CIDR) is refused alone. A service of a type that is
 * not served has a value too: the cache must learn that it is not served any more. Never throws.
 */
export function parseService(object: unknown, options: ParseOptions = {}): Parsed<Service> {
  const reader = readerFor('Service', object, options);
  const id = readID(object, reader);
  const value = id === undefined ? undefined : readSpec(id, object, reader);
  return { value, rejections: reader.rejections };
}

/** Reads only which service an object names: enough for its delete. */
export function parseServiceID(object: unknown, options: ParseOptions = {}): Parsed<ServiceID> {
  const reader = readerFor('Service', object, options);
  return { value: readID(object, reader), rejections: reader.rejections };
}
