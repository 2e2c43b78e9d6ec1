// Publishes a cluster into an etcd, in the formats of Cilium: every agent of the mesh can follow it.
//
//   publisher.ts <endpoint>
//
// Keys are bound to leases that the client keeps alive. They go a quarter of an hour after the program was stopped or killed,
// unless another life of it comes before; nodes stay. A reader keeps what it knew while there is no publisher.
import { ClusterPublisher, EtcdBackend, systemClock } from 'datapath-cache';
import { parseLabels } from 'datapath-cache/formats';

const CLUSTER_ID = 1;
/** The numbers that a cluster may allocate have its id above 16 bits of its own, which begin at 256. */
const WEB = (CLUSTER_ID << 16) + 256;

const [endpoint = 'http://127.0.0.1:2379'] = process.argv.slice(2);
const backend = new EtcdBackend({ endpoints: [endpoint] }, { clock: systemClock, random: Math.random });
const publisher = new ClusterPublisher({ backend, clusterName: 'west', clusterID: CLUSTER_ID });
const stop = new AbortController();
for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => stop.abort());

// It keeps the kvstore as it is told, until it is stopped: it tries again, and puts back what is lost with a lease or deleted by
// others. What is to be may change at any time.
const running = publisher.run(stop.signal);
publisher.upsertNode({
  ...{ name: 'n1', addresses: [{ type: 'InternalIP', ip: '192.168.0.1' }] },
  ...{ ipv4AllocCIDR: '10.1.0.0/24', ipv4SecondaryAllocCIDRs: [], ipv6SecondaryAllocCIDRs: [] },
  ...{ encryptionKey: 0, labels: new Map(), annotations: new Map(), nodeIdentity: 0 },
  ...{ wireguardPubKey: '', bootID: '' },
});
publisher.upsertIdentity(WEB, parseLabels('k8s:app=web;') ?? []);
publisher.upsertIP({
  ...{ key: '10.1.0.5', identity: WEB, hostIP: '192.168.0.1', encryptKey: 0 },
  k8s: { namespace: 'shop', podName: 'web-0' },
});

// That was all: what an earlier life has left and this one has not said goes now, and readers find the cluster complete.
await Promise.race([publisher.markSynced(), running]);
if (!stop.signal.aborted) console.log(`cluster west is published at ${endpoint}`);

await running;
await backend.close({ keepLeases: true });
