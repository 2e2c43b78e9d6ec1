// Follows all clusters of a mesh, read-only, and prints what is where and every change of it.
//
//   follow-mesh.ts <folder>
//
// The folder holds an etcd configuration for each remote cluster, as Cilium has them: a file `west` that says
// `endpoints: ["https://…"]`, and certificates. Files may come, change and go while the program runs. A cluster that is out of
// reach keeps what it has said.
import {
  ClusterMesh,
  ConfigFolder,
  ConfigFollower,
  EtcdBackend,
  IPCache,
  NodeManager,
  ServiceCache,
  systemClock,
  TurnGate,
} from 'datapath-cache';

const [folder = '/var/lib/cilium/clustermesh'] = process.argv.slice(2);
const names = { clusterName: 'observer', localNodeName: 'here' };
const runtime = { clock: systemClock, random: Math.random };

const ipcache = new IPCache();
const services = new ServiceCache(names);
const nodes = new NodeManager({ ...names, ...runtime, ipcache });
const gate = new TurnGate({ clock: systemClock, nextTurn: setImmediate });
const mesh = new ClusterMesh({
  ...{ ...names, clusterID: 0, ...runtime, gate, ipcache, services, nodes },
  onReject: ({ message }) => console.error(message), // what a cluster says wrongly is left out, alone
});
const source = new ConfigFolder(folder, (config) => new EtcdBackend(config, runtime));
const follower = new ConfigFollower({
  ...{ source, mesh, clock: systemClock },
  onProblem: (file, why) => console.error(`${folder}/${file}: ${why}`),
});

// First what is known, as changes; then every change. `onSynced` would say where the one ends and the other begins.
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
const missing = await mesh.clustersSynced({ deadlineMs: 60_000 }); // counted from the last progress of each
for (const name of missing)
  console.error(`cluster ${name}: ${mesh.statusOf(name)?.lastFailure ?? 'not complete'}`);
const [web] = [...ipcache.entries()].filter(({ k8s }) => k8s?.podName === 'web-0');
console.log(`${mesh.names.join(', ')}: ${ipcache.size} prefixes, ${nodes.size} nodes`);
if (web !== undefined) console.log(`${web.key} runs on ${web.hostIP}, says ${web.owner}`);

await interrupted;
await follower.stop(); // before the mesh: it would go on adding to it
await mesh.stop(); // takes nothing away, here or there
nodes.close();
