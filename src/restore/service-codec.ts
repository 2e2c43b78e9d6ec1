import type { Rejection } from '../base/rejection.ts';
import { DEFAULT_WEIGHT } from '../model/backend-weight.ts';
import { decodeWith, Fields, isObject, rejectInput } from '../net/fields.ts';
import type { PortProtocol } from '../net/port.ts';
import {
  type Backend,
  type BackendState,
  createBackend,
  createEndpointSlice,
} from '../servicecache/backend.ts';
import {
  type Addressing,
  createService,
  type Service,
  type ServiceAffinity,
  type ServicePort,
  type TrafficDistribution,
  type TrafficPolicy,
} from '../servicecache/service.ts';
import type { ServiceID } from '../servicecache/service-id.ts';
import type { ServicePart } from '../servicecache/service-parts.ts';

/** Number of characters after which a record ends. A larger slice or offer is divided into several records. */
const CHARACTERS_PER_RECORD = 32_768;

const TYPES = ['ClusterIP', 'NodePort', 'LoadBalancer'] as const;
const ADDRESSINGS: readonly Addressing[] = ['assigned', 'headless', 'unassigned'];
const POLICIES: readonly TrafficPolicy[] = ['Cluster', 'Local'];
const AFFINITIES: readonly ServiceAffinity[] = ['none', 'local', 'remote'];
const DISTRIBUTIONS: readonly TrafficDistribution[] = [
  'none',
  'prefer-close',
  'prefer-same-zone',
  'prefer-same-node',
];
const SOURCE_RANGES_POLICIES = ['allow', 'deny'] as const;
const STATES: readonly BackendState[] = ['active', 'terminating', 'not-ready', 'maintenance'];
const KINDS: readonly ServicePart['kind'][] = ['service', 'slice', 'offer', 'remote-slice'];

const MAX_INTEGER = Number.MAX_SAFE_INTEGER;

/**
 * Yields a part of a service as one or more JSON records. Names are values, never keys, so that any name can be
 * written.
 */
export function* servicePartRecords(part: ServicePart): Generator<object, void, void> {
  const { kind, id } = part;
  const { namespace, name } = id;
  if (part.kind === 'service') {
    yield { kind, namespace, name, service: serviceRecord(part.service) };
    return;
  }
  const all = part.kind === 'offer' ? part.backends : [...part.slice.backends.values()];
  const notReady = part.kind === 'offer' ? [] : [...part.slice.notReady.values()];
  const head = {
    kind,
    namespace,
    name,
    of: part.kind === 'slice' ? part.slice.name : part.cluster,
    ...(part.kind === 'remote-slice' && { slice: part.slice.name }),
  };
  let record: { readonly backends: object[]; readonly notReady: object[] } = { backends: [], notReady: [] };
  let characters = 0;
  for (const [list, backends] of [
    ['backends', all],
    ['notReady', notReady],
  ] as const) {
    for (const backend of backends) {
      if (characters >= CHARACTERS_PER_RECORD) {
        yield { more: true, ...head, ...record };
        record = { backends: [], notReady: [] };
        characters = 0;
      }
      record[list].push(backendRecord(backend));
      characters += charactersOf(backend);
    }
  }
  yield { more: false, ...head, ...record };
}

/** Returns the approximate number of characters of the record of a backend. */
function charactersOf({ ports, nodeName, zone, hostname, forZones }: Backend): number {
  let size = 100 + nodeName.length + zone.length + hostname.length;
  for (const name of ports.keys()) size += 40 + name.length;
  for (const name of forZones) size += 3 + name.length;
  return size;
}

/** Returns a service as JSON. All fields except the collections are written unchanged. */
function serviceRecord(service: Service): object {
  const {
    id: _,
    clusterIPs,
    ports,
    externalIPs,
    ingressIPs,
    sourceRanges,
    labels,
    selector,
    ...rest
  } = service;
  return {
    clusterIPs: [...clusterIPs],
    ports: Array.from(ports, ([name, { port, protocol, nodePort }]) => ({ name, port, protocol, nodePort })),
    externalIPs: [...externalIPs],
    ingressIPs: [...ingressIPs],
    sourceRanges: sourceRanges && [...sourceRanges],
    labels: [...labels],
    selector: [...selector],
    ...rest,
  };
}

function backendRecord(backend: Backend): object {
  const { address, ports, nodeName, zone, hostname, state, weight, forZones } = backend;
  return {
    address,
    ports: Array.from(ports, ([name, { port, protocol }]) => ({ name, port, protocol })),
    ...(nodeName && { nodeName }),
    ...(zone && { zone }),
    ...(hostname && { hostname }),
    ...(state !== 'active' && { state }),
    ...(weight !== DEFAULT_WEIGHT && { weight }),
    ...(forZones.size > 0 && { forZones: [...forZones] }),
  };
}

/** A slice or offer whose records have been read in part. */
interface UnfinishedPart {
  /** Kind and names of the part. */
  readonly partKey: string;
  readonly backends: Backend[];
  readonly notReady: Backend[];
}

/** Joins records to parts of services. */
export class ServicePartReader {
  readonly #onReject: (rejection: Rejection) => void;
  #unfinished: UnfinishedPart | undefined;
  /** True while the remaining records of a rejected part are ignored. */
  #isRejecting = false;

  constructor(onReject: (rejection: Rejection) => void) {
    this.#onReject = onReject;
  }

