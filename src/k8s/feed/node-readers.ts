import type { NodeManager } from '../../nodemanager/node-manager.ts';
import type { NodeSpec } from '../../nodemanager/node-spec.ts';
import {
  CILIUM_NODE_FIELDS,
  NODE_FIELDS,
  type NodeCluster,
  readCiliumNode,
  readNode,
} from '../parse-nodes.ts';
import type { ObjectFields } from '../parse-object.ts';
import type { ObjectReader } from './object-feed.ts';

/** What the feed needs of a `NodeManager`. */
export type FedNodes = Pick<NodeManager, 'nodeUpdated' | 'nodeDeleted' | 'withdraw'>;

/** Where nodes go, and which of them is the own one. */
export interface NodeEngine extends NodeCluster {
  readonly nodes: FedNodes;
  readonly nodeName: string;
}

/** Compares nothing itself: the node manager compares what it holds with what comes, labels among it (K 38). */
function nodeReader(
  kind: string,
  fields: readonly string[],
  { nodes }: NodeEngine,
  read: (fields: ObjectFields) => NodeSpec | undefined,
): ObjectReader<NodeSpec> {
  return {
    kind,
    fields,
    read,
    change: (now, before) => {
      if (now !== undefined) nodes.nodeUpdated(now);
      else if (before !== undefined) nodes.nodeDeleted(before);
    },
  };
}

/**
 * CiliumNodes of other nodes into the node manager (K 36 to 38). What is only restored of the own cluster's nodes goes with
 * the first complete list (K 41), unless others see to that.
 */
export function ciliumNodeReader(engine: NodeEngine, keepRestored = false): ObjectReader<NodeSpec> {
  const read = (fields: ObjectFields): NodeSpec | undefined => {
    const node = readCiliumNode(fields, engine);
    return node?.name === engine.nodeName ? undefined : node;
  };
  return {
    ...nodeReader('CiliumNode', CILIUM_NODE_FIELDS, engine, read),
    listed: () => {
      if (!keepRestored) engine.nodes.withdraw({ source: 'restored', cluster: engine.clusterName });
    },
  };
}

/** How the own Node is read. */
export interface OwnNodeOptions {
  /** What its annotations say counts (K 40). */
  readonly annotations: boolean;
  /** Its labels, which are the host endpoint's; again when they change. */
  readonly onLabels?: ((labels: ReadonlyMap<string, string>) => void) | undefined;
}

/** The own Node into the node manager; others never come from there (K 39). */
export function ownNodeReader(
  engine: NodeEngine,
  { annotations, onLabels }: OwnNodeOptions,
): ObjectReader<NodeSpec> {
  const reader = nodeReader('Node', NODE_FIELDS, engine, (fields) => {
    const node = readNode(fields, engine, annotations);
    return node?.name === engine.nodeName ? node : undefined;
  });
  return {
    ...reader,
    change: (now, before) => {
      reader.change(now, before);
      if (now?.labels !== undefined) onLabels?.(now.labels);
    },
  };
}
