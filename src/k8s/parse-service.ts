import { Map as ImmutableMap, Set as ImmutableSet, List } from 'immutable';
import { HEADLESS_LABEL } from '../model/cluster-endpoint-slice.ts';
import { parseLabelSelector } from '../model/label-selector.ts';
import { NODE_LABEL } from '../servicecache/exposure.ts';
import type {
  Service,
  ServiceAffinity,
  ServicePort,
  ServiceType,
  TrafficDistribution,
} from '../servicecache/service.ts';
import { createService } from '../servicecache/service.ts';
import type { ServiceID } from '../servicecache/service-id.ts';
import { type ObjectFields, type Parsed, type ParseOptions, parseObject, readID } from './parse-object.ts';
import { readNamedPort, readNodePort, textOfPorts } from './ports.ts';
import { SharedValues } from './shared-values.ts';

/** Default of Kubernetes if a ClientIP affinity has no timeout: 3 hours. */
const DEFAULT_SESSION_AFFINITY_SECONDS = 3 * 60 * 60;
/** Maximum that Kubernetes allows: one day. */
const MAX_SESSION_AFFINITY_SECONDS = 24 * 60 * 60;

const SERVICE_TYPES = ['ClusterIP', 'NodePort', 'LoadBalancer', 'ExternalName'] as const;
const TRAFFIC_POLICIES = ['Cluster', 'Local'] as const;
const SESSION_AFFINITIES = ['None', 'ClientIP'] as const;
const DISTRIBUTIONS: ReadonlyMap<string, TrafficDistribution> = new Map([
  ['PreferClose', 'prefer-close'],
  ['PreferSameZone', 'prefer-same-zone'],
  ['PreferSameNode', 'prefer-same-node'],
]);

// Names of annotations. The first present one is used (SEMANTICS 3.1).
const GLOBAL = ['service.cilium.io/global', 'io.cilium/global-service'] as const;
const SHARED = ['service.cilium.io/shared', 'io.cilium/shared-service'] as const;
const AFFINITY = ['service.cilium.io/affinity', 'io.cilium/service-affinity'] as const;
const NODE_SELECTOR = 'service.cilium.io/node-selector';
const EXPOSED_TYPE = 'service.cilium.io/type';
const EXPOSED_TYPES = ['ClusterIP', 'NodePort', 'LoadBalancer'] as const;
const SOURCE_RANGES_POLICY = ['service.cilium.io/src-ranges-policy'] as const;
const TOPOLOGY_MODE = [
  'service.kubernetes.io/topology-aware-hints',
  'service.kubernetes.io/topology-mode',
] as const;

const NO_STRINGS: readonly string[] = [];
const NO_ADDRESSES: ImmutableSet<string> = ImmutableSet();

type Annotations = ReadonlyMap<string, string>;

/** Returns the first present annotation in lower case. */
function annotation(annotations: Annotations, names: readonly string[]): string | undefined {
  for (const name of names) {
    const value = annotations.get(name);
    if (value !== undefined) return value.toLowerCase();
  }
  return undefined;
}

function readType(spec: ObjectFields): ServiceType {
  if ((spec.value('type') ?? '') === '') return 'ClusterIP';
  return spec.word('type', SERVICE_TYPES) ?? 'unknown';
}

/** Returns the distinct addresses of a list, in order. Invalid addresses are rejected. */
function readAddresses(list: ObjectFields): readonly string[] {
  if (list.size === 0) return NO_STRINGS;
  return [...new Set(list.items((addresses, index) => addresses.address(index)))];
}

/** Returns the cluster IPs. Headless services are those of `isHeadless` in Cilium (pkg/loadbalancer/reflectors). */
function readClusterIPs(
  spec: ObjectFields,
  labels: ReadonlyMap<string, string>,
): Pick<Service, 'addressing' | 'clusterIPs'> {
  const listed = spec.list('clusterIPs');
  const first = spec.string('clusterIP') || listed.string(0) || '';
  if (first.toLowerCase() === 'none' || labels.has(HEADLESS_LABEL))
    return { addressing: 'headless', clusterIPs: List() };
  if (first === '') return { addressing: 'unassigned', clusterIPs: List() };
  if (listed.size > 0) return { addressing: 'assigned', clusterIPs: List(readAddresses(listed)) };
  const address = spec.address('clusterIP');
  return { addressing: 'assigned', clusterIPs: address === undefined ? List() : List([address]) };
}

