import { join } from 'node:path';
import { onTestFinished, vi } from 'vitest';
import { Agent } from '../../../src/agent/agent.ts';
import { AgentApi } from '../../../src/agent/agent-api.ts';
import * as access from '../../../src/agent/kubernetes-access.ts';
import { type OperatorOptions, runOperator } from '../../../src/agent/operator/run-operator.ts';
import type { AgentOptions, KubernetesOptions } from '../../../src/agent/options.ts';
import { runKvstoreMesh } from '../../../src/agent/run-kvstoremesh.ts';
import type { Ask } from '../../../src/api/api-client.ts';
import { sleep } from '../../../src/base/sleep.ts';
import * as systemClock from '../../../src/base/system-clock.ts';
import type { ConfigSource } from '../../../src/clustermesh/config-follower.ts';
import { MemoryApiServer } from '../../../src/k8s/memory/memory-api-server.ts';
import { MemoryApiTransport } from '../../../src/k8s/memory/memory-api-transport.ts';
import { FaultyMemoryBackend } from '../../../src/kvstore/memory/faulty-memory-backend.ts';
import type { MemoryBackendOptions } from '../../../src/kvstore/memory/memory-backend.ts';
import { MemoryServer } from '../../../src/kvstore/memory/memory-server.ts';
import * as localEtcd from '../../../src/process/local-etcd.ts';
import { createLog, type Logger } from '../../../src/process/log.ts';
import * as remoteEtcds from '../../../src/process/remote-etcds.ts';
import type { RunContext } from '../../../src/process/run-context.ts';
import { KUBERNETES_PARTS } from '../../../src/tape/tape-settings.ts';
import { NO_INPUTS } from '../../agent/support/agent-under-test.ts';
import { NO_KUBERNETES } from '../../agent/support/kubernetes-options.ts';
import { temporaryFolder } from '../../agent/support/temporary-folder.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { until } from '../../base/support/until.ts';
import { seededRandom } from '../../kvstore/chaos/support/seeded-random.ts';
import { advance } from '../../kvstore/support/settle.ts';
import { ApiContents } from './api-contents.ts';
import { MODES, type Mode, readsSlices, type Viewer } from './model.ts';
import { objectsOf } from './objects.ts';
import { allocateIdentities, type Cluster, type World } from './world.ts';

/** The etcd of a cluster, and its clients in all processes. */
class Etcd {
  readonly server: MemoryServer;
  readonly #clients = new Set<FaultyMemoryBackend>();
  #isAway = false;

  constructor(server: MemoryServer) {
    this.server = server;
  }

