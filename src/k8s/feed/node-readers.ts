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
import type { KindReader } from './object-feed.ts';

/** The methods of `NodeManager` which the feed calls. */
export type FedNodes = Pick<NodeManager, 'nodeUpdated' | 'nodeDeleted' | 'withdraw'>;

/** The node manager and the name of the local node. */
export interface NodeEngine extends NodeCluster {
  readonly nodes: FedNodes;
  readonly nodeName: string;
}

/**
 * Returns a reader of nodes. It has no `same`, because the node manager compares nodes itself, including labels
 * (KUBERNETES 38).
 */
function nodeReader(
  kind: string,
  fields: readonly string[],
  { nodes }: NodeEngine,
  read: (fields: ObjectFields) => NodeSpec | undefined,
): KindReader<NodeSpec> {
  return {
    kind,
    fields,
    read,
    change: (current, previous) => {
      if (current !== undefined) nodes.nodeUpdated(current);
      else if (previous !== undefined) nodes.nodeDeleted(previous);
    },
  };
}

/**
 * Returns a reader that writes CiliumNodes of other nodes to the node manager (KUBERNETES 36 to 38). Unless
 * `keepRestored` is true, the first complete list withdraws the restored nodes of the local cluster (KUBERNETES 41).
 */
export function ciliumNodeReader(engine: NodeEngine, keepRestored = false): KindReader<NodeSpec> {
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

/**
 * Returns a reader that writes the local Node to the node manager. Other Nodes are ignored (KUBERNETES 39).
 *
 * @param withAnnotations if true, annotations are read (KUBERNETES 40)
 * @param onLabels receives the labels of the host endpoint with every change of the Node
 */
export function localNodeReader(
  engine: NodeEngine,
  withAnnotations: boolean,
  onLabels: (labels: ReadonlyMap<string, string>) => void,
): KindReader<NodeSpec> {
  const reader = nodeReader('Node', NODE_FIELDS, engine, (fields) => {
    const node = readNode(fields, engine, withAnnotations);
    return node?.name === engine.nodeName ? node : undefined;
  });
  return {
    ...reader,
    change: (current, previous) => {
      reader.change(current, previous);
      if (current?.labels instanceof Map) onLabels(current.labels);
    },
  };
}
