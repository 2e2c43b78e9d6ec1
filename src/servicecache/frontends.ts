import { protocolName } from '../net/port.ts';
import type { Service } from './service.ts';

/**
 * Which addresses of this node answer on node ports, by family, in canonical text. An empty list serves no node
 * ports there; `0.0.0.0` and `::` stand for all.
 */
export interface NodePortOptions {
  readonly enabled: boolean;
  readonly ipv4?: readonly string[] | undefined;
  readonly ipv6?: readonly string[] | undefined;
}

/** Why an address answers for a service. */
export type FrontendKind = 'cluster-ip' | 'node-port' | 'external-ip' | 'ingress-ip';

/** An address, port and protocol that stands for a service. */
export interface Frontend {
  readonly kind: FrontendKind;
  /** Canonical text. */
  readonly ip: string;
  readonly port: number;
  /** IANA number. */
  readonly protocol: number;
  readonly portName: string;
}

/** `10.0.0.1:80/TCP`, `[fd00::1]:80/TCP`: unique for a frontend whatever its kind. */
export function formatFrontend(frontend: Pick<Frontend, 'ip' | 'port' | 'protocol'>): string {
  const { ip, port, protocol } = frontend;
  return `${ip.includes(':') ? `[${ip}]` : ip}:${port}/${protocolName(protocol)}`;
}

/** The node's addresses of those families in which the service has a cluster IP. */
function nodeAddresses(service: Service, nodePort: NodePortOptions): readonly string[] {
  const hasFamily = (six: boolean): boolean => service.clusterIPs.some((ip) => ip.includes(':') === six);
  return [
    ...(hasFamily(false) ? (nodePort.ipv4 ?? []) : []),
    ...(hasFamily(true) ? (nodePort.ipv6 ?? []) : []),
  ];
}

/**
 * Every frontend of a service: each of its ports on each cluster IP, external IP and ingress IP, and each
 * allocated node port on the node's addresses of the cluster IPs' families. In that order of kinds, ports within.
 */
export function frontendsOf(service: Service, nodePort: NodePortOptions): readonly Frontend[] {
  const frontends: Frontend[] = [];
  const add = (kind: FrontendKind, ips: Iterable<string>): void => {
    for (const ip of ips) {
      for (const [portName, { port, nodePort: own, protocol }] of service.ports) {
        const served = kind === 'node-port' ? own : port;
        if (served !== 0) frontends.push({ kind, ip, port: served, protocol, portName });
      }
    }
  };
  add('cluster-ip', service.clusterIPs);
  if (nodePort.enabled) add('node-port', nodeAddresses(service, nodePort));
  add('external-ip', service.externalIPs);
  add('ingress-ip', service.ingressIPs);
  return frontends;
}
