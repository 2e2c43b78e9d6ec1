import { processGate } from '../src/base/node/process-gate.ts';
import { systemClock } from '../src/base/system-clock.ts';
import type { TurnGate } from '../src/base/turn-gate.ts';
import { ClusterMesh } from '../src/clustermesh/cluster-mesh.ts';
import { IPCache } from '../src/ipcache/ipcache.ts';
import { bytesOfText } from '../src/kvstore/codec/bytes.ts';
import { MemoryBackend } from '../src/kvstore/memory/memory-backend.ts';
import { MemoryServer } from '../src/kvstore/memory/memory-server.ts';
import { NO_LEASE } from '../src/kvstore/session/transport.ts';
import { NodeManager } from '../src/nodemanager/node-manager.ts';
import { ServiceCache } from '../src/servicecache/service-cache.ts';
import { expect } from './expect.ts';
import { type Delayed, delayCells, delayDuring, type LoopDelay } from './loop-delay.ts';
import { liveBytes } from './meter.ts';
import { textTable } from './text-table.ts';

/** Parameters of the bench. */
export interface MeshBenchOptions {
  /** Clusters, each of 100 nodes and 1,000 endpoints; default 250, at most 254. */
  readonly n?: number | undefined;
  /** If true, prints nothing: the caller prints the result. */
  readonly json?: boolean | undefined;
}

/** The result of {@link benchMesh}. The kvstores are in the same process, and their work is included. */
export interface MeshBenchReport {
  readonly clusters: number;
  readonly nodes: number;
  readonly endpoints: number;
  /** From the first `add` until every resource of every cluster was complete. */
  readonly readyMs: number;
  readonly readyDelay: LoopDelay;
  /** Like `readyMs`, without the gate that spreads work over turns. */
  readonly ungatedReadyMs: number;
  readonly ungatedReadyDelay: LoopDelay;
  /** Growth of heap and buffers by following, without the kvstores, per remote endpoint. */
  readonly bytesPerEndpoint: number;
  /** Endpoint changes through kvstore, watch, decoder and ipcache, at full speed. */
  readonly eventsPerSecond: number;
  readonly eventDelay: LoopDelay;
  /**
   * Like `eventsPerSecond`, if only {@link FEW_CLUSTERS} of the clusters change. Must not depend on the number of other
   * clusters. If all clusters change, each burst has fewer events per cluster, so the fixed cost of a batch has more
   * weight.
   */
  readonly fewEventsPerSecond: number;
  readonly fewEventDelay: LoopDelay;
  /**
   * One cluster with as many endpoints as all together is listed again from a kvstore that has lost them, so all are
   * deleted.
   */
  readonly resync: Delayed;
  /** The same cluster is removed. */
  readonly removal: Delayed;
}

const NODES = 100;
const ENDPOINTS = 1000;
const SERVICES = 10;
const SMALL: Size = { nodes: NODES, services: SERVICES, endpoints: ENDPOINTS };
/** Nodes and services of a large cluster. */
const LARGE = 10_000;
const EVENTS = 50_000;
/** Events that are written before a pause for other turns. */
const BURST = 500;
/** Clusters that change in the second measurement. */
const FEW_CLUSTERS = 64;
/** Maximum for a mesh of 255, without the local cluster. */
const MAX_CLUSTERS = 254;
const RUNTIME = { clock: systemClock, random: Math.random };
const RESOURCES = ['nodes', 'services', 'identities', 'ip'];

/** Writes a key. A value that is neither text nor bytes is written as JSON. */
export function put(server: MemoryServer, key: string, value: unknown): void {
  const text = (): string => (typeof value === 'string' ? value : JSON.stringify(value));
  const bytes = value instanceof Uint8Array ? value : bytesOfText(text());
  server.txn({ compare: [], writes: [{ op: 'put', key, value: bytes, lease: NO_LEASE }] });
}

/** Returns the name of a cluster by its id. */
export function nameOf(cluster: number): string {
  return `cluster-${cluster}`;
}

