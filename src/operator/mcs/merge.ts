import type { ExportedPort, ExportedService, ServiceExport } from '../../model/service-export.ts';
import { protocolName } from '../../net/port.ts';

/** Reasons of the condition `Conflict`, in the order of the reports. The names are those of the API. */
export type ConflictReason =
  | 'PortConflict'
  | 'IPFamilyConflict'
  | 'TypeConflict'
  | 'SessionAffinityConflict'
  | 'SessionAffinityConfigConflict'
  | 'AnnotationsConflict'
  | 'LabelsConflict'
  | 'InternalTrafficPolicyConflict'
  | 'TrafficDistributionConflict';

/** A property with different values in several clusters. */
export interface ExportConflict {
  readonly reason: ConflictReason;
  /** A sentence in the words of Cilium. */
  readonly message: string;
}

/** The service imported by all clusters. */
export interface MergedService extends ExportedService {
  /** Names of the exporting clusters, oldest export first. */
  readonly clusters: readonly string[];
  /** The first conflict in the order of {@link ConflictReason}. */
  readonly conflict: ExportConflict | undefined;
}

interface Property {
  readonly name: string;
  readonly reason: ConflictReason;
  /** Returns the value as text; equal values have equal texts. */
  readonly text: (service: ServiceExport) => string;
}

/** Returns a map as text, in the format of Go: `map[a:1 b:2]`. */
function mapText(map: ReadonlyMap<string, string>): string {
  const entries = [...map].sort(([a], [b]) => (a < b ? -1 : 1));
  return `map[${entries.map(([key, value]) => `${key}:${value}`).join(' ')}]`;
}

/** The properties taken from the oldest export. */
const PROPERTIES: readonly Property[] = [
  { name: 'type', reason: 'TypeConflict', text: ({ type }) => type },
  {
    name: 'sessionAffinity',
    reason: 'SessionAffinityConflict',
    text: ({ sessionAffinity = 'None' }) => sessionAffinity,
  },
  {
    name: 'sessionAffinityConfig.clientIP',
    reason: 'SessionAffinityConfigConflict',
    text: ({ sessionAffinitySeconds = '' }) => String(sessionAffinitySeconds),
  },
  { name: 'annotations', reason: 'AnnotationsConflict', text: ({ annotations }) => mapText(annotations) },
  { name: 'labels', reason: 'LabelsConflict', text: ({ labels }) => mapText(labels) },
  {
    name: 'internalTrafficPolicy',
    reason: 'InternalTrafficPolicyConflict',
    text: ({ internalTrafficPolicy = 'Cluster' }) => internalTrafficPolicy,
  },
  {
    name: 'trafficDistribution',
    reason: 'TrafficDistributionConflict',
    text: ({ trafficDistribution = '' }) => trafficDistribution,
  },
];

/** Orders exports from old to young; equally old exports by cluster. */
function byAge(a: ServiceExport, b: ServiceExport): number {
  if (a.createdAt !== b.createdAt) return a.createdAt - b.createdAt;
  return a.cluster < b.cluster ? -1 : 1;
}

function portText({ name, port, protocol }: ExportedPort): string {
  return `${name === '' ? '' : `${name} `}${port}/${protocolName(protocol)}`;
}

function samePort(a: ExportedPort, b: ExportedPort | undefined): boolean {
  return (
    b !== undefined &&
    a.name === b.name &&
    a.port === b.port &&
    a.protocol === b.protocol &&
    (a.appProtocol ?? '') === (b.appProtocol ?? '')
  );
}

/**
 * Maximum number of ports of an import. With this many ports, the import and its derived Service have about 300 kB
 * each, managed fields included. An API server rejects objects of more than 1.5 MB. Cilium has no limit.
 */
const MAX_PORTS = 1000;

interface OwnedPort {
  readonly port: ExportedPort;
  readonly cluster: string;
}

/** The union of the ports of all exports, without ports in conflict with a port of an older export. */
class PortUnion {
  readonly #byNumber = new Map<string, OwnedPort>();
  readonly #byName = new Map<string, OwnedPort>();

  get isFull(): boolean {
    return this.#byNumber.size >= MAX_PORTS;
  }

