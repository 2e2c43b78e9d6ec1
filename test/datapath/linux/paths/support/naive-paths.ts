/** A node as the model sees it. */
export interface ModelNode {
  readonly name: string;
  /** The last octet of the node's addresses. */
  readonly octet: number;
  /**
   * True if it is on the link of this host, 192.168.0.0/24; otherwise it is in 198.51.100.0/24, behind a
   * router.
   */
  readonly isNear: boolean;
  readonly cidrs: readonly string[];
}

/**
 * Returns the required routes by definition, in the syntax of `ip`: each CIDR has a route to the first node by
 * name.
 */
export function expectedRoutes(nodes: readonly ModelNode[]): readonly string[] {
  const byName = nodes.toSorted((a, b) => (a.name < b.name ? -1 : 1));
  return [...new Set(nodes.flatMap(({ cidrs }) => cidrs))]
    .flatMap((cidr) => {
      const winner = byName.find(({ cidrs }) => cidrs.includes(cidr));
      return winner === undefined ? [] : [`${cidr} ${pathTo(winner, cidr.includes(':'))}`];
    })
    .sort();
}

function pathTo({ isNear, octet }: ModelNode, isIPv6: boolean): string {
  if (isNear) return `via ${isIPv6 ? `fd00::${octet.toString(16)}` : `192.168.0.${octet}`} dev eth0`;
  const encap = `encap ip id 6 src 192.168.0.1 dst 198.51.100.${octet} ttl 0 tos 0 csum`;
  return `${encap} via ${isIPv6 ? 'fe80::1' : '192.0.0.8'} dev dpcache_vxlan`;
}