  /**
   * Processes a record. Returns the part if the record completes one, else undefined. If a record is invalid,
   * `onReject` receives the reason, and its part is dropped.
   */
  read(record: unknown): ServicePart | undefined {
    const isContinued = isObject(record) && record['more'] === true;
    if (this.#isRejecting) {
      this.#isRejecting = isContinued;
      return undefined;
    }
    const decoded = decodeWith('checkpoint, service', () =>
      this.#read(Fields.of(record, rejectInput, 'record')),
    );
    if (decoded.ok) return decoded.value;
    this.#unfinished = undefined;
    this.#isRejecting = isContinued;
    this.#onReject(decoded.rejection);
    return undefined;
  }

  #read(fields: Fields<never>): ServicePart | undefined {
    const kind = fields.word('kind', KINDS) ?? fields.reject('kind', 'missing-field', 'is missing');
    const id: ServiceID = { namespace: fields.text('namespace'), name: fields.text('name') };
    if (kind === 'service') return { kind, id, service: readService(id, fields.item('service')) };
    const of = fields.text('of'); // the name of a local slice, else the cluster
    const cluster = kind === 'slice' ? '' : of;
    const name = kind === 'remote-slice' ? fields.text('slice') : of;
    const partKey = [kind, of, name, id.namespace, id.name].join('/');
    const previous = this.#unfinished?.partKey === partKey ? this.#unfinished : undefined;
    const backends = previous?.backends ?? [];
    const notReady = previous?.notReady ?? [];
    for (const backend of readBackends(fields.list('backends'), cluster)) backends.push(backend);
    for (const backend of readBackends(fields.list('notReady'), cluster)) notReady.push(backend);
    this.#unfinished = fields.boolean('more') === true ? { partKey, backends, notReady } : undefined;
    if (this.#unfinished !== undefined) return undefined;
    if (kind === 'offer') return { kind, id, cluster, backends };
    const slice = createEndpointSlice({ service: id, name, backends: [...backends, ...notReady] });
    return kind === 'slice' ? { kind, id, slice } : { kind, id, cluster, slice };
  }
}

function readService(id: ServiceID, fields: Fields<never>): Service {
  const addresses = (name: string): readonly string[] =>
    fields.list(name).items((list, index) => list.address(index));
  const hasSourceRanges = fields.value('sourceRanges') !== undefined;
  return createService({
    id,
    type: fields.word('type', TYPES) ?? 'ClusterIP',
    addressing: fields.word('addressing', ADDRESSINGS) ?? 'unassigned',
    clusterIPs: addresses('clusterIPs'),
    ports: fields.list('ports').items(readServicePort),
    externalIPs: addresses('externalIPs'),
    ingressIPs: addresses('ingressIPs'),
    sourceRanges: hasSourceRanges
      ? fields.list('sourceRanges').items((list, index) => list.cidr(index))
      : undefined,
    externalTrafficPolicy: fields.word('externalTrafficPolicy', POLICIES) ?? 'Cluster',
    internalTrafficPolicy: fields.word('internalTrafficPolicy', POLICIES) ?? 'Cluster',
    healthCheckNodePort: fields.integer('healthCheckNodePort', 0, 65_535) ?? 0,
    sessionAffinitySeconds: fields.integer('sessionAffinitySeconds', 0, MAX_INTEGER) ?? 0,
    publishNotReady: fields.boolean('publishNotReady') ?? false,
    global: fields.boolean('global') ?? false,
    shared: fields.boolean('shared') ?? false,
    affinity: fields.word('affinity', AFFINITIES) ?? 'none',
    trafficDistribution: fields.word('trafficDistribution', DISTRIBUTIONS) ?? 'none',
    nodeSelector: fields.string('nodeSelector'),
    nodeLabel: fields.string('nodeLabel'),
    sourceRangesPolicy: fields.word('sourceRangesPolicy', SOURCE_RANGES_POLICIES) ?? 'allow',
    exposedType: fields.word('exposedType', TYPES),
    labels: fields.list('labels').items(readPair),
    selector: fields.list('selector').items(readPair),
  });
}

/** Reads a label: a name and a value. */
function readPair(list: Fields<never>, index: number): readonly [string, string] {
  const value = list.value(index);
  if (Array.isArray(value) && value.length === 2) {
    const [name, text]: readonly unknown[] = value;
    if (typeof name === 'string' && typeof text === 'string') return [name, text];
  }
  return list.reject(index, 'wrong-type', 'must be a name and a value');
}

function readPort(list: Fields<never>, index: number): readonly [string, PortProtocol] {
  const fields = list.item(index);
  const port = fields.integer('port', 0, 65_535) ?? 0;
  return [fields.string('name') ?? '', { port, protocol: fields.integer('protocol', 0, 255) ?? 0 }];
}

function readServicePort(list: Fields<never>, index: number): readonly [string, ServicePort] {
  const [name, { port, protocol }] = readPort(list, index);
  return [name, { port, protocol, nodePort: list.item(index).integer('nodePort', 0, 65_535) ?? 0 }];
}

function readBackends(list: Fields<never>, cluster: string): readonly Backend[] {
  return list.items((items, index) => {
    const fields = items.item(index);
    return createBackend({
      address: fields.address('address') ?? fields.reject('address', 'missing-field', 'is missing'),
      ports: fields.list('ports').items(readPort),
      nodeName: fields.string('nodeName') ?? '',
      zone: fields.string('zone') ?? '',
      hostname: fields.string('hostname') ?? '',
      state: fields.word('state', STATES) ?? 'active',
      weight: fields.integer('weight', 0, 65_535) ?? DEFAULT_WEIGHT,
      forZones: fields.list('forZones').items((zones, at) => zones.string(at)),
      cluster,
    });
  });
}
