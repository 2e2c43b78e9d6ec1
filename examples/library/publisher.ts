// Publishes a cluster into an etcd, in the formats of Cilium: every agent of the mesh can follow it.
//
//   publisher.ts <endpoint>
//
// Keys are bound to a lease that the client keeps alive. They go when the client is closed, or a quarter of an hour after the
// program was killed. A canary says of each resource that it is complete; followers wait for it.
import { EtcdBackend, SyncStore, systemClock } from 'datapath-cache';
import {
  CLUSTER_CONFIG_PREFIX,
  encodeClusterConfig,
  encodeIdentity,
  encodeIPIdentityPair,
  encodeNode,
  MESH_RESOURCES,
  type MeshResource,
  parseLabels,
  resourcePrefix,
  syncedKey,
} from 'datapath-cache/formats';

const CLUSTER = 'west';
const CLUSTER_ID = 1;
/** The numbers that a cluster may allocate have its id above 16 bits of its own, which begin at 256. */
const WEB = (CLUSTER_ID << 16) + 256;

const content: Readonly<Record<MeshResource, Readonly<Record<string, Uint8Array>>>> = {
  nodes: {
    n1: encodeNode({
      ...{ name: 'n1', cluster: CLUSTER, clusterID: CLUSTER_ID },
      addresses: [{ type: 'InternalIP', ip: '192.168.0.1' }],
      ...{ ipv4AllocCIDR: '10.1.0.0/24', ipv4SecondaryAllocCIDRs: [], ipv6SecondaryAllocCIDRs: [] },
      ...{ encryptionKey: 0, labels: new Map(), annotations: new Map(), nodeIdentity: 0 },
      ...{ wireguardPubKey: '', bootID: '' },
    }),
  },
  services: {},
  identities: { [WEB]: encodeIdentity(parseLabels('k8s:app=web;') ?? []) },
  ip: {
    '10.1.0.5': encodeIPIdentityPair({
      ...{ key: '10.1.0.5', identity: WEB, hostIP: '192.168.0.1', encryptKey: 0 },
      k8s: { namespace: 'shop', podName: 'web-0' },
    }),
  },
};

const [endpoint = 'http://127.0.0.1:2379'] = process.argv.slice(2);
const runtime = { clock: systemClock, random: Math.random };
const backend = new EtcdBackend({ endpoints: [endpoint] }, runtime);
const stop = new AbortController();
for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => stop.abort());

// Each store keeps its keys as they are to be, until it is stopped: it tries again, and puts back what others have deleted with
// the lease.
const stores = MESH_RESOURCES.map((resource) => {
  const prefix = resourcePrefix(resource, CLUSTER);
  const store = new SyncStore({ ...runtime, backend, prefix, canary: syncedKey(CLUSTER, resource) });
  for (const [name, value] of Object.entries(content[resource])) store.upsert(name, value);
  return store;
});
const running = stores.map((store) => store.run(stop.signal));
await Promise.race([Promise.all(stores.map((store) => store.markSynced())), Promise.all(running)]);

const config = new SyncStore({ ...runtime, backend, prefix: CLUSTER_CONFIG_PREFIX });
const capabilities = { syncedCanaries: true, cached: false };
config.upsert(CLUSTER, encodeClusterConfig({ id: CLUSTER_ID, capabilities }));
running.push(config.run(stop.signal));
if (!stop.signal.aborted) console.log(`cluster ${CLUSTER} is published at ${endpoint}`);

await Promise.all(running);
await backend.close();