  connect({
    clock,
    random,
    gate,
    mayWrite,
    leaseSeconds,
    witnessLeases,
  }: MemoryBackendOptions): FaultyMemoryBackend {
    const options = { clock, random, gate, mayWrite, leaseSeconds, witnessLeases };
    const client = new FaultyMemoryBackend({ ...options, server: this.server });
    if (this.#isAway) client.link.down();
    this.#clients.add(client);
    return client;
  }

  away(): void {
    this.#isAway = true;
    for (const { link } of this.#clients) link.down();
  }

  back(): void {
    this.#isAway = false;
    for (const { link } of this.#clients) link.up();
  }
}

interface Process {
  readonly stop: () => Promise<unknown>;
}

export interface RunningAgent extends Process, Viewer {
  readonly agent: Agent;
  readonly ask: Ask;
  /** Wall time of its start. */
  readonly startedAt: number;
}

/** The servers and processes of a cluster. */
interface RunningCluster {
  readonly cluster: Cluster;
  readonly api: ApiContents;
  readonly etcd: Etcd;
  /** Called when a configuration directory of this cluster has changed. */
  readonly onDirectoryChange: Set<() => void>;
  /** By name: `operator`, `kvstoremesh`, or the node of an agent. */
  readonly processes: Map<string, Process>;
}

/** Time after which nothing changes any more. An agent follows the objects again 30 s after it has lost its kvstore. */
const QUIET_MS = 40_000;
/** The same after an outage, because a reflector waits for up to 60 s before it lists again. */
export const RECOVERY_MS = 90_000;
const RESTART_MS = 10_000;

/** Returns true if an agent writes a checkpoint, and restores it at its start. */
function keepsState(mode: Mode): boolean {
  return mode === 'both' || mode === 'kvstoremesh';
}

/** Two kinds of configuration directories: of the etcds of other clusters, and of their copies in the local etcd. */
type Directory = 'etcds' | 'copies';

/** The servers and all processes of a mesh, in this process, with one fake clock. */
export class RunningMesh {
  readonly clock: ManualClock = new ManualClock();
  readonly world: World;
  readonly #random = seededRandom(1);
  readonly clusters: ReadonlyMap<string, RunningCluster>;
  readonly #folder: string;
  readonly #stopped = new Set<string>();
  /** Warnings and errors of all processes since the last check. */
  logged: string[] = [];

  private constructor(world: World) {
    this.world = world;
    this.#folder = temporaryFolder(
      Object.fromEntries(
        Object.keys(world.clusters).flatMap((name) => [
          [`${name}/etcds/x`, ''],
          [`${name}/copies/x`, ''],
        ]),
      ),
    );
    const { clock } = this;
    this.clusters = new Map(
      Object.values(world.clusters).map((cluster) => [
        cluster.name,
        {
          cluster,
          api: new ApiContents(new MemoryApiServer({ clock, streamingLists: true })),
          etcd: new Etcd(new MemoryServer({ clock, clusterID: cluster.name })),
          onDirectoryChange: new Set(),
          processes: new Map(),
        },
      ]),
    );
  }

  /** Starts the processes of a mesh, and stops them at the end of the test. */
  static async start(world: World): Promise<RunningMesh> {
    const mesh = new RunningMesh(world);
    mesh.#replaceConnections();
    onTestFinished(() => mesh.stopAll());
    await mesh.#writeObjects();
    // In this order, because the operator and kvstoremesh write what the others read.
    const names = [...mesh.clusters.keys()];
    for (const process of ['operator', 'kvstoremesh']) {
      for (const name of names) mesh.start(name, process);
      await mesh.settle(10_000);
    }
    mesh.#startAgents();
    await mesh.settle();
    mesh.logged = []; // of the first kvstores, which were empty
    return mesh;
  }

  cluster(name: string): RunningCluster {
    const cluster = this.clusters.get(name);
    if (cluster === undefined) throw new Error(`no cluster ${name}`);
    return cluster;
  }

  /** Connects the processes to the servers in memory: the path of a configuration is that of the cluster. */
  #replaceConnections(): void {
    const clusterOf = (path = ''): RunningCluster => this.cluster(path.split('/').at(-2) ?? '');
    vi.spyOn(systemClock, 'systemClock', 'get').mockReturnValue(this.clock);
    vi.spyOn(Math, 'random').mockImplementation(this.#random);
    vi.spyOn(access, 'kubernetesAccess').mockImplementation(
      async ({ kubeconfig }) => new MemoryApiTransport(clusterOf(kubeconfig).api.server) as never,
    );
    vi.spyOn(localEtcd, 'openLocalEtcd').mockImplementation(async (path, _rates, options) => {
      const client = clusterOf(path).etcd.connect({ ...options, onFailure: undefined });
      return Object.assign(client, { endBootstrap: () => {} }) as never;
    });
    vi.spyOn(remoteEtcds, 'remoteEtcds').mockImplementation(
      (path, options) =>
        this.#directory(clusterOf(path), path.endsWith('copies') ? 'copies' : 'etcds', options) as never,
    );
  }

  #directory(local: RunningCluster, kind: Directory, options: MemoryBackendOptions): ConfigSource {
    const { cluster, etcd, onDirectoryChange } = local;
    return {
      list: async () =>
        new Map(
          [...cluster.remotes].map((name) => {
            const connect = () => (kind === 'copies' ? etcd : this.cluster(name).etcd).connect(options);
            return [name, { kind: 'config', hash: name, connect }] as const;
          }),
        ),
      watch: (onChange) => {
        onDirectoryChange.add(onChange);
        return Object.assign(() => void onDirectoryChange.delete(onChange), {
          [Symbol.dispose]: () => void onDirectoryChange.delete(onChange),
        });
      },
    };
  }

  #path(cluster: string, name: string): string {
    return join(this.#folder, cluster, name);
  }

  /** Starts `operator`, `kvstoremesh`, or the agent of a node if the node exists. */
  start(cluster: string, name: string): void {
    const { processes } = this.cluster(cluster);
    this.#stopped.delete(`${cluster}/${name}`);
    const log = createLog('warn', 'text', {
      write: (line) => this.logged.push(`${cluster} ${name}: ${line.trimEnd()}`),
    });
    if (name === 'operator')
      processes.set(
        name,
        this.#run((context) => runOperator(this.#operatorOptions(cluster), {}, context), log),
      );
    else if (name === 'kvstoremesh')
      processes.set(
        name,
        this.#run((context) => runKvstoreMesh(this.#kvstoreMeshOptions(cluster), {}, context), log),
      );
    else if (this.#hasNode(cluster, name))
      processes.set(name, this.#runAgent(this.#viewer(cluster, name), log));
  }

  #startAgents(): void {
    for (const [name, { cluster, processes }] of this.clusters)
      for (const node of Object.keys(cluster.nodes))
        if (!processes.has(node) && !this.#stopped.has(`${name}/${node}`)) this.start(name, node);
  }

  #hasNode(cluster: string, name: string): boolean {
    return this.cluster(cluster).cluster.nodes[name] !== undefined;
  }

  /** Stops a process until it is started again. */
  stop(cluster: string, name: string): Promise<void> {
    this.#stopped.add(`${cluster}/${name}`);
    return this.#end(cluster, name);
  }

  async #end(cluster: string, name: string): Promise<void> {
    const { processes } = this.cluster(cluster);
    const process = processes.get(name);
    processes.delete(name);
    if (process !== undefined) await this.during(process.stop());
  }

  /** The mode of an agent depends on its node, so that each cluster has an agent of each mode. */
  #viewer(cluster: string, node: string): Viewer {
    const number = this.cluster(cluster).cluster.nodes[node]?.number ?? 0;
    return { cluster, node, mode: MODES[number % MODES.length] ?? 'both' };
  }

