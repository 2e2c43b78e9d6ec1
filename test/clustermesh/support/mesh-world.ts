import { assert } from '../../../src/base/assert.ts';
import type { Clock, Random } from '../../../src/base/clock.ts';
import type { Rejection } from '../../../src/base/rejection.ts';
import type { Runtime } from '../../../src/base/system-clock.ts';
import { TurnGate } from '../../../src/base/turn-gate.ts';
import { ClusterMesh } from '../../../src/clustermesh/cluster-mesh.ts';
import { LocalCluster, type LocalClusterOptions } from '../../../src/clustermesh/local-cluster.ts';
import type { MeshTap } from '../../../src/clustermesh/mesh-tap.ts';
import { IPCache } from '../../../src/ipcache/ipcache.ts';
import { parseService } from '../../../src/k8s/parse-service.ts';
import { bytesOfText } from '../../../src/kvstore/codec/bytes.ts';
import { encodeClusterEndpointSlice } from '../../../src/kvstore/codec/cluster-endpoint-slice.ts';
import { keyRange, prefixRange } from '../../../src/kvstore/codec/key-range.ts';
import { type CopiedResource, endpointSliceKey } from '../../../src/kvstore/codec/keys.ts';
import { FaultyMemoryBackend } from '../../../src/kvstore/memory/faulty-memory-backend.ts';
import { MemoryServer } from '../../../src/kvstore/memory/memory-server.ts';
import type { KvstoreBackend } from '../../../src/kvstore/session/backend.ts';
import { type LeaseID, NO_LEASE } from '../../../src/kvstore/session/transport.ts';
import { SERVICE_NAME_LABEL } from '../../../src/model/cluster-endpoint-slice.ts';
import { IdentityCache } from '../../../src/model/identity-cache.ts';
import { formatLabels } from '../../../src/model/labels.ts';
import { NodeManager } from '../../../src/nodemanager/node-manager.ts';
import { ServiceCache } from '../../../src/servicecache/service-cache.ts';
import type { ManualClock } from '../../base/support/manual-clock.ts';
import { settle } from '../../kvstore/support/settle.ts';
import { plain } from '../../servicecache/support/plain.ts';

/** The local cluster of every test here. */
export const OWN = 'own';

const random: Random = () => 0.5;

/** Global services of the local cluster. */
export const LOCAL_SERVICES: readonly Readonly<Record<string, unknown>>[] = ['s0', 's1'].map((name, i) => ({
  apiVersion: 'v1',
  kind: 'Service',
  metadata: { name, namespace: 'ns', annotations: { 'service.cilium.io/global': 'true' } },
  spec: { type: 'ClusterIP', clusterIP: `172.16.0.${i + 1}`, ports: [{ name: 'http', port: 80 }] },
}));

/** The engines of an agent, and the mesh that writes to them from the given servers. */
export class Agent {
  readonly clock: Clock;
  readonly ipcache: IPCache = new IPCache();
  readonly services: ServiceCache = new ServiceCache({ clusterName: OWN });
  readonly nodes: NodeManager;
  readonly mesh: ClusterMesh;
  readonly rejections: Rejection[] = [];
  readonly links: Map<string, FaultyMemoryBackend> = new Map();
  /** Receives the input from the local cluster. */
  tap: MeshTap | undefined;
  #own: LocalCluster | undefined;

  constructor(clock: Clock, makeMesh = (options: MeshOptions): ClusterMesh => new ClusterMesh(options)) {
    this.clock = clock;
    const { ipcache, services } = this;
    this.nodes = new NodeManager({ ipcache, clock, random, clusterName: OWN, nodeName: 'me' });
    for (const object of LOCAL_SERVICES) {
      const { value } = parseService(object);
      assert(value, 'a service of this test');
      services.updateService(value);
    }
    services.markSynced();
    const onReject = (rejection: Rejection): void => void this.rejections.push(rejection);
    const { nodes } = this;
    // A narrow gate, so that almost all work waits. It does not wait for turns of the event loop, because
    // tests count those.
    const gate = new TurnGate({ clock, nextTurn: queueMicrotask, weightPerTurn: 2 });
    this.mesh = makeMesh({
      gate,
      ipcache,
      services,
      nodes,
      clusterName: OWN,
      clusterID: 9,
      clock,
      random,
      onReject,
    });
  }

  connect(name: string, server: MemoryServer): KvstoreBackend {
    const backend = new FaultyMemoryBackend({ server, clock: this.clock, random });
    this.links.set(name, backend);
    return backend;
  }

  followOwn(server: MemoryServer): void {
    this.followOwnOn(this.connect(OWN, server));
  }

  followOwnOn(backend: KvstoreBackend, options: Partial<LocalClusterOptions> = {}): LocalCluster {
    const { ipcache, nodes, clock } = this;
    const engines = { ipcache, nodes, tap: this.tap };
    this.#own = new LocalCluster({ ...engines, clusterName: OWN, backend, clock, random, ...options });
    this.#own.start();
    return this.#own;
  }

  /** Identities of the local cluster. */
  get ownIdentities(): IdentityCache {
    return this.#own?.identities ?? new IdentityCache();
  }

  async add(name: string, server: MemoryServer): Promise<void> {
    await this.mesh.add(name, () => this.connect(name, server));
  }

