// Keeps a route to the pods of each node.
//
// The node manager calls the handler for one node at a time, in order, and merges changes during a call. A failed call
// is retried with a backoff until it succeeds, so calls must be idempotent. `old` is always the node of the last
// successful call.
import {
  IPCache,
  type Node,
  type NodeHandler,
  NodeManager,
  tunnelEndpoint,
} from 'datapath-cache/nodemanager';

let attempts = 0;

/** Replace this with code that changes the system: `ip route`, netlink, a BPF map. It may be slow, and may fail. */
async function route(command: string, node: Node): Promise<void> {
  attempts++;
  if (attempts === 2) throw new Error('the device is busy');
  console.log(`route ${command} ${node.ipv4AllocCIDR} via ${tunnelEndpoint(node, 'ipv4')}`);
}

const routes: NodeHandler = {
  name: 'routes',
  nodeAdd: (node) => route('replace', node),
  nodeUpdate: async (old, node) => {
    if (old.ipv4AllocCIDR !== node.ipv4AllocCIDR) await route('delete', old);
    await route('replace', node);
  },
  nodeDelete: (node) => route('delete', node),
};

const nodes = new NodeManager({
  clusterName: 'west',
  nodeName: 'n0',
  ipcache: new IPCache(), // receives the addresses of nodes
  onHandlerFault: ({ call, node, error, retryInMs }) => {
    const when = retryInMs === undefined ? 'not tried again' : 'tried again';
    console.log(`${call} of ${node} has failed, ${error instanceof Error ? error.message : error}: ${when}`);
  },
});
const unsubscribe = nodes.subscribe(routes);

// In an agent, LocalCluster, ClusterMesh and Kubernetes write the nodes.
const addresses = [{ type: 'InternalIP', ip: '192.168.0.1' }];
const n1 = { cluster: 'west', name: 'n1', source: 'kvstore', addresses } as const;
nodes.nodeUpdated({ ...n1, ipv4AllocCIDR: '10.1.1.0/24' });
await nodes.whenApplied();
nodes.nodeUpdated({ ...n1, ipv4AllocCIDR: '10.1.9.0/24' });
await nodes.whenApplied();
nodes.nodeDeleted(n1);
await nodes.whenApplied();
unsubscribe();
nodes.close();
