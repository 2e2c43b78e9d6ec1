import type { NodeDocument } from '../../src/api/documents.ts';

/** Returns all addresses of a node: the listed ones, and those for health checks and ingress. */
export function nodeIPs(node: NodeDocument): readonly { readonly type: string; readonly ip: string }[] {
  const { ipv4HealthIP, ipv6HealthIP, ipv4IngressIP, ipv6IngressIP } = node;
  const more = Object.entries({
    health: [ipv4HealthIP, ipv6HealthIP],
    ingress: [ipv4IngressIP, ipv6IngressIP],
  });
  return [
    ...node.addresses,
    ...more.flatMap(([type, ips]) => ips.flatMap((ip) => (ip === undefined ? [] : { type, ip }))),
  ];
}

/** Returns the pod CIDRs of a node, the primary ones first. */
export function podCIDRs(node: NodeDocument): readonly string[] {
  const { ipv4SecondaryAllocCIDRs = [], ipv6SecondaryAllocCIDRs = [] } = node;
  const all = [
    node.ipv4AllocCIDR,
    node.ipv6AllocCIDR,
    ...ipv4SecondaryAllocCIDRs,
    ...ipv6SecondaryAllocCIDRs,
  ];
  return all.filter((cidr) => cidr !== undefined);
}
