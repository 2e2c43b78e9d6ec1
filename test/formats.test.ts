import { expect, it } from 'vitest';
import {
  type ClusterNode,
  clusterConfigKey,
  type Decoded,
  decodeIPIdentityPair,
  encodeClusterConfig,
  encodeIdentity,
  encodeIPIdentityPair,
  encodeNode,
  type IPIdentityPair,
  MESH_RESOURCES,
  type MeshResource,
  resourcePrefix,
  syncedKey,
} from '../src/formats.ts';
import {
  ClusterMesh,
  IPCache,
  MemoryBackend,
  NodeManager,
  parseLabels,
  RejectionLog,
  ServiceCache,
  SyncStore,
  systemClock,
  WatchStore,
} from '../src/index.ts';

// A program outside of the package, which uses only the package's entries.
const NAME = 'west';
const runtime = { clock: systemClock, random: Math.random };

const node: ClusterNode = {
  name: 'n1',
  cluster: NAME,
  clusterID: 1,
  addresses: [{ type: 'InternalIP', ip: '192.168.0.1' }],
  ipv4SecondaryAllocCIDRs: [],
  ipv6SecondaryAllocCIDRs: [],
  encryptionKey: 0,
  labels: new Map(),
  annotations: new Map(),
  nodeIdentity: 0,
  wireguardPubKey: '',
  bootID: '',
};
const pod: IPIdentityPair = { key: '10.1.0.1', identity: 0x1_0200, hostIP: '192.168.0.1', encryptKey: 0 };

/** The content of a small cluster, by resource and name. */
const content: Readonly<Record<MeshResource, readonly (readonly [string, Uint8Array])[]>> = {
  nodes: [['n1', encodeNode(node)]],
  services: [],
  endpointslices: [],
  identities: [['66048', encodeIdentity(parseLabels('k8s:app=web;') ?? [])]],
  ip: [['10.1.0.1', encodeIPIdentityPair(pod)]],
};

it('a program publishes a cluster, and another one follows it', async () => {
  const backend = new MemoryBackend(runtime);
  const stop = new AbortController();
  await backend.update(
    clusterConfigKey(NAME),
    encodeClusterConfig({ id: 1, capabilities: { syncedCanaries: true, cached: false } }),
  );
  const stores = MESH_RESOURCES.map((resource) => {
    const prefix = resourcePrefix(resource, NAME);
    const store = new SyncStore({ ...runtime, backend, prefix, canary: syncedKey(NAME, resource) });
    for (const [name, value] of content[resource]) store.upsert(name, value);
    return store;
  });
  const running = stores.map((store) => store.run(stop.signal));
  await Promise.all(stores.map((store) => store.markSynced()));

  const ipcache = new IPCache();
  const names = { clusterName: 'own', nodeName: 'here' };
  const nodes = new NodeManager({ ...runtime, ...names, ipcache });
  const services = new ServiceCache({ clusterName: 'own' });
  const mesh = new ClusterMesh({ ...runtime, ipcache, nodes, services, clusterName: 'own', clusterID: 2 });
  await mesh.add(NAME, () => new MemoryBackend({ ...runtime, server: backend.server }));
  await mesh.synced();
  expect(ipcache.lookup('10.1.0.1')).toMatchObject({ identity: pod.identity, owner: NAME });
  expect([...nodes.nodes()].map(({ name, cluster }) => `${cluster}/${name}`)).toEqual(['west/n1']);

  await mesh.stop();
  nodes.close();
  stop.abort();
  await Promise.all(running);
  await backend.close();
});

it('a program reads one resource of a cluster, and gets its rejections', async () => {
  const backend = new MemoryBackend(runtime);
  const stop = new AbortController();
  const prefix = resourcePrefix('ip', NAME);
  await backend.update(`${prefix}10.1.0.1`, encodeIPIdentityPair(pod));
  await backend.update(`${prefix}10.1.0.2`, new TextEncoder().encode('{"IP":"10.1.0.2","ID":-1}'));
  const held = new Map<string, IPIdentityPair>();
  const rejections = new RejectionLog();
  const decode = (name: string, value: Uint8Array, at: string): Decoded<IPIdentityPair> =>
    decodeIPIdentityPair(name, value, at);
  const observer = {
    onUpdate: (name: string, value: IPIdentityPair): void => void held.set(name, value),
    onDelete: (name: string): void => void held.delete(name),
  };
  const store = new WatchStore({ decode, rejections, observer });
  const running = store.run({ backend, prefix, signal: stop.signal });
  await store.synced;
  expect([...held.keys()]).toEqual(['10.1.0.1']);
  expect(rejections.status().recent[0]).toMatchObject({ field: 'ID', value: '-1' });
  stop.abort();
  await running;
  await backend.close();
});
