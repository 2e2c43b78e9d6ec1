import { checkArgument, ITERABLE, NUMBER, OBJECT, objectWith, TEXT } from '../base/arguments.ts';
import { protocolName } from '../net/port.ts';
import type { Service } from './service.ts';

/**
 * The node addresses that serve node ports, by family, in canonical text. An empty list disables node ports of that
 * family; `0.0.0.0` and `::` mean all addresses.
 */
export interface NodePortOptions {
  /** If false, node ports, external IPs and ingress IPs are removed from every service. */
  readonly enabled: boolean;
  /** Default: none. */
  readonly ipv4?: readonly string[] | undefined;
  /** Default: none. */
  readonly ipv6?: readonly string[] | undefined;
}

/** The kind of a frontend address. */
export type FrontendKind = 'cluster-ip' | 'node-port' | 'external-ip' | 'ingress-ip';

/** An address, port and protocol of a service. */
export interface Frontend {
  readonly kind: FrontendKind;
  /** Canonical text. */
  readonly ip: string;
  readonly port: number;
  /** IANA number. */
  readonly protocol: number;
  readonly portName: string;
}

const FRONTEND = objectWith({ ip: TEXT, port: NUMBER, protocol: NUMBER });
const SERVICE = objectWith({ clusterIPs: ITERABLE, ports: ITERABLE });

/** Returns a frontend as text, `10.0.0.1:80/TCP` or `[fd00::1]:80/TCP`. The text does not contain the kind. */
export function formatFrontend(frontend: Pick<Frontend, 'ip' | 'port' | 'protocol'>): string {
  checkArgument('formatFrontend: frontend', frontend, FRONTEND);
  const { ip, port, protocol } = frontend;
  return `${ip.includes(':') ? `[${ip}]` : ip}:${port}/${protocolName(protocol)}`;
}

/** Returns the node addresses of the same families as the cluster IPs of the service. */
function nodeAddresses(service: Service, nodePort: NodePortOptions): readonly string[] {
  const hasIPv4 = service.clusterIPs.some((ip) => !ip.includes(':'));
  const hasIPv6 = service.clusterIPs.some((ip) => ip.includes(':'));
  return [...(hasIPv4 ? (nodePort.ipv4 ?? []) : []), ...(hasIPv6 ? (nodePort.ipv6 ?? []) : [])];
}

/** Returns true if a service has frontends of a type. */
export function isExposed({ exposedType }: Service, type: NonNullable<Service['exposedType']>): boolean {
  return exposedType === undefined || exposedType === type;
}

/**
 * Returns all frontends of a service: each port on each cluster IP, external IP and ingress IP, and each allocated node
 * port on the node addresses of the cluster IPs' families. If the service has an `exposedType`, only those of this
 * type, and the external IPs. A headless service has none. Ordered by kind (cluster IP, node port, external IP, ingress
 * IP), then IP and port.
 */
export function frontendsOf(service: Service, nodePort: NodePortOptions): readonly Frontend[] {
  checkArgument('frontendsOf: service', service, SERVICE);
  checkArgument('frontendsOf: nodePort', nodePort, OBJECT);
  const frontends: Frontend[] = [];
  if (service.addressing === 'headless') return frontends;
  const add = (kind: FrontendKind, ips: Iterable<string>): void => {
    for (const ip of ips) {
      for (const [portName, servicePort] of service.ports) {
        const port = kind === 'node-port' ? servicePort.nodePort : servicePort.port;
        if (port !== 0) frontends.push({ kind, ip, port, protocol: servicePort.protocol, portName });
      }
    }
  };
  if (isExposed(service, 'ClusterIP')) add('cluster-ip', service.clusterIPs);
  if (nodePort.enabled && isExposed(service, 'NodePort')) add('node-port', nodeAddresses(service, nodePort));
  add('external-ip', service.externalIPs);
  if (isExposed(service, 'LoadBalancer')) add('ingress-ip', service.ingressIPs);
  return frontends;
}