  /** Runs a process, and restarts it whenever it ends, as a kubelet does. */
  #run(run: (context: RunContext) => Promise<void>, log: Logger): Process {
    const stop = new AbortController();
    const runAgain = async (): Promise<void> => {
      while (!stop.signal.aborted) {
        await run({ log, signal: stop.signal }).catch((err: unknown) => log.error({ err }, 'ended'));
        await sleep(this.clock, RESTART_MS, stop.signal);
      }
    };
    const ended = runAgain();
    return {
      stop: () => {
        stop.abort();
        return ended;
      },
    };
  }

  #runAgent(viewer: Viewer, log: Logger): RunningAgent {
    const agent = new Agent(this.#agentOptions(viewer), { log, clock: this.clock, random: this.#random });
    const stop = new AbortController();
    const started = agent.start(stop.signal).then((missing) => {
      for (const problem of missing) log.error(problem);
    });
    const api = new AgentApi(agent, { log, clock: this.clock });
    return {
      ...viewer,
      agent,
      ask: api.ask,
      startedAt: this.clock.wallTime(),
      stop: async () => {
        stop.abort();
        await started;
        await api.stop();
        await agent.stop();
      },
    };
  }

  #agentOptions({ cluster: name, node, mode }: Viewer): AgentOptions {
    const { endpoints, id } = this.cluster(name).cluster;
    const hasEtcd = mode === 'kvstore' || mode === 'both';
    const kubernetes: KubernetesOptions = {
      ...NO_KUBERNETES,
      kubeconfig: this.#path(name, 'kubeconfig'),
      watch: KUBERNETES_PARTS,
      endpoints,
      identities: hasEtcd ? 'kvstore' : 'crd',
      dualStack: true,
      encryptKey: 3,
    };
    return {
      ...NO_INPUTS,
      network: { ...NO_INPUTS.network, encryption: true },
      clusterName: name,
      clusterID: id,
      nodeName: node,
      historyMemory: 1 << 20,
      ...(keepsState(mode) ? { stateDir: this.#path(name, node) } : {}),
      ...(hasEtcd ? { kvstore: 'etcd', kvstoreConfig: this.#path(name, 'etcd') } : {}),
      clustermeshConfig: this.#path(name, mode === 'kvstoremesh' ? 'copies' : 'etcds'),
      serviceV2: readsSlices(mode) ? 'slices' : 'legacy',
      ...(mode === 'kvstore' ? {} : { kubernetes }),
    };
  }

  #operatorOptions(name: string): OperatorOptions {
    const { id, endpoints } = this.cluster(name).cluster;
    return {
      clusterName: name,
      clusterID: id,
      maxConnectedClusters: 255,
      kvstoreConfig: this.#path(name, 'etcd'),
      rateLimit: undefined,
      leaseSeconds: 900,
      kubeconfig: this.#path(name, 'kubeconfig'),
      context: undefined,
      load: [],
      namespace: 'kube-system',
      electionTimes: { leaseMs: 15_000, renewDeadlineMs: 10_000, retryMs: 2000 },
      kvstoreDeadlineMs: 60_000,
      endpoints,
      identityAllocation: 'crd',
      publish: {
        services: true,
        nodes: true,
        identities: true,
        ips: true,
        clusterConfig: true,
        heartbeat: true,
      },
      serviceFormats: 'both',
      globalByDefault: true,
      intervals: {},
      deleteAllEndpoints: undefined,
      slicing: endpoints === 'ciliumendpointslices' ? 'fcfs' : undefined,
      clustermeshConfig: this.#path(name, 'etcds'),
      mcs: { families: ['IPv4', 'IPv6'] },
      endpointSliceSync: { endpointsPerSlice: 100, batchMs: 500 },
      dryRun: undefined,
    };
  }

  #kvstoreMeshOptions(name: string): Parameters<typeof runKvstoreMesh>[0] {
    return {
      clusterName: name,
      clusterID: this.cluster(name).cluster.id,
      kvstoreConfig: this.#path(name, 'etcd'),
      clustermeshConfig: this.#path(name, 'etcds'),
      rateLimit: undefined,
      serviceTTLMs: undefined,
      heartbeat: false,
    };
  }

  /** Writes the objects of the world, runs an agent on each node, and waits until everything is processed. */
  async settle(ms: number = QUIET_MS): Promise<void> {
    for (const { cluster, node } of this.agents)
      if (!this.#hasNode(cluster, node)) await this.#end(cluster, node);
    await this.#writeObjects();
    if (this.agents.length > 0) this.#startAgents();
    for (let passed = 0; passed < ms; passed += 5000) {
      await until('the checkpoints are read', () => this.#areCheckpointsRead());
      await advance(this.clock, 5000);
      for (const { api } of this.clusters.values()) await api.assignClusterIPs();
    }
  }

  /** False while an agent reads its checkpoint, which the clock must not overtake: the file system has another one. */
  #areCheckpointsRead(): boolean {
    const steps = this.agents.flatMap(({ agent }) => agent.status().steps);
    return !steps.some(
      ({ name, state }) => name === 'checkpoint' && (state === 'pending' || state === 'running'),
    );
  }

  async #writeObjects(): Promise<void> {
    for (const { cluster, api, onDirectoryChange } of this.clusters.values()) {
      allocateIdentities(cluster);
      await api.become(objectsOf(cluster));
      for (const notify of onDirectoryChange) notify();
    }
  }

  get agents(): readonly RunningAgent[] {
    const all = [...this.clusters.values()].flatMap(({ processes }) => [...processes.values()]);
    return all.filter((process): process is RunningAgent => 'agent' in process);
  }

  /** Advances the clock until a promise settles. */
  async during<T>(promise: Promise<T>): Promise<T> {
    let isPending = true;
    const end = (): void => {
      isPending = false;
    };
    promise.then(end, end);
    while (isPending) await advance(this.clock, 100);
    return promise;
  }

  async stopAll(): Promise<void> {
    for (const [name, { processes }] of this.clusters)
      for (const process of [...processes.keys()].reverse()) await this.#end(name, process);
  }
}