  get ports(): readonly ExportedPort[] {
    return [...this.#byNumber.values()].map(({ port }) => port);
  }

  /**
   * Adds a port. If it conflicts with the port of an older export, or if there are too many ports, it is not used, and
   * the reason is returned.
   */
  add(port: ExportedPort, cluster: string): string | undefined {
    const number = `${port.port}/${port.protocol}`;
    const named = this.#byName.get(port.name);
    if (named !== undefined && `${named.port.port}/${named.port.protocol}` !== number)
      return `Duplicated port name "${port.name}". Using port definition "${portText(named.port)}" from oldest service export in cluster "${named.cluster}".`;
    const older = this.#byNumber.get(number);
    if (older !== undefined) return conflictOf(port, older);
    if (this.isFull)
      return `Too many ports. Using the ${MAX_PORTS} ports from the oldest service exports, without "${portText(port)}" from cluster "${cluster}".`;
    const owned = { port, cluster };
    this.#byNumber.set(number, owned);
    this.#byName.set(port.name, owned);
    return undefined;
  }
}

/** Returns the conflict of a port with the port of an older export with the same number and protocol. */
function conflictOf(port: ExportedPort, { port: older, cluster }: OwnedPort): string | undefined {
  const text = portText(port);
  if (port.name !== older.name)
    return `Conflicting port name on "${text}". Using the port name "${older.name}" from oldest service export in cluster "${cluster}".`;
  if ((port.appProtocol ?? '') !== (older.appProtocol ?? ''))
    return `Conflicting appProtocol on "${text}". Using the appProtocol "${older.appProtocol ?? ''}" from oldest service export in cluster "${cluster}".`;
  return undefined;
}

/** Returns the union of the ports of all exports, and the first conflict. */
function mergePorts(exports: readonly ServiceExport[]): {
  readonly ports: readonly ExportedPort[];
  readonly message: string | undefined;
} {
  const union = new PortUnion();
  let message: string | undefined;
  for (const { ports, cluster } of exports)
    for (const port of ports) {
      if (union.isFull && message !== undefined) break; // no other port changes the result
      const conflict = union.add(port, cluster);
      message ??= conflict;
    }
  const { ports } = union;
  const different = exports.find(
    (other) =>
      other.ports.length !== ports.length || other.ports.some((port, index) => !samePort(port, ports[index])),
  );
  message ??=
    different &&
    `Ports from cluster "${different.cluster}" does not match ports of oldest service export in cluster "${exports[0]?.cluster}".`;
  return { ports, message };
}

/**
 * Returns the families that all clusters have, in the order of the oldest export. With a family that one cluster does
 * not have, clients would reach only a part of the backends. A cluster that has none of the common families is ignored.
 */
function mergeFamilies(exports: readonly ServiceExport[]): {
  readonly families: ExportedService['ipFamilies'];
  readonly message: string | undefined;
} {
  const [first, ...others] = exports.filter(({ ipFamilies }) => ipFamilies.length > 0);
  let families = first?.ipFamilies ?? [];
  let message: string | undefined;
  for (const { ipFamilies, cluster } of others) {
    const common = families.filter((family) => ipFamilies.includes(family));
    if (common.length > 0) families = common;
    else message ??= `IPFamilies conflict. Cluster '${cluster}' has no IPFamilies in common.`;
  }
  return { families, message };
}

/** Returns the first property that differs between a younger export and the oldest one. */
function propertyConflict(
  oldest: ServiceExport,
  exports: readonly ServiceExport[],
): ExportConflict | undefined {
  for (const { name, reason, text } of PROPERTIES) {
    const wanted = text(oldest);
    const others = exports.filter((other) => text(other) !== wanted).length;
    if (others === 0) continue;
    const disagree = `${others}/${exports.length} clusters disagree`;
    const message = `Conflicting ${name}. ${disagree}. Using "${wanted}" from oldest service export in cluster "${oldest.cluster}".`;
    return { reason, message };
  }
  return undefined;
}

/**
 * Merges the exports of one name: at most one for each cluster, in any order. The oldest export wins; of two equally
 * old exports, the one of the first cluster by name. Returns undefined if there are no exports. Pure.
 */
export function mergeExports(services: Iterable<ServiceExport>): MergedService | undefined {
  const exports = [...services].sort(byAge);
  const [oldest] = exports;
  if (oldest === undefined) return undefined;
  const { ports, message: portMessage } = mergePorts(exports);
  const { families, message: familyMessage } = mergeFamilies(exports);
  const conflict: ExportConflict | undefined =
    (portMessage === undefined ? undefined : { reason: 'PortConflict', message: portMessage }) ??
    (familyMessage === undefined ? undefined : { reason: 'IPFamilyConflict', message: familyMessage }) ??
    propertyConflict(oldest, exports);
  return {
    annotations: oldest.annotations,
    labels: oldest.labels,
    ports,
    type: oldest.type,
    sessionAffinity: oldest.sessionAffinity,
    sessionAffinitySeconds: oldest.sessionAffinitySeconds,
    ipFamilies: families,
    internalTrafficPolicy: oldest.internalTrafficPolicy,
    trafficDistribution: oldest.trafficDistribution,
    clusters: exports.map(({ cluster }) => cluster),
    conflict,
  };
}
