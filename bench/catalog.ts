/** Options of the command line. Each bench uses those that it supports. */
export interface BenchOptions {
  readonly n?: number;
  readonly json: boolean;
  readonly peers: boolean;
  /** A file with the figures of another program for comparison. */
  readonly peer?: string;
}

/** A bench with its name. */
export interface Bench {
  readonly summary: string;
  /** Measures, prints unless `json` is set, and returns the figures. Loads the code of this bench only. */
  run(options: BenchOptions): Promise<unknown>;
}

/** Every bench, by name. */
export const BENCHES: Readonly<Record<string, Bench>> = {
  ipcache: {
    summary:
      'IPCache: writes, reads, memory, stalls, removal, snapshots; --n entries (1,000,000), --peers, --peer',
    run: async (options) => (await import('./ipcache.ts')).benchIPCache(options),
  },
  churn: {
    summary: 'IPCache: rolling restarts in a mesh, from kvstore values; --n pods (100,000)',
    run: async (options) => (await import('./churn.ts')).benchChurn(options),
  },
  services: {
    summary: 'ServiceCache: services of 10 backends, changes of up to 10,000; --n services (5,000)',
    run: async (options) => (await import('./services.ts')).benchServices(options),
  },
  nodes: {
    summary: 'NodeManager: nodes with three addresses; --n nodes (20,000)',
    run: async (options) => (await import('./nodes.ts')).benchNodes(options),
  },
  network: {
    summary:
      'routes and nftables services of the Linux datapath beside ip and nft, as root; --n routes (20,000)',
    run: async (options) => (await import('./network.ts')).benchNetwork(options),
  },
  kvstore: {
    summary: 'listing and watching a real etcd, stage by stage; --n keys (100,000)',
    run: async (options) => (await import('./kvstore.ts')).benchKvstore(options),
  },
  sync: {
    summary:
      "a cluster in a real etcd into an IPCache beside a plain Node program and etcd's Go client: list, watch, resync; --n IPs (300,000)",
    run: async (options) => (await import('./sync.ts')).benchSync(options),
  },
  api: {
    summary:
      'the API: 50 monitors, 1,000 requests/s and 10,000 changes/s at a time, pages; --n prefixes (1,000,000)',
    run: async (options) => (await import('./api.ts')).benchApi(options),
  },
  shared: {
    summary:
      'SharedLookup: lookups of 1 and 2 workers during changes, beside postMessage and copies; --n prefixes (1,000,000)',
    run: async (options) => (await import('./shared.ts')).benchShared(options),
  },
  tape: {
    summary: 'tape: cost and size of an event, speed of a replay; --n events (200,000)',
    run: async (options) => (await import('./tape.ts')).benchTape(options),
  },
  history: {
    summary: 'history: cost of a record, bytes, lookups at earlier times; --n prefixes (300,000)',
    run: async (options) => (await import('./history.ts')).benchHistory(options),
  },
  answers: {
    summary: 'digests, the diff of two agents, and what-if; --n prefixes (1,000,000)',
    run: async (options) => (await import('./answers.ts')).benchAnswers(options),
  },
  restore: {
    summary: 'checkpoints: writing and reading one, its size, the longest stall; --n entries (1,000,000)',
    run: async (options) => (await import('./restore.ts')).benchRestore(options),
  },
  mesh: {
    summary:
      'ClusterMesh: a mesh that becomes ready, changes and is removed; --n clusters of 1,000 endpoints (250)',
    run: async (options) => (await import('./mesh.ts')).benchMesh(options),
  },
  copies: {
    summary: '254 clusters copied into 3 real etcds, followed until complete; --n IPs of each (10,000)',
    run: async (options) => (await import('./copies.ts')).benchCopies(options),
  },
  namespaces: {
    summary: 'an agent behind clusters with all or 1 % of their namespaces global; --n clusters (50)',
    run: async (options) => (await import('./global-namespaces.ts')).benchGlobalNamespaces(options),
  },
  operator: {
    summary:
      'services and nodes of a Kubernetes API server published into a real etcd; --n services of 10 backends (10,000), and half as many nodes',
    run: async (options) => (await import('./operator.ts')).benchOperator(options),
  },
  mcs: {
    summary: 'services exported by 10 clusters, imported into an API server; --n exports (5,000)',
    run: async (options) => (await import('./mcs.ts')).benchMcs(options),
  },
  publish: {
    summary:
      'a cluster published into a real etcd with leases, changed, put back, deleted, withdrawn, restarted; --n IPs (1,000,000)',
    run: async (options) => (await import('./publish.ts')).benchPublish(options),
  },
  kvstoremesh: {
    summary:
      '10 clusters copied from a real etcd into another, taken over, deleted, removed; --n IPs of each (100,000)',
    run: async (options) => (await import('./kvstoremesh.ts')).benchKvstoreMesh(options),
  },
  agent: {
    summary:
      'memory and CPU of a whole agent with --load and with an etcd, at 1 %, 10 % and 100 % of --n prefixes (1,000,000)',
    run: async (options) => (await import('./agent.ts')).benchAgent(options),
  },
  k8s: {
    summary:
      'following a real kube-apiserver beside @kubernetes/client-node and client-go; --n CiliumEndpoints (50,000), and a tenth as many services',
    run: async (options) => (await import('./kubernetes.ts')).benchKubernetes(options),
  },
  datapath: {
    summary:
      'the kernel of this host, as root: prefixes and services written, compared, changed, beside bpftool; --n prefixes (500,000)',
    run: async (options) => (await import('./datapath.ts')).benchDatapath(options),
  },
};