function readServicePort(fields: ObjectFields, type: ServiceType): [string, ServicePort] | undefined {
  const named = readNamedPort(fields);
  if (named === undefined) return undefined;
  const nodePort = readNodePort(fields, 'nodePort');
  const hasNodePorts = type === 'NodePort' || type === 'LoadBalancer';
  const { name, port, protocol } = named;
  return [name, { port, protocol, nodePort: hasNodePorts ? nodePort : 0 }];
}

function readServicePorts(
  spec: ObjectFields,
  type: ServiceType,
  shared: SharedValues<Service['ports']>,
): Service['ports'] {
  const ports = new Map<string, ServicePort>();
  for (const fields of spec.list('ports').items((list, index) => list.item(index))) {
    const port = readServicePort(fields, type);
    if (port !== undefined && !ports.has(port[0])) ports.set(...port);
  }
  const text = textOfPorts(ports);
  return shared.get(text) ?? shared.share(text, ImmutableMap(ports));
}

/** Returns the labels and the selector; one object for both if they are equal, as for many services. */
export function labelsAndSelector(
  labels: ReadonlyMap<string, string>,
  selector: ReadonlyMap<string, string>,
): Pick<Service, 'labels' | 'selector'> {
  const shared = ImmutableMap(labels);
  let isEqual = labels.size === selector.size;
  for (const [key, value] of selector) isEqual &&= labels.get(key) === value;
  return { labels: shared, selector: isEqual ? shared : ImmutableMap(selector) };
}

/**
 * Returns the addresses of the load balancer. Those in another mode than `VIP`, such as `Proxy`, are omitted, because
 * the load balancer then sends packets to the addresses of the nodes.
 */
function readIngressIPs(fields: ObjectFields): ImmutableSet<string> {
  const ingress = fields.map('status').map('loadBalancer').list('ingress');
  if (ingress.size === 0) return NO_ADDRESSES;
  const read = (item: ObjectFields | undefined): string | undefined =>
    (item?.value('ipMode') ?? 'VIP') === 'VIP' ? item?.address('ip') : undefined;
  return ImmutableSet(ingress.items((list, index) => read(list.item(index))));
}

/**
 * Returns the source ranges without invalid ranges, which are rejected. If all ranges are invalid, the result is
 * empty.
 */
function readSourceRanges(spec: ObjectFields): Service['sourceRanges'] {
  const listed = spec.value('loadBalancerSourceRanges') ?? [];
  if (Array.isArray(listed) && listed.length === 0) return undefined;
  const ranges = spec.list('loadBalancerSourceRanges');
  return ImmutableSet(ranges.items((list, index) => list.cidr(index)));
}

function readSessionAffinity(spec: ObjectFields): number {
  if (spec.word('sessionAffinity', SESSION_AFFINITIES) !== 'ClientIP') return 0;
  const clientIP = spec.map('sessionAffinityConfig').map('clientIP');
  const seconds = clientIP.integer('timeoutSeconds', 0, MAX_SESSION_AFFINITY_SECONDS) ?? 0;
  return seconds === 0 ? DEFAULT_SESSION_AFFINITY_SECONDS : seconds;
}

function readAffinity(annotations: Annotations): ServiceAffinity {
  const value = annotation(annotations, AFFINITY);
  // Any other value, also `none`, means no affinity.
  return value === 'local' || value === 'remote' ? value : 'none';
}

/**
 * Returns the distribution of traffic. The annotation precedes the field, as in Kubernetes. Any mode that is not
 * disabled uses hints, as in Cilium. Unknown values of the field mean none.
 */
function readDistribution(spec: ObjectFields, annotations: Annotations): TrafficDistribution {
  const value = spec.string('trafficDistribution') ?? '';
  const mode = annotation(annotations, TOPOLOGY_MODE) ?? '';
  if (mode !== '' && mode !== 'disabled') return 'prefer-close';
  return DISTRIBUTIONS.get(value) ?? 'none';
}

/**
 * Returns the restriction of a service to nodes. If the selector cannot be parsed, it is rejected, and there is no
 * restriction: the annotation with a node label is then ignored, too, as in Cilium.
 */
function readExposure(metadata: ObjectFields): Pick<Service, 'nodeSelector' | 'nodeLabel'> {
  const annotations = metadata.object('annotations');
  if (annotations === undefined) return { nodeSelector: undefined, nodeLabel: undefined };
  const nodeSelector = annotations.string(NODE_SELECTOR);
  const nodeLabel = annotations.string(NODE_LABEL);
  if (nodeSelector === undefined) return { nodeSelector, nodeLabel };
  try {
    parseLabelSelector(nodeSelector);
    return { nodeSelector, nodeLabel: undefined };
  } catch (error) {
    const why = error instanceof Error ? error.message : 'is no label selector';
    annotations.reject(NODE_SELECTOR, 'invalid-selector', `is no label selector: ${why}`, nodeSelector);
    return { nodeSelector: undefined, nodeLabel: undefined };
  }
}