/** Returns the address of an endpoint. */
export function address(cluster: number, i: number): string {
  return `10.${cluster + (i >> 16)}.${(i >> 8) & 255}.${i & 255}`;
}

function nodeAddress(cluster: number, i: number): string {
  return `172.${16 + (i >> 8)}.${cluster}.${i & 255}`;
}

/** Writes an endpoint of a cluster. */
export function putEndpoint(server: MemoryServer, cluster: number, i: number, identity: number): void {
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

/** Size of a cluster. */
export interface Size {
  readonly nodes: number;
  readonly services: number;
  readonly endpoints: number;
}

/** Returns the kvstore of one cluster, filled. */
export function fill(
  clusterID: number,
  name: string,
  { nodes, services, endpoints }: Size = SMALL,
): MemoryServer {
  const server = new MemoryServer({ clock: systemClock, clusterID: name });
  put(server, `cilium/cluster-config/${name}`, { id: clusterID, capabilities: { syncedCanaries: true } });
  for (let i = 0; i < nodes; i++) {
    const addresses = [{ Type: 'InternalIP', IP: nodeAddress(clusterID, i) }];
    const node = { Name: `node-${i}`, Cluster: name, IPAddresses: addresses, ClusterID: clusterID };
    put(server, `cilium/state/nodes/v1/${name}/node-${i}`, node);
  }
  for (let i = 0; i < services; i++) {
    const backends = { [address(clusterID, i)]: { http: { Port: 8080, Protocol: 'TCP' } } };
    const id = { cluster: name, namespace: 'shop', name: `service-${i}` };
    put(server, `cilium/state/services/v1/${name}/shop/service-${i}`, { ...id, backends });
  }
  for (let i = 0; i < endpoints; i++) putEndpoint(server, clusterID, i, identityOf(clusterID, i));
  for (const resource of RESOURCES) put(server, `cilium/synced/${name}/cilium/state/${resource}/v1`, 'now');
  return server;
}

/** Returns the identity of an endpoint. */
export function identityOf(clusterID: number, i: number): number {
  return (clusterID << 16) + 256 + (i % 50);
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

/** Returns a gate of turns of the event loop. */
export function gate(): TurnGate {
  return processGate(systemClock);
}

/** The part of an agent in the mesh: engines and their sources. */
export class Follower {
  readonly ipcache: IPCache = new IPCache();
  readonly #nodes: NodeManager;
  readonly #mesh: ClusterMesh;

  constructor(turns: TurnGate | undefined) {
    const { ipcache } = this;
    const services = new ServiceCache({ clusterName: 'own' });
    this.#nodes = new NodeManager({ ...RUNTIME, ipcache, clusterName: 'own', nodeName: 'here' });
    const engines = { ipcache, services, nodes: this.#nodes };
    this.#mesh = new ClusterMesh({ ...RUNTIME, ...engines, gate: turns, clusterName: 'own', clusterID: 255 });
  }

  /** Follows a cluster for each server. Resolves when all are complete. */
  async follow(servers: readonly MemoryServer[]): Promise<void> {
    const add = (server: MemoryServer, i: number): Promise<unknown> =>
      this.#mesh.add(nameOf(i + 1), () => new MemoryBackend({ ...RUNTIME, server }));
    await Promise.all(servers.map(add));
    await this.#mesh.synced();
  }

  /** Starts to follow one cluster on a server. */
  async add(name: string, server: MemoryServer): Promise<void> {
    await this.#mesh.add(name, () => new MemoryBackend({ ...RUNTIME, server }));
    while (this.#mesh.statusOf(name)?.state !== 'ready') await turn();
  }

  async remove(name: string): Promise<void> {
    await this.#mesh.remove(name);
  }

  async stop(): Promise<void> {
    await this.#mesh.stop();
    this.#nodes.close();
  }
}

async function readyWithoutGate(servers: readonly MemoryServer[]): Promise<Delayed> {
  const follower = new Follower(undefined);
  const ready = await delayDuring(() => follower.follow(servers));
  await follower.stop();
  return ready;
}

/** Withdraws one large cluster twice: by an empty kvstore, and by removing it. */
async function takeAway(endpoints: number): Promise<Pick<MeshBenchReport, 'resync' | 'removal'>> {
  const name = nameOf(1);
  const size = { nodes: LARGE, services: LARGE };
  const full = fill(1, name, { endpoints, ...size });
  const empty = fill(1, name, { endpoints: 0, nodes: 0, services: 0 });
  const follower = new Follower(gate());
  await follower.add(name, full);
  expect('endpoints that are followed', follower.ipcache.size, endpoints + LARGE);
  const resync = await delayDuring(() => follower.add(name, empty));
  expect('endpoints after the sweep', follower.ipcache.size, 0);
  await follower.add(name, full);
  const removal = await delayDuring(() => follower.remove(name));
  expect('endpoints after the removal', follower.ipcache.size, 0);
  await follower.stop();
  return { resync, removal };
}

function render(report: MeshBenchReport): string {
  const { readyMs, readyDelay, ungatedReadyMs, ungatedReadyDelay } = report;
  const { eventsPerSecond, eventDelay, fewEventsPerSecond, fewEventDelay } = report;
  const row = (what: string, figure: string, { p50, p99, max }: LoopDelay): readonly string[] => [
    what,
    figure,
    ...[p50, p99, max].map(String),
    '',
  ];
  const table = textTable(
    ['what', 'figure', 'event loop p50 ms', 'p99 ms', 'max ms', 'budget'],
    [
      row('all clusters ready', `${readyMs} ms`, readyDelay),
      row('the same, without the turn gate', `${ungatedReadyMs} ms`, ungatedReadyDelay),
      row('changes of endpoints', `${eventsPerSecond} a second`, eventDelay),
      row(`changes in at most ${FEW_CLUSTERS} of them`, `${fewEventsPerSecond} a second`, fewEventDelay),
      ['one large cluster, listed again: all swept', ...delayCells(report.resync)],
      ['one large cluster, removed', ...delayCells(report.removal)],
    ],
  );
  const { clusters, nodes, endpoints, bytesPerEndpoint } = report;
  return `${clusters} clusters, ${nodes} nodes, ${endpoints} endpoints; the figures include the work of the kvstores, which run in the same process.

${table}
${bytesPerEndpoint} bytes for each endpoint that is followed.
`;
}

/** Measures a whole mesh over kvstores in memory: time to ready, memory, event rate, event-loop delay. */
export async function benchMesh({ n = 250, json = false }: MeshBenchOptions = {}): Promise<MeshBenchReport> {
  const servers = Array.from({ length: Math.min(n, MAX_CLUSTERS) }, (_, i) => fill(i + 1, nameOf(i + 1)));
  const ungated = await readyWithoutGate(servers);
  const before = await liveBytes();
  const follower = new Follower(gate());
  const ready = await delayDuring(() => follower.follow(servers));
  const endpoints = servers.length * ENDPOINTS;
  const bytesPerEndpoint = Math.round(((await liveBytes()) - before) / endpoints);
  const count = Math.min(EVENTS, endpoints);
  const few = await delayDuring(() => change(servers.slice(0, FEW_CLUSTERS), follower.ipcache, count));
  const events = await delayDuring(() => change(servers, follower.ipcache, count));
  await follower.stop();
  const removed = await takeAway(endpoints);
  const report: MeshBenchReport = {
    clusters: servers.length,
    nodes: servers.length * NODES,
    endpoints,
    readyMs: ready.ms,
    readyDelay: ready.delay,
    ungatedReadyMs: ungated.ms,
    ungatedReadyDelay: ungated.delay,
    bytesPerEndpoint,
    eventsPerSecond: Math.round((count * 1000) / events.ms),
    eventDelay: events.delay,
    fewEventsPerSecond: Math.round((count * 1000) / few.ms),
    fewEventDelay: few.delay,
    ...removed,
  };
  if (!json) process.stdout.write(render(report));
  return report;
}
