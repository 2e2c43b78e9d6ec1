import { protocolName } from '../../../src/net/port.ts';
import type { Backends } from '../../../src/servicecache/backend.ts';
import {
  type Frontend,
  formatFrontend,
  frontendsOf,
  type NodePortOptions,
} from '../../../src/servicecache/frontends.ts';
import type { Service } from '../../../src/servicecache/service.ts';
import type { TraceBackend, TraceEndpoints, TraceFrontend, TraceScenario } from './servicecache-trace.ts';

/** Protocol 0 has two forms in the traces, depending on its origin: no name, or `NONE`. */
const NO_PROTOCOL = new Set(['', 'NONE', 'ANY']);

/** Returns a protocol's name in the form for comparisons of the two sides. */
export function comparableProtocol(name: string): string {
  return NO_PROTOCOL.has(name) ? '' : name;
}

function portOf({ port, protocol }: { port: number; protocol: number }): { protocol: string; port: number } {
  return { protocol: comparableProtocol(protocolName(protocol)), port };
}

/** Returns the addresses of the node that upstream uses: those of the family of the cluster IP. */
function surrogateAddresses(service: Service, config: TraceScenario['config']): readonly string[] {
  const [clusterIP] = service.clusterIPs;
  if (clusterIP === undefined) return [];
  return config.nodePortAddresses?.[clusterIP.includes(':') ? 'ipv6' : 'ipv4'] ?? [];
}

function hasNodePorts(service: Service, config: TraceScenario['config']): boolean {
  return service.type !== 'ClusterIP' && config.enableNodePort && config.nodePortAddresses !== null;
}

/**
 * Returns the node ports as upstream lists them: every port of such a service has a map. A port whose node
 * port is not allocated has frontends of port 0, which our cache does not have.
 */
function nodePortFrontends(
  service: Service,
  config: TraceScenario['config'],
  nodePort: NodePortOptions,
): readonly Frontend[] {
  if (!hasNodePorts(service, config)) return [];
  const unallocated = [...service.ports].flatMap(([portName, port]): readonly Frontend[] =>
    port.nodePort !== 0
      ? []
      : surrogateAddresses(service, config).map((ip) => ({
          ...port,
          kind: 'node-port',
          ip,
          portName,
          port: 0,
        })),
  );
  return [
    ...frontendsOf(service, nodePort).filter((frontend) => frontend.kind === 'node-port'),
    ...unallocated,
  ];
}

function addressText(frontend: Frontend): string {
  return formatFrontend(frontend).replace(/\/.*$/, '');
}

/** Returns one of our services in the form of the traces. */
export function renderService(
  service: Service,
  config: TraceScenario['config'],
  nodePort: NodePortOptions,
): unknown {
  const identity = (values: Iterable<string>): unknown =>
    Object.fromEntries([...values].map((each) => [each, each]));
  const nodePorts: Record<string, Record<string, TraceFrontend>> = {};
  if (hasNodePorts(service, config)) for (const name of service.ports.keys()) nodePorts[name] = {};
  for (const frontend of nodePortFrontends(service, config, nodePort)) {
    const frontends = nodePorts[frontend.portName] ?? {};
    frontends[addressText(frontend)] = { ip: frontend.ip, ...portOf(frontend), scope: 0 };
  }
  return {
    frontendIP: service.clusterIPs.first() ?? null,
    headless: service.addressing === 'headless',
    includeExternal: service.global,
    shared: service.shared,
    trafficPolicy: service.externalTrafficPolicy,
    healthCheckNodePort: service.healthCheckNodePort,
    ports: Object.fromEntries([...service.ports].map(([name, port]) => [name, portOf(port)])),
    nodePorts,
    externalIPs: config.enableNodePort ? identity(service.externalIPs) : null,
    loadBalancerIPs: config.enableNodePort ? identity(service.ingressIPs) : null,
    loadBalancerSourceRanges: identity(service.sourceRanges ?? []),
    labels: Object.fromEntries(service.labels),
    selector: Object.fromEntries(service.selector),
    sessionAffinity: service.sessionAffinitySeconds > 0,
    sessionAffinityTimeoutSec: service.sessionAffinitySeconds,
  };
}

/** Returns our backends in the form of the traces. */
export function renderBackends(backends: Backends): TraceEndpoints {
  const rendered = [...backends.values()].map(({ address, ports, nodeName }): [string, TraceBackend] => [
    address,
    { ports: Object.fromEntries([...ports].map(([name, port]) => [name, portOf(port)])), nodeName },
  ]);
  return { backends: Object.fromEntries(rendered) };
}

/** Returns our frontend in the form of the traces. */
export function renderFrontend(frontend: Frontend): TraceFrontend {
  return { ip: frontend.ip, ...portOf(frontend), scope: 0 };
}

/** Returns what only upstream lists: `[<nil>]` for no cluster IP, and port 0 for unallocated node ports. */
export function upstreamOnlyFrontends(
  service: Service,
  config: TraceScenario['config'],
  nodePort: NodePortOptions,
): readonly string[] {
  const nil = [...service.ports.values()].map(
    ({ port, protocol }) => `[<nil>]:${port}/${comparableProtocol(protocolName(protocol))}`,
  );
  const unallocated = nodePortFrontends(service, config, nodePort).filter((frontend) => frontend.port === 0);
  return [...(service.clusterIPs.size === 0 ? nil : []), ...unallocated.map(formatFrontend)];
}
