import { comparePrefixes, Prefix } from '../net/prefix.ts';
import type { ListedNode } from './node-list.ts';
import type { SourceState } from './source-state.ts';

/** A difference between the nodes of the sources and those that an agent knows. */
export interface ListedNodeDifference {
  /**
   * `missing`: the agent does not know the node. `stale`: no source has it. `address`: no source has one of its primary
   * addresses. `undecidable`: a part of the sources that may have the node cannot be read.
   */
  readonly kind: 'missing' | 'stale' | 'address' | 'undecidable';
  /** `cluster/name`. */
  readonly node: string;
  readonly actual: readonly string[];
  readonly known: readonly string[];
}

/**
 * Yields the differences of the nodes that an agent knows from those of the sources. Nodes of other clusters are not
 * compared, unless the sources have them.
 */
export function* compareNodes(
  sources: SourceState,
  listed: readonly ListedNode[],
): Generator<ListedNodeDifference, void, void> {
  const seen = new Set<string>();
  const stale = sources.incomplete.has('nodes') ? 'undecidable' : 'stale';
  for (const { cluster, name, primary } of listed) {
    // Before 1.8, the name has no cluster.
    const node = `${cluster === '' ? sources.clusterName : cluster}/${name}`;
    const known = sources.nodes.get(node);
    seen.add(node);
    if (known !== undefined) {
      const hasOtherAddress = primary.some((ip) => !known.addresses.includes(ip));
      if (hasOtherAddress) yield { kind: 'address', node, actual: primary, known: known.addresses };
    } else if (sources.hasAllClusters || cluster === '' || cluster === sources.clusterName)
      yield { kind: stale, node, actual: primary, known: [] };
  }
  for (const [node, { addresses }] of sources.nodes)
    if (!seen.has(node)) yield { kind: 'missing', node, actual: [], known: addresses };
}

/** A node with one of its pod CIDRs. */
export interface NodePods {
  /** `cluster/name`. */
  readonly node: string;
  readonly podCIDR: string;
}

/**
 * Yields the pairs of different nodes whose pod CIDRs overlap, in the order of CIDRs. Costs n log n, plus the number of
 * pairs, which is quadratic if all nodes have the same CIDR; so the pairs are not stored.
 */
export function* overlappingPods(
  all: Iterable<NodePods>,
): Generator<readonly [NodePods, NodePods], void, void> {
  const sorted = Array.from(all, (pods) => ({ pods, prefix: Prefix.parse(pods.podCIDR) }))
    .flatMap(({ pods, prefix }) => (prefix === undefined ? [] : { pods, prefix }))
    .sort((a, b) => comparePrefixes(a.prefix, b.prefix));
  // Each prefix in `outer` contains the next one. A prefix that does not contain the current one contains no later one.
  const outer: typeof sorted = [];
  for (const current of sorted) {
    while (outer.length > 0 && outer.at(-1)?.prefix.contains(current.prefix) !== true) outer.pop();
    for (const { pods } of outer) if (pods.node !== current.pods.node) yield [pods, current.pods];
    outer.push(current);
  }
}