  /** Returns the state of the engines as plain data. */
  view(): unknown {
    const identities = this.mesh
      .status()
      .clusters.map(({ name }) => [
        name,
        [...(this.mesh.identitiesOf(name)?.entries() ?? [])]
          .map(([id, labels]) => [id, formatLabels(labels)] as const)
          .sort(([a], [b]) => a - b),
      ]);
    const entries = [...this.ipcache.entries({ includeShadowed: true })];
    return plain({
      entries: entries.sort((a, b) => (a.key < b.key ? -1 : 1)),
      claims: entries.map(({ key }) => [key, this.ipcache.explain(key)?.claims.length]),
      nodes: [...this.nodes.nodes()].map((node) => plain(node)).sort(byText),
      services: this.services.snapshot().toJS(),
      identities,
    });
  }

  async stop(): Promise<void> {
    await this.mesh.stop();
    await this.#own?.stop();
    for (const backend of this.links.values()) await backend.close();
  }
}

type MeshOptions = ConstructorParameters<typeof ClusterMesh>[0] & Runtime;

function byText(a: unknown, b: unknown): number {
  return JSON.stringify(a) < JSON.stringify(b) ? -1 : 1;
}

/**
 * Writes a key; deletes it if `value` is undefined. A value that is neither text nor bytes is written as
 * JSON.
 */
export function write(server: MemoryServer, key: string, value: unknown): void {
  const bytesOf = (): Uint8Array =>
    value instanceof Uint8Array
      ? value
      : bytesOfText(typeof value === 'string' ? value : JSON.stringify(value));
  server.txn({
    compare: [],
    writes:
      value === undefined
        ? [{ op: 'delete', range: keyRange(key) }]
        : [{ op: 'put', key, value: bytesOf(), lease: NO_LEASE }],
  });
}

/** Writes every key again, all under one lease, so that the death of the publisher deletes them at the same time. */
export function leaseEverything(server: MemoryServer): LeaseID {
  const lease = server.grantLease(900);
  const { kvs } = server.range(prefixRange('cilium/'));
  const writes = kvs.map(({ key, value }) => ({ op: 'put', key, value, lease }) as const);
  server.txn({ compare: [], writes });
  return lease;
}

/** Writes an IP like the agents of a cluster. */
export function writeIP(server: MemoryServer, address: string, identity: number): void {
  write(server, ipKey(address), { IP: address, ID: identity });
}

export function deleteIP(server: MemoryServer, address: string): void {
  write(server, ipKey(address), undefined);
}

function ipKey(address: string): string {
  return `cilium/state/ip/v1/default/${address}`;
}

/** Writes a node with one address below the keys of a cluster. Its value may name another cluster. */
export function writeNode(
  server: MemoryServer,
  cluster: string,
  name: string,
  address: string,
  named: string = cluster,
): void {
  write(server, `cilium/state/nodes/v1/${cluster}/${name}`, {
    Name: name,
    Cluster: named,
    IPAddresses: [{ Type: 'InternalIP', IP: address }],
  });
}

/** A complete, empty kvstore of a cluster of 1.13 or later. */
export function newCluster(clock: ManualClock, name: string, id: number): MemoryServer {
  const server = new MemoryServer({ clock, clusterID: name });
  configure(server, name, id);
  completeCluster(server, name);
  return server;
}

/** The configuration of a cluster that writes canaries. */
export function configure(server: MemoryServer, name: string, id: number): void {
  write(server, `cilium/cluster-config/${name}`, { id, capabilities: { syncedCanaries: true } });
}

/** A shared service with one backend. */
export function writeService(server: MemoryServer, cluster: string, name: string, backend: string): void {
  write(server, `cilium/state/services/v1/${cluster}/ns/${name}`, {
    cluster,
    namespace: 'ns',
    name,
    backends: { [backend]: { http: { Port: 80, Protocol: 'TCP' } } },
  });
}

/** Names of a slice: its cluster, its service in the namespace `ns`, and itself. */
export interface SliceWriter {
  readonly cluster: string;
  readonly clusterID: number;
  readonly service: string;
  readonly name: string;
}

/** Writes an endpoint slice of a service with these backends, as a cluster shares it. */
export function writeSlice(server: MemoryServer, slice: SliceWriter, backends: readonly string[]): void {
  write(
    server,
    endpointSliceKey({ cluster: slice.cluster, namespace: 'ns', name: slice.name }),
    sliceValue(slice, backends),
  );
}

/** Returns the value of an endpoint slice of a service with these backends. */
export function sliceValue(
  { cluster, clusterID, service, name }: SliceWriter,
  backends: readonly string[],
): Uint8Array {
  return encodeClusterEndpointSlice({
    cluster,
    clusterID,
    namespace: 'ns',
    name,
    addressType: 'IPv4',
    labels: new Map([[SERVICE_NAME_LABEL, service]]),
    annotations: new Map(),
    endpoints: backends.map((address) => ({
      addresses: [address],
      conditions: { ready: true },
      forZones: [],
      deprecatedTopology: new Map(),
    })),
    ports: [{ name: 'http', port: 80, protocol: 6 }],
  });
}

/** Writes the canaries of these resources. */
export function completeCluster(
  server: MemoryServer,
  name: string,
  resources: readonly CopiedResource[] = ['nodes', 'services', 'identities', 'ip'],
): void {
  for (const resource of resources) {
    write(server, `cilium/synced/${name}/cilium/state/${resource}/v1`, '2026-01-01T00:00:00Z');
  }
}

/** Starts a new agent on the same servers, which any other agent must equal (I9). */
export async function coldStart(
  clock: ManualClock,
  clusters: ReadonlyMap<string, MemoryServer>,
): Promise<unknown> {
  const agent = new Agent(clock);
  for (const [name, server] of clusters) {
    if (name === OWN) agent.followOwn(server);
    else await agent.add(name, server);
  }
  await settle(12);
  const view = agent.view();
  await agent.stop();
  return view;
}
