import { ascending } from '../base/sorted-map.ts';
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

/** A pod CIDR that lies in pod CIDRs of other nodes. */
export interface PodOverlap {
  readonly inner: NodePods;
  /** The smallest CIDR of another node that contains it, or is equal. */
  readonly outer: NodePods;
  /** Number of further CIDRs of other nodes that contain it. */
  readonly more: number;
}

/**
 * Yields each pod CIDR that overlaps an equal or larger one of another node, in the order of CIDRs. Costs n log n, even
 * if all nodes have the same CIDR, and the number of overlapping pairs is quadratic.
 */
export function* overlappingPods(all: Iterable<NodePods>): Generator<PodOverlap, void, void> {
  const sorted = Array.from(all, (pods) => ({ pods, prefix: Prefix.parse(pods.podCIDR) }))
    .flatMap(({ pods, prefix }) => (prefix === undefined ? [] : { pods, prefix }))
    .sort((a, b) => comparePrefixes(a.prefix, b.prefix) || ascending(a.pods.node, b.pods.node));
  // Each prefix in `outer` contains the next one. A prefix that does not contain the current one contains no later one.
  const outer: typeof sorted = [];
  /** Number of prefixes in `outer` by node. */
  const counts = new Map<string, number>();
  const count = (node: string): number => counts.get(node) ?? 0;
  for (const current of sorted) {
    const { node } = current.pods;
    let last = outer.at(-1);
    for (; last !== undefined && !last.prefix.contains(current.prefix); last = outer.at(-1)) {
      outer.pop();
      counts.set(last.pods.node, count(last.pods.node) - 1);
    }
    if (last?.pods.node === node && comparePrefixes(last.prefix, current.prefix) === 0) continue;
    // Skips at most 128 prefixes of the node itself, because they contain each other and differ in length.
    const nearest = outer.findLast(({ pods }) => pods.node !== node);
    if (nearest !== undefined)
      yield { inner: current.pods, outer: nearest.pods, more: outer.length - count(node) - 1 };
    outer.push(current);
    counts.set(node, count(node) + 1);
  }
}
