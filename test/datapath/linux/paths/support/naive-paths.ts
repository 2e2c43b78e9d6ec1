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

/** The required content of the kernel, in the syntax of `ip`. */
export interface ExpectedPaths {
  readonly routes: readonly string[];
  readonly neighbors: readonly string[];
  readonly fdb: readonly string[];
}

function hex(octet: number): string {
  return octet.toString(16).padStart(2, '0');
}

/** Returns the required paths by definition: each CIDR has a route to the first node by name. */
export function expectedPaths(nodes: readonly ModelNode[]): ExpectedPaths {
  const byName = nodes.toSorted((a, b) => (a.name < b.name ? -1 : 1));
  const routes: string[] = [];
  const neighbors = new Map<string, string>();
  const fdb = new Set<string>();
  for (const cidr of new Set(nodes.flatMap(({ cidrs }) => cidrs))) {
    const claimants = byName.filter(({ cidrs }) => cidrs.includes(cidr));
    const isIPv6 = cidr.includes(':');
    for (const { isNear, octet } of claimants) {
      if (isNear) continue;
      const mac = `02:dc:c6:33:64:${hex(octet)}`;
      fdb.add(`${mac} ${`198.51.100.${octet}`}`);
      const hop = isIPv6 ? `fe80::dc:c6ff:fe33:64${hex(octet)}` : cidr.replace('/24', '');
      if (!neighbors.has(hop)) neighbors.set(hop, mac);
    }
    const [winner] = claimants;
    if (winner === undefined) continue;
    const { octet } = winner;
    const near = isIPv6 ? `fd00::${octet.toString(16)}` : `192.168.0.${octet}`;
    const far = isIPv6 ? `fe80::dc:c6ff:fe33:64${hex(octet)}` : cidr.replace('/24', '');
    routes.push(winner.isNear ? `${cidr} via ${near} dev eth0` : `${cidr} via ${far} dev dpcache_vxlan`);
  }
  return {
    routes: routes.sort(),
    neighbors: [...neighbors].map(([hop, mac]) => `${hop} ${mac}`).sort(),
    fdb: [...fdb].sort(),
  };
}
