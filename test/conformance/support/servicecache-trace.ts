import type { ClusterService } from '../../../src/model/cluster-service.ts';
import type { PortProtocol } from '../../../src/net/port.ts';
import { protocolNumber } from '../../../src/net/port.ts';
import { canonicalAddress } from '../../../src/net/prefix.ts';
import type { ServiceID } from '../../../src/servicecache/service-id.ts';

/** A port in a trace. */
export interface TracePort {
  readonly protocol: string;
  readonly port: number;
}

/** A frontend in a trace. */
export interface TraceFrontend extends TracePort {
  readonly ip: string | null;
  readonly scope: number;
}

/** A backend in a trace. */
export interface TraceBackend {
  readonly ports: Readonly<Record<string, TracePort>>;
  readonly nodeName: string;
}

/** Endpoints in a trace. */
export interface TraceEndpoints {
  readonly backends: Readonly<Record<string, TraceBackend>>;
  /** The order of Go's map decided: any of the candidates is right. */
  readonly ambiguous?: Readonly<Record<string, readonly TraceBackend[]>>;
}

/** An event in a trace. */
export interface TraceEvent {
  readonly action: 'service-updated' | 'service-deleted';
  readonly id: ServiceID;
  readonly service: unknown;
  readonly oldService: unknown;
  readonly endpoints: TraceEndpoints;
}

interface TraceClusterService {
  readonly cluster: string;
  readonly namespace: string;
  readonly name: string;
  readonly backends: Readonly<Record<string, Readonly<Record<string, { Protocol: string; Port: number }>>>>;
}

/** One step. */
export interface TraceStep {
  readonly op: string;
  readonly service?: unknown;
  readonly endpoints?: unknown;
  readonly endpointSlice?: unknown;
  readonly clusterService?: TraceClusterService;
  readonly serviceID?: ServiceID;
  readonly fqdn?: string;
  readonly returns?: unknown;
  readonly events?: readonly TraceEvent[];
  readonly redundant?: readonly string[];
  readonly panics?: boolean;
}

/** One scenario. */
export interface TraceScenario {
  readonly name: string;
  readonly config: {
    readonly clusterName: string;
    readonly enableNodePort: boolean;
    readonly enableIPv4: boolean;
    readonly enableIPv6: boolean;
    readonly nodePortAddresses: { readonly ipv4: readonly string[]; readonly ipv6: readonly string[] } | null;
  };
  readonly firstBroken: number | null;
  readonly steps: readonly TraceStep[];
  readonly final: {
    readonly services: Readonly<Record<string, unknown>>;
    readonly endpoints: Readonly<Record<string, Readonly<Record<string, TraceEndpoints>>>>;
    readonly externalEndpoints: Readonly<Record<string, Readonly<Record<string, TraceEndpoints>>>>;
    readonly correlated: Readonly<
      Record<string, { readonly ready: boolean; readonly endpoints: TraceEndpoints }>
    >;
  };
}

function portsOf(ports: TraceClusterService['backends'][string]): ReadonlyMap<string, PortProtocol> {
  return new Map(
    Object.entries(ports).map(([name, { Protocol, Port }]) => [
      name,
      { port: Port, protocol: protocolNumber(Protocol) ?? 0 },
    ]),
  );
}

/** Returns the value that the decoder of the kvstore returns. */
export function clusterServiceOf(traced: TraceClusterService): ClusterService {
  return {
    cluster: traced.cluster,
    namespace: traced.namespace,
    name: traced.name,
    frontends: new Map(),
    backends: new Map(Object.entries(traced.backends).map(([address, ports]) => [address, portsOf(ports)])),
    labels: new Map(),
    selector: new Map(),
    includeExternal: false,
    shared: true,
    clusterID: 0,
  };
}

/** Fields whose strings are keys of upstream's maps of addresses. */
const ADDRESS_FIELDS = new Set(['ip', 'addresses', 'externalIPs']);

function isAlias(value: string): boolean {
  return canonicalAddress(value) !== value;
}

/**
 * Returns true if a step has a non-canonical or invalid text where upstream uses the text as a key. Texts
 * that upstream ignores, such as a bad external IP, are no keys.
 */
export function namesAlias(step: TraceStep): boolean {
  if (Object.keys(step.clusterService?.backends ?? {}).some(isAlias)) return true;
  if (hasAlias(step.service, true)) return true;
  return hasAlias(step.endpoints, false) || hasAlias(step.endpointSlice, false);
}

function hasAlias(value: unknown, dropsInvalid: boolean, fieldName = ''): boolean {
  if (typeof value === 'string') {
    if (!ADDRESS_FIELDS.has(fieldName)) return false;
    return isAlias(value) && !(dropsInvalid && canonicalAddress(value) === undefined);
  }
  if (Array.isArray(value)) return value.some((item) => hasAlias(item, dropsInvalid, fieldName));
  if (typeof value !== 'object' || value === null) return false;
  return Object.entries(value).some(([name, item]) => hasAlias(item, dropsInvalid, name));
}
