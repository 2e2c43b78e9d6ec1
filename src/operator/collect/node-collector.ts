import { CILIUM_NODES } from '../../k8s/feed/kinds.ts';
import type { KubernetesObject, ResourceKind } from '../../k8s/resource.ts';
import { staleRound } from '../../kvstore/gc/garbage-collector.ts';
import { isBeingDeleted, items } from './field.ts';
import type { ObservedObjects } from './observed-kind.ts';
import { type ObjectAccess, performWrite, placeOfObject } from './perform-write.ts';
import type { Collector, RoundReport } from './rounds.ts';

export interface NodeCollectorOptions extends ObjectAccess {
  readonly ciliumNodes: ObservedObjects;
  readonly nodes: ObservedObjects;
}

/** Default of `nodes-gc-interval` in Cilium. */
export const NODE_GC_INTERVAL_MS: number = 5 * 60_000;

export const NODES: ResourceKind = { group: '', version: 'v1', plural: 'nodes' };

/** Returns the uid of each CiliumNode without owner and without Node, by `/name` (OPERATOR 29). Pure. */
export function staleNodes(
  ciliumNodes: ReadonlyMap<string, KubernetesObject>,
  nodes: ReadonlyMap<string, KubernetesObject>,
): ReadonlyMap<string, string> {
  const stale = new Map<string, string>();
  for (const [key, ciliumNode] of ciliumNodes) {
    const isOwned = items(ciliumNode, 'metadata', 'ownerReferences').length > 0;
    if (!isOwned && !isBeingDeleted(ciliumNode) && !nodes.has(key)) stale.set(key, ciliumNode.metadata.uid);
  }
  return stale;
}

/**
 * Deletes a CiliumNode if its Node is missing in two consecutive rounds and in a quorum read. If an agent has written
 * the CiliumNode in between, the CiliumNode is kept.
 */
export class NodeCollector implements Collector {
  readonly name = 'node-gc';
  readonly needs: Collector['needs'];
  readonly #options: NodeCollectorOptions;
  /** Uids of the CiliumNodes found stale by the previous round, by `/name`. */
  #marked: ReadonlyMap<string, string> = new Map();

  constructor(options: NodeCollectorOptions) {
    this.#options = options;
    this.needs = [options.ciliumNodes, options.nodes];
  }

  async round(report: RoundReport, signal: AbortSignal): Promise<void> {
    const { ciliumNodes, nodes, reader, writer } = this.#options;
    const stale = staleNodes(ciliumNodes.objects, nodes.objects);
    const { remove } = staleRound(this.#marked, stale);
    this.#marked = stale; // failed deletes are retried in the next round
    report.setMarked(stale.size);
    for (const [key, uid] of remove) {
      const ciliumNode = ciliumNodes.objects.get(key);
      if (ciliumNode === undefined) continue;
      const { name, resourceVersion } = ciliumNode.metadata;
      if ((await reader.get({ kind: NODES, name }, signal)) !== undefined) continue;
      const reason = `Node ${name} does not exist, in rounds ${report.round - 1} and ${report.round}`;
      const place = placeOfObject(CILIUM_NODES, ciliumNode);
      await performWrite(writer, { verb: 'delete', place, uid, resourceVersion }, reason, report, signal);
      if (signal.aborted) return;
    }
  }
}
