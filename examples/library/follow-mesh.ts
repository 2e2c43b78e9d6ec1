// Follows all clusters of a mesh, read-only, and prints the entries and every change.
//
//   follow-mesh.ts <folder>
//
// The folder contains an etcd configuration for each remote cluster, in the format of Cilium: a file `west` with
// `endpoints: ["https://…"]`, and certificates. Files may be added, changed and deleted while the program runs. If a
// cluster is unreachable, its last known state is kept.
import {
  ClusterMesh,
  ConfigFolder,
  ConfigFollower,
  EtcdBackend,
  IPCache,
  NodeManager,
  ServiceCache,
  TurnGate,
} from 'datapath-cache';

const [folder = '/var/lib/cilium/clustermesh'] = process.argv.slice(2);
const names = { clusterName: 'observer', nodeName: 'here' };

const ipcache = new IPCache();
const services = new ServiceCache(names);
const nodes = new NodeManager({ ...names, ipcache });
const gate = new TurnGate({ nextTurn: setImmediate });
const mesh = new ClusterMesh({
  ...names,
  clusterID: 0,
  gate,
  ipcache,
  services,
  nodes,
  onReject: ({ message }) => console.error(message), // the other values of the cluster are still used
});
const source = new ConfigFolder(folder, (config) => new EtcdBackend(config, { gate }));
const follower = new ConfigFollower({
  source,
  mesh,
  onProblem: (file, why) => console.error(`${folder}/${file}: ${why}`),
});

// The listener receives the current state as changes, then `onSynced`, then every change.
ipcache.subscribe({
  onChanges: (changes) => {
    for (const { kind, prefix, old, new: now } of changes) {
      const pod = (now ?? old)?.k8s;
      const where = pod === undefined ? '' : `, pod ${pod.namespace}/${pod.podName}`;
      console.log(`${kind} ${prefix}: identity ${(now ?? old)?.identity}${where}`);
    }
  },
});

const interrupted = new Promise((resolve) => {
  for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, resolve);
});
await follower.start();
const missing = await mesh.clustersSynced({ deadlineMs: 60_000 }); // counted from the last progress of each cluster
for (const name of missing)
  console.error(`cluster ${name}: ${mesh.statusOf(name)?.lastFailure?.message ?? 'not complete'}`);
const [web] = [...ipcache.entries()].filter(({ k8s }) => k8s?.podName === 'web-0');
console.log(`${mesh.names.join(', ')}: ${ipcache.size} prefixes, ${nodes.size} nodes`);
if (web !== undefined) console.log(`${web.key} runs on ${web.hostIP}, according to ${web.owner}`);

await interrupted;
await follower.stop(); // before the mesh, because it would add clusters
await mesh.stop(); // deletes nothing, neither here nor in the kvstores
nodes.close();
