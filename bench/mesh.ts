import { monitorEventLoopDelay, performance } from 'node:perf_hooks';
import { systemClock } from '../src/base/system-clock.ts';
import { ClusterMesh } from '../src/clustermesh/cluster-mesh.ts';
import { IPCache } from '../src/ipcache/ipcache.ts';
import { bytesOfText } from '../src/kvstore/bytes.ts';
import { MemoryBackend } from '../src/kvstore/memory/memory-backend.ts';
import { MemoryServer } from '../src/kvstore/memory/memory-server.ts';
import { NO_LEASE } from '../src/kvstore/transport.ts';
import { NodeManager } from '../src/nodemanager/node-manager.ts';
import { ServiceCache } from '../src/servicecache/service-cache.ts';

/** What to measure. */
export interface MeshBenchOptions {
  /** Clusters, each of 100 nodes and 1,000 endpoints; default 250. */
  readonly n?: number | undefined;
  /** Prints nothing when true: the caller shows the result. */
  readonly json?: boolean | undefined;
}

/** What {@link benchMesh} measured. The kvstores are in the same process, and their work is counted in. */
export interface MeshBenchReport {
  readonly clusters: number;
  readonly nodes: number;
  readonly endpoints: number;
  /** From the first `add` until every resource of every cluster was complete. */
  readonly readyMs: number;
  /** Growth of heap and buffers by following, without what the kvstores hold, per remote endpoint. */
  readonly bytesPerEndpoint: number;
  /** Endpoint changes through kvstore, watch, decoder and ipcache. */
  readonly eventsPerSecond: number;
  /** Event-loop delay while the mesh became ready, and while it was changed at full speed. */
  readonly readyDelayP99Ms: number;
  readonly eventDelayP99Ms: number;
  /** The longest that the event loop was held up while the mesh became ready. */
  readonly readyDelayMaxMs: number;
}

const NODES = 100;
const ENDPOINTS = 1000;
const SERVICES = 10;
const EVENTS = 50_000;
/** Events that are written before others get their turn. */
const BURST = 500;
const RESOURCES = ['nodes', 'services', 'identities', 'ip'];

function put(server: MemoryServer, key: string, value: unknown): void {
  const text = typeof value === 'string' ? value : JSON.stringify(value);
  server.txn({ compare: [], writes: [{ op: 'put', key, value: bytesOfText(text), lease: NO_LEASE }] });
}

function address(cluster: number, i: number): string {
  return `10.${cluster}.${i >> 8}.${i & 255}`;
}

function putEndpoint(server: MemoryServer, cluster: number, i: number, identity: number): void {
  const ip = address(cluster, i);
  const pod = { K8sNamespace: `ns-${i % 20}`, K8sPodName: `pod-${cluster}-${i}` };
  const value = {
    IP: ip,
    Mask: null,
    HostIP: `172.16.${cluster}.${i % NODES}`,
    ID: identity,
    Key: 0,
    Metadata: '',
  };
  put(server, `cilium/state/ip/v1/default/${ip}`, { ...value, ...pod });
}

/** The kvstore of one cluster, filled. */
function fill(clusterID: number, name: string): MemoryServer {
  const server = new MemoryServer({ clock: systemClock, clusterID: name });
  put(server, `cilium/cluster-config/${name}`, { id: clusterID, capabilities: { syncedCanaries: true } });
  for (let i = 0; i < NODES; i++) {
    const addresses = [{ Type: 'InternalIP', IP: `172.16.${clusterID}.${i}` }];
    const node = { Name: `node-${i}`, Cluster: name, IPAddresses: addresses, ClusterID: clusterID };
    put(server, `cilium/state/nodes/v1/${name}/node-${i}`, node);
  }
  for (let i = 0; i < SERVICES; i++) {
    const backends = { [address(clusterID, i)]: { http: { Port: 8080, Protocol: 'TCP' } } };
    const id = { cluster: name, namespace: 'shop', name: `service-${i}` };
    put(server, `cilium/state/services/v1/${name}/shop/service-${i}`, { ...id, backends });
  }
  for (let i = 0; i < ENDPOINTS; i++) putEndpoint(server, clusterID, i, identityOf(clusterID, i));
  for (const resource of RESOURCES) put(server, `cilium/synced/${name}/cilium/state/${resource}/v1`, 'now');
  return server;
}

