// Publishes a cluster into an etcd, in the formats of Cilium: every agent of the mesh can follow it.
//
//   publisher.ts <endpoint>
//
// Keys are bound to leases that the client keeps alive. If the program is stopped or killed, they are deleted after a
// quarter of an hour, unless it is started again before; only nodes stay. Readers keep the last known state while no
// publisher runs.
import { ClusterPublisher, EtcdBackend } from 'datapath-cache';
import { clusterIdentityRange, parseLabels } from 'datapath-cache/formats';

const CLUSTER_ID = 1;
/** The first identity of the cluster. A program should store its numbers, so that a restart does not change them. */
const WEB = clusterIdentityRange(CLUSTER_ID).min;

const [endpoint = 'http://127.0.0.1:2379'] = process.argv.slice(2);
const backend = new EtcdBackend({ endpoints: [endpoint] });
const publisher = new ClusterPublisher({
  backend,
  clusterName: 'west',
  clusterID: CLUSTER_ID,
  onReject: ({ message }) => console.error(message), // the value is not published; all others are
  onFailure: (error, task) => console.error(`${task}:`, error), // retried until it succeeds
});
const stop = new AbortController();
for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => stop.abort());

// Keeps the kvstore equal to the desired state until the signal fires: retries, and writes keys again that expired with
// a lease or that others deleted. The desired state may change at any time.
const running = publisher.run(stop.signal);
publisher.upsertNode({
  name: 'n1',
  addresses: [{ type: 'InternalIP', ip: '192.168.0.1' }],
  ipv4AllocCIDR: '10.1.0.0/24',
});
publisher.upsertIdentity(WEB, parseLabels('k8s:app=web;') ?? []);
publisher.upsertIP({
  key: '10.1.0.5',
  identity: WEB,
  hostIP: '192.168.0.1',
  encryptKey: 0,
  k8s: { namespace: 'shop', podName: 'web-0' },
});

// The state is complete: keys of an earlier run that are not desired are deleted, and readers consider the cluster
// complete.
await Promise.race([publisher.markSynced(), running]);
if (!stop.signal.aborted) console.log(`cluster west is published at ${endpoint}`);

await running;
await backend.close({ keepLeases: true });
