import { encodeClusterEndpointSlice } from '../src/kvstore/codec/cluster-endpoint-slice.ts';
import { endpointSliceKey } from '../src/kvstore/codec/keys.ts';
import type { MemoryServer } from '../src/kvstore/memory/memory-server.ts';
import { SERVICE_NAME_LABEL } from '../src/model/cluster-endpoint-slice.ts';
import { expect } from './expect.ts';
import { address, Follower, fill, gate, identityOf, nameOf, put, putEndpoint } from './mesh.ts';
import { liveBytes } from './meter.ts';
import { textTable } from './text-table.ts';

/** Parameters of the bench. */
export interface GlobalNamespacesOptions {
  /** Clusters; default 50. */
  readonly n?: number | undefined;
  /** If true, prints nothing: the caller prints the result. */
  readonly json?: boolean | undefined;
}

/**
 * An agent that follows the mesh. The kvstores are in the same process; their work is included, their memory is not.
 */
export interface FollowedMesh {
  /** Followed endpoints of all clusters. */
  readonly endpoints: number;
  /** From the first `add` until every resource of every cluster was complete. */
  readonly readyMs: number;
  readonly mebibytes: number;
}

/** The result of {@link benchGlobalNamespaces}. */
export interface GlobalNamespacesReport {
  readonly clusters: number;
  /** Every namespace is global. */
  readonly all: FollowedMesh;
  /** One namespace in a hundred is global. */
  readonly onePercent: FollowedMesh;
}

const NODES = 20;
const NAMESPACES = 100;
/**
 * Number of pods of a namespace. Ten pods share an identity. A namespace has one service with a slice of all its pods.
 */
const PODS = 20;

function fillNamespace(server: MemoryServer, clusterID: number, namespace: number): void {
  const cluster = nameOf(clusterID);
  const first = namespace * PODS;
  for (let i = first; i < first + PODS; i++) {
    const identity = identityOf(clusterID, 0) + Math.floor(i / 10);
    if (i % 10 === 0)
      put(server, `cilium/state/identities/v1/id/${identity}`, `k8s:app=app-${i};k8s:ns=ns-${namespace};`);
    putEndpoint(server, clusterID, i, identity);
  }
  const key = { cluster, namespace: `ns-${namespace}`, name: 'web-1' };
  const slice = encodeClusterEndpointSlice({
    ...key,
    clusterID,
    addressType: 'IPv4',
    labels: new Map([[SERVICE_NAME_LABEL, 'web']]),
    annotations: new Map(),
    ports: [{ name: 'http', port: 8080, protocol: 6 }],
    endpoints: Array.from({ length: PODS }, (_, i) => ({
      addresses: [address(clusterID, first + i)],
      conditions: { ready: true },
      nodeName: `node-${i}`,
      zone: 'zone-1',
      forZones: [],
      deprecatedTopology: new Map(),
    })),
  });
  put(server, endpointSliceKey({ cluster, namespace: key.namespace, name: key.name }), slice);
}

function clustersOf(n: number, globalNamespaces: number): readonly MemoryServer[] {
  return Array.from({ length: n }, (_, i) => {
    const id = i + 1;
    const server = fill(id, nameOf(id), { nodes: NODES, services: 0, endpoints: 0 });
    const capabilities = { syncedCanaries: true, endpointSlicesExportMode: 'endpointslices-only' };
    put(server, `cilium/cluster-config/${nameOf(id)}`, { id, capabilities });
    put(server, `cilium/synced/${nameOf(id)}/cilium/state/endpointslices/v1`, 'now');
    for (let namespace = 0; namespace < globalNamespaces; namespace++) fillNamespace(server, id, namespace);
    return server;
  });
}

async function follow(n: number, globalNamespaces: number): Promise<FollowedMesh> {
  const servers = clustersOf(n, globalNamespaces);
  const before = await liveBytes();
  const follower = new Follower(gate());
  const begun = performance.now();
  await follower.follow(servers);
  const readyMs = Math.round(performance.now() - begun);
  const mebibytes = Math.round(((await liveBytes()) - before) / 2 ** 20);
  const endpoints = n * globalNamespaces * PODS;
  expect('prefixes that are followed', follower.ipcache.size, endpoints + n * NODES);
  await follower.stop();
  return { endpoints, readyMs, mebibytes };
}

/** The cost of an agent that follows a mesh, if all namespaces are global and if only one in a hundred is. */
export async function benchGlobalNamespaces({
  n = 50,
  json = false,
}: GlobalNamespacesOptions = {}): Promise<GlobalNamespacesReport> {
  await follow(2, NAMESPACES); // compiles
  const all = await follow(n, NAMESPACES);
  const onePercent = await follow(n, NAMESPACES / 100);
  const row = (what: string, { endpoints, readyMs, mebibytes }: FollowedMesh): readonly string[] => [
    what,
    String(endpoints),
    `${readyMs} ms`,
    `${mebibytes} MiB`,
  ];
  const table = textTable(
    ['global', 'endpoints', 'ready after', 'memory'],
    [row('all namespaces', all), row('1 % of the namespaces', onePercent)],
  );
  if (!json)
    process.stdout.write(
      `${n} clusters of ${NAMESPACES} namespaces; kvstores in the same process.\n\n${table}\n`,
    );
  return { clusters: n, all, onePercent };
}
