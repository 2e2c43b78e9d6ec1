// Keeps a route to the pods of each node: what an agent does with nodes.
//
// The node manager calls the handler for one node at a time, in order, and merges what changes meanwhile. A call that fails is
// repeated with a backoff until it succeeds, so calls must be harmless when they are repeated. `old` is always what this handler
// has been told last with success.
import {
  IPCache,
  type Node,
  type NodeHandler,
  NodeManager,
  systemClock,
  tunnelEndpoint,
} from 'datapath-cache/nodemanager';

let attempts = 0;

/** Stands for what changes the system: `ip route`, netlink, a BPF map. It may take its time, and fail. */
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
  localNodeName: 'n0',
  ipcache: new IPCache(), // addresses of nodes are claimed there
  clock: systemClock,
  random: Math.random,
  onHandlerFault: ({ call, node, error, retryInMs }) => {
    const when = retryInMs === undefined ? 'not tried again' : 'tried again';
    console.log(`${call} of ${node} has failed, ${error instanceof Error ? error.message : error}: ${when}`);
  },
});
const unsubscribe = nodes.subscribe(routes);

/** Resolves when the handler is up to date. */
async function settled(): Promise<void> {
  while (nodes.status().handlers.some(({ pending }) => pending > 0))
    await new Promise((resolve) => setTimeout(resolve, 10));
}

// In an agent OwnCluster, ClusterMesh and Kubernetes say these.
const addresses = [{ type: 'InternalIP', ip: '192.168.0.1' }];
const n1 = { cluster: 'west', name: 'n1', source: 'kvstore', addresses } as const;
nodes.nodeUpdated({ ...n1, ipv4AllocCIDR: '10.1.1.0/24' });
await settled();
nodes.nodeUpdated({ ...n1, ipv4AllocCIDR: '10.1.9.0/24' });
await settled();
nodes.nodeDeleted(n1);
await settled();
unsubscribe();
nodes.close();