/** Returns the flags in annotations (SEMANTICS 3.1). Only `true`, in any case, sets a flag. */
export function readFlags(annotations: Annotations): Pick<Service, 'global' | 'shared' | 'affinity'> {
  const global = annotation(annotations, GLOBAL) === 'true';
  const shared = annotation(annotations, SHARED);
  return {
    global,
    shared: shared === undefined ? global : shared === 'true',
    affinity: readAffinity(annotations),
  };
}

/** The fields of `spec` read by {@link readService}, except cluster IPs and selector. */
export const SPEC_FIELDS: readonly string[] = [
  ...['type', 'ports', 'externalIPs', 'loadBalancerSourceRanges', 'healthCheckNodePort'],
  ...['externalTrafficPolicy', 'internalTrafficPolicy', 'sessionAffinity', 'sessionAffinityConfig'],
  ...['publishNotReadyAddresses', 'trafficDistribution'],
];

/** The fields read by {@link readService}. */
export const SERVICE_FIELDS: readonly string[] = [
  ...['metadata.annotations', 'metadata.labels', 'status.loadBalancer'],
  ...['spec.clusterIP', 'spec.clusterIPs', 'spec.selector'],
  ...SPEC_FIELDS.map((name) => `spec.${name}`),
];

/**
 * Returns the service, or undefined if it is rejected; see {@link parseService}. Services read with the same
 * `sharedPorts` have the same object for equal ports.
 */
export function readService(
  fields: ObjectFields,
  sharedPorts: SharedValues<Service['ports']> = new SharedValues(),
): Service | undefined {
  const id = readID(fields);
  if (id === undefined) return undefined;
  const metadata = fields.map('metadata');
  const annotations = metadata.strings('annotations');
  const labels = metadata.strings('labels');
  const spec = fields.map('spec');
  const type = readType(spec);
  const { global, shared, affinity } = readFlags(annotations);
  const { addressing, clusterIPs } = readClusterIPs(spec, labels);
  const trafficDistribution = readDistribution(spec, annotations);
  const { nodeSelector, nodeLabel } = readExposure(metadata);
  const exposedType = metadata.object('annotations')?.word(EXPOSED_TYPE, EXPOSED_TYPES);
  const ports = readServicePorts(spec, type, sharedPorts);
  const externalIPs = ImmutableSet(readAddresses(spec.list('externalIPs')));
  const ingressIPs = readIngressIPs(fields);
  return createService({
    id,
    global,
    shared,
    affinity,
    addressing,
    clusterIPs,
    type,
    trafficDistribution,
    nodeSelector,
    nodeLabel,
    exposedType,
    ports,
    externalIPs,
    ingressIPs,
    sourceRanges: readSourceRanges(spec),
    sourceRangesPolicy: annotation(annotations, SOURCE_RANGES_POLICY) === 'deny' ? 'deny' : 'allow',
    externalTrafficPolicy: spec.word('externalTrafficPolicy', TRAFFIC_POLICIES) ?? 'Cluster',
    internalTrafficPolicy: spec.word('internalTrafficPolicy', TRAFFIC_POLICIES) ?? 'Cluster',
    healthCheckNodePort: readNodePort(spec, 'healthCheckNodePort'),
    sessionAffinitySeconds: readSessionAffinity(spec),
    publishNotReady: spec.boolean('publishNotReadyAddresses') ?? false,
    ...labelsAndSelector(labels, spec.strings('selector')),
  });
}

/**
 * Parses an untrusted v1 `Service`. Rejects the service if its namespace or name is invalid. Any other invalid field (a
 * port out of range, an invalid source range) is rejected, and the rest of the service is used. A service of an
 * unsupported type is returned, too, because the cache must delete a service that becomes unsupported. Never throws.
 */
export function parseService(object: unknown, options: ParseOptions = {}): Parsed<Service> {
  return parseObject('Service', object, options, (fields) => readService(fields));
}

/** Returns only the name of a service, which is sufficient for a delete. */
export function parseServiceID(object: unknown, options: ParseOptions = {}): Parsed<ServiceID> {
  return parseObject('Service', object, options, readID);
}