function identityOf(clusterID: number, i: number): number {
  return (clusterID << 16) + 256 + (i % 50);
}

function heldBytes(): number {
  globalThis.gc?.();
  const { heapUsed, arrayBuffers } = process.memoryUsage();
  return heapUsed + arrayBuffers;
}

async function delayDuring(work: () => Promise<void>): Promise<{ ms: number; p99: number; max: number }> {
  const delay = monitorEventLoopDelay({ resolution: 5 });
  delay.enable();
  await pause(); // the first look only sets the clock: a stall before it would not be seen
  const begun = performance.now();
  await work();
  const ms = performance.now() - begun;
  await pause(); // a stall is seen by the look that comes after it
  delay.disable();
  return { ms, p99: Math.max(0, delay.percentile(99) / 1e6 - 5), max: delay.max / 1e6 };
}

function pause(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, 20));
}

function turn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

/** Changes the identity of endpoints of all clusters in turn, and waits until the ipcache has followed. */
async function change(servers: readonly MemoryServer[], ipcache: IPCache, count: number): Promise<void> {
  let last: readonly [string, number] = ['', 0];
  for (let event = 0; event < count; event++) {
    const cluster = event % servers.length;
    const server = servers[cluster];
    if (server === undefined) continue;
    const i = Math.floor(event / servers.length) % ENDPOINTS;
    const identity = identityOf(cluster + 1, i + 1 + (event % 7));
    putEndpoint(server, cluster + 1, i, identity);
    last = [address(cluster + 1, i), identity];
    if (event % BURST === 0) await turn();
  }
  while (ipcache.get(last[0])?.identity !== last[1]) await turn();
}

/** A whole mesh over kvstores in memory: time to ready, memory, event rate, event-loop delay. */
export async function benchMesh({ n = 250, json = false }: MeshBenchOptions = {}): Promise<MeshBenchReport> {
  const names = Array.from({ length: Math.min(n, 254) }, (_, i) => `cluster-${i + 1}`);
  const servers = names.map((name, i) => fill(i + 1, name));
  const options = { clock: systemClock, random: Math.random };
  const ipcache = new IPCache();
  const services = new ServiceCache({ clusterName: 'own' });
  const nodes = new NodeManager({ ...options, ipcache, clusterName: 'own', localNodeName: 'here' });
  const mesh = new ClusterMesh({ ...options, ipcache, services, nodes, clusterName: 'own', clusterID: 255 });
  const before = heldBytes();
  const ready = await delayDuring(async () => {
    await Promise.all(
      names.map((name, i) => mesh.add(name, () => new MemoryBackend({ ...options, server: servers[i] }))),
    );
    await mesh.synced();
  });
  const endpoints = names.length * ENDPOINTS;
  const bytesPerEndpoint = (heldBytes() - before) / endpoints;
  const count = Math.min(EVENTS, endpoints);
  const events = await delayDuring(() => change(servers, ipcache, count));
  await mesh.stop();
  nodes.close();
  const report: MeshBenchReport = {
    clusters: names.length,
    nodes: names.length * NODES,
    endpoints,
    readyMs: Math.round(ready.ms),
    bytesPerEndpoint: Math.round(bytesPerEndpoint),
    eventsPerSecond: Math.round((count * 1000) / events.ms),
    readyDelayP99Ms: Math.round(ready.p99),
    eventDelayP99Ms: Math.round(events.p99),
    readyDelayMaxMs: Math.round(ready.max),
  };
  if (!json) process.stdout.write(`${JSON.stringify(report, null, 1)}\n`);
  return report;
}
