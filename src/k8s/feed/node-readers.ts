import type { NodeManager } from '../../nodemanager/node-manager.ts';
import type { NodeSpec } from '../../nodemanager/node-spec.ts';
import {
  CILIUM_NODE_FIELDS,
  NODE_FIELDS,
  type NodeCluster,
  readCiliumNode,
  readNode,
} from '../parse-nodes.ts';
import type { KindReader } from './object-feed.ts';

/** The methods of `NodeManager` which the feed calls. */
export type FedNodes = Pick<NodeManager, 'nodeUpdated' | 'nodeDeleted' | 'withdraw'>;

/** The node manager and the name of the local node. */
export interface NodeEngine extends NodeCluster {
  readonly nodes: FedNodes;
  readonly nodeName: string;
}

/** Type of the addresses at which Cilium has its routers. */
const ROUTER = 'CiliumInternalIP';

/**
 * Writes the local node: its Node, completed by what Cilium allocated to it, which only its CiliumNode contains
 * (KUBERNETES 37, 39). It exists if the Node exists.
 */
export class LocalNode {
  readonly #nodes: FedNodes;
  #node: NodeSpec | undefined;
  #allocated: NodeSpec | undefined;

  constructor(nodes: FedNodes) {
    this.#nodes = nodes;
  }

  setNode(node: NodeSpec | undefined): void {
    const previous = this.#node;
    this.#node = node;
    if (node !== undefined) this.#write();
    else if (previous !== undefined) this.#nodes.nodeDeleted(previous);
  }

  setCiliumNode(ciliumNode: NodeSpec | undefined): void {
    this.#allocated = ciliumNode;
    this.#write();
  }

  #write(): void {
    if (this.#node === undefined) return;
    this.#nodes.nodeUpdated(
      this.#allocated === undefined ? this.#node : completed(this.#node, this.#allocated),
    );
  }
}

/**
 * Returns a Node with the fields of its CiliumNode that a Node lacks. The CIDRs are those of the CiliumNode if it has
 * some, because `spec.podCIDRs` of a Node are unused if Cilium allocates the CIDRs.
 */
function completed(node: NodeSpec, allocated: NodeSpec): NodeSpec {
  const { ipv4AllocCIDR, ipv6AllocCIDR } = allocated;
  const cidrs = ipv4AllocCIDR === undefined && ipv6AllocCIDR === undefined ? node : allocated;
  const routers = (allocated.addresses ?? []).filter(({ type }) => type === ROUTER);
  // A router of the annotations can be an earlier one, whose address a pod may have now.
  const own = (node.addresses ?? []).filter(
    ({ type, ip }) =>
      type !== ROUTER || !routers.some((router) => router.ip.includes(':') === ip.includes(':')),
  );
  return {
    ...allocated,
    source: node.source,
    labels: node.labels,
    addresses: [...own, ...routers.filter(({ ip }) => !own.some((known) => known.ip === ip))],
    ipv4AllocCIDR: cidrs.ipv4AllocCIDR,
    ipv6AllocCIDR: cidrs.ipv6AllocCIDR,
    ipv4SecondaryAllocCIDRs: cidrs.ipv4SecondaryAllocCIDRs,
    ipv6SecondaryAllocCIDRs: cidrs.ipv6SecondaryAllocCIDRs,
    ipv4HealthIP: allocated.ipv4HealthIP ?? node.ipv4HealthIP,
    ipv6HealthIP: allocated.ipv6HealthIP ?? node.ipv6HealthIP,
    ipv4IngressIP: allocated.ipv4IngressIP ?? node.ipv4IngressIP,
    ipv6IngressIP: allocated.ipv6IngressIP ?? node.ipv6IngressIP,
    encryptionKey: allocated.encryptionKey || node.encryptionKey,
  };
}

/**
 * Returns a reader that writes CiliumNodes to the node manager, that of the local node to `local` (KUBERNETES 36 to
 * 38). Unless `keepRestored` is true, the first complete list withdraws the restored nodes of the local cluster
 * (KUBERNETES 41). It has no `same`, because the node manager compares nodes itself, including labels.
 */
export function ciliumNodeReader(
  engine: NodeEngine,
  local: LocalNode,
  keepRestored = false,
): KindReader<NodeSpec> {
  const { nodes, nodeName, clusterName } = engine;
  return {
    kind: 'CiliumNode',
    fields: CILIUM_NODE_FIELDS,
    read: (fields) => readCiliumNode(fields, engine),
    change: (current, previous) => {
      if ((current ?? previous)?.name === nodeName) local.setCiliumNode(current);
      else if (current !== undefined) nodes.nodeUpdated(current);
      else if (previous !== undefined) nodes.nodeDeleted(previous);
    },
    listed: () => {
      if (!keepRestored) nodes.withdraw({ source: 'restored', cluster: clusterName });
    },
  };
}

/**
 * Returns a reader that writes the local Node to `local`. Other Nodes are ignored (KUBERNETES 39).
 *
 * @param withAnnotations if true, annotations are read (KUBERNETES 40)
 * @param onLabels receives the labels of the host endpoint with every change of the Node
 */
export function localNodeReader(
  engine: NodeEngine,
  local: LocalNode,
  withAnnotations: boolean,
  onLabels: (labels: ReadonlyMap<string, string>) => void,
): KindReader<NodeSpec> {
  return {
    kind: 'Node',
    fields: NODE_FIELDS,
    read: (fields) => {
      const node = readNode(fields, engine, withAnnotations);
      return node?.name === engine.nodeName ? node : undefined;
    },
    change: (current) => {
      local.setNode(current);
      if (current?.labels instanceof Map) onLabels(current.labels);
    },
  };
}
