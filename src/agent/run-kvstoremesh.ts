import { readdir } from 'node:fs/promises';
import { stateMetrics } from '../api/metrics/cluster-metrics.ts';
import { itemMetrics, type Metrics } from '../api/metrics/metric.ts';
import type { Scrape } from '../api/metrics/scrape.ts';
import type { HealthProblem } from '../api/problems.ts';
import { assert } from '../base/assert.ts';
import { messageOf } from '../base/failure.ts';
import type { RateLimitOptions } from '../base/rate-limit.ts';
import { deferred, sleep } from '../base/sleep.ts';
import { interruptible, Supervisor } from '../base/supervisor.ts';
import type { TurnGate } from '../base/turn-gate.ts';
import { ConfigFollower } from '../clustermesh/config-follower.ts';
import { clusterConfigKey } from '../kvstore/codec/keys.ts';
import type { EtcdBackend } from '../kvstore/etcd/etcd-backend.ts';
import { Heartbeat } from '../kvstore/session/health.ts';
import { KvstoreReach, reachText } from '../operator/kvstore-reach.ts';
import { KvstoreMesh, type KvstoreMeshStatus } from '../operator/kvstoremesh/kvstore-mesh.ts';
import { SoleWriter } from '../operator/kvstoremesh/sole-writer.ts';
import { SetMap } from '../operator/set-map.ts';
import { unreadable } from '../process/input-error.ts';
import { openLocalEtcd, readClusterID } from '../process/local-etcd.ts';
import { loggedGate } from '../process/logged-gate.ts';
import { remoteEtcdProblem, remoteEtcdProblems, remoteEtcds } from '../process/remote-etcds.ts';
import type { RunContext } from '../process/run-context.ts';
import {
  type ProcessContext,
  type ProcessDocument,
  type RunOptions,
  runProcess,
  type ServedProcess,
} from '../process/served-process.ts';
import { REACH_MS, type Step } from '../process/start-step.ts';
import { ClusterReport, remoteClusters } from './cluster-report.ts';
import { clusterDocument } from './followed-clusters.ts';

/** Interval between two checks for failed writes. */
const CHECK_MS = 10_000;

/** Configuration of `dpcache kvstoremesh`. */
export interface KvstoreMeshProcessOptions {
  readonly clusterName: string;
  /** See `KvstoreMeshOptions`. */
  readonly clusterID: number | undefined;
  /** Path of the etcd configuration of the local kvstore, the destination of the copies. */
  readonly kvstoreConfig: string;
  /** Folder with an etcd configuration for each remote cluster. */
  readonly clustermeshConfig: string;
  readonly rateLimit: RateLimitOptions | undefined;
  /** See `KvstoreMeshOptions`. */
  readonly serviceTTLMs: number | undefined;
  /** If true, writes a heartbeat into the local kvstore (OPERATOR 44). */
  readonly heartbeat: boolean;
}

export interface KvstoreMeshDocument extends ProcessDocument, KvstoreMeshStatus {
  readonly cluster: string;
  readonly configProblems: readonly string[];
}

/** Returns the tables of the metrics of the copied clusters, which are read once per scrape. */
export function kvstoreMeshMetrics(
  copied: () => KvstoreMeshStatus['clusters'],
  scrape: Scrape,
): readonly Metrics[] {
  const clusters = itemMetrics('cluster', scrape.once(copied));
  const copies: Metrics = {
    dpcache_kvstoremesh_keys: clusters.gauge('Keys of the copy of a cluster.', ({ copy }) => copy.keys),
    dpcache_kvstoremesh_pending_keys: clusters.gauge(
      'Keys of the copy that are not yet written to the local kvstore.',
      ({ copy }) => copy.pending,
    ),
    dpcache_kvstoremesh_failures_total: clusters.counter(
      'Failed writes to the local kvstore.',
      ({ copy }) => copy.failures,
    ),
  };
  return [stateMetrics(clusters), copies];
}

class KvstoreMeshProcess implements ServedProcess {
  readonly #options: KvstoreMeshProcessOptions;
  readonly #context: ProcessContext;
  readonly #tasks: Supervisor;
  readonly #gate: TurnGate;
  #etcd: EtcdBackend | undefined;
  #mesh: KvstoreMesh | undefined;
  #folder: ConfigFollower | undefined;
  #clusterReport: ClusterReport | undefined;
  #etcdProblem: string | undefined;
  /** Ensures that only one kvstoremesh copies into the local kvstore. */
  #writer: SoleWriter | undefined;
  #kvstoreFailure: string | undefined;
  /** Undefined until the local kvstore has answered once. */
  #reach: KvstoreReach | undefined;

  constructor(options: KvstoreMeshProcessOptions, context: ProcessContext) {
    this.#options = options;
    this.#context = context;
    this.#tasks = new Supervisor(context);
    this.#gate = loggedGate(context);
  }

  get stages(): readonly (readonly Step[])[] {
    return [[this.#localKvstore()], [this.#clusters()]];
  }

  metrics(scrape: Scrape): readonly Metrics[] {
    return kvstoreMeshMetrics(() => this.#mesh?.status().clusters ?? [], scrape);
  }

  status(): Omit<KvstoreMeshDocument, keyof ProcessDocument> {
    const { ready, clusters, problems } = this.#mesh?.status() ?? {
      ready: false,
      clusters: [],
      problems: [],
    };
    return {
      cluster: this.#options.clusterName,
      ready,
      clusters,
      problems: [...this.#standby(), ...problems],
      configProblems: this.#configProblems(),
    };
  }

  /** Returns the reasons why this process is not ready. A standby waiting for another kvstoremesh is ready. */
  blockers(): readonly string[] {
    if (this.#mesh?.isReady === true) return [];
    if (this.#folder?.status().listed === false) {
      const path = `--clustermesh-config ${this.#options.clustermeshConfig}`;
      return [`${path}: not read yet`, ...this.#configProblems()];
    }
    const { clusters } = this.status();
    const isCopied = ({ copy }: (typeof clusters)[number]): boolean =>
      Object.values(copy.canaries).every(Boolean);
    return clusters
      .filter((cluster) => !isCopied(cluster))
      .map(({ name, state }) => `cluster ${name} is not copied yet: ${state}`);
  }

  problemSource(): ReturnType<ServedProcess['problemSource']> {
    const { clusters = [], problems = [] } = this.#mesh?.status() ?? {};
    return {
      configProblems: this.#configProblems(),
      clusters: clusters.map((cluster) => clusterDocument(cluster)),
      problems: [
        ...this.#reachProblems(),
        ...problems.map((text): HealthProblem => ({ severity: 'warning', subject: 'copies', text })),
      ],
    };
  }

  #reachProblems(): readonly HealthProblem[] {
    const { problem } = this.#reach ?? {};
    if (problem === undefined) return [];
    const remedy = 'Check the etcd, and the endpoints and certificates of --kvstore-config.';
    return [{ severity: 'warning', subject: 'local kvstore', text: reachText(problem), remedy }];
  }

  #standby(): readonly string[] {
    const holder = this.#writer?.holder;
    if (holder === undefined) return [];
    return [`standby, because another kvstoremesh copies into this kvstore (lock ${holder})`];
  }

  #configProblems(): readonly string[] {
    const files = remoteEtcdProblems(this.#options.clustermeshConfig, this.#folder);
    return this.#etcdProblem === undefined ? files : [this.#etcdProblem, ...files];
  }

  #localKvstore(): Step {
    const { clusterName, kvstoreConfig, rateLimit } = this.#options;
    const { log, clock, random } = this.#context;
    return {
      name: 'local kvstore',
      progressTimeoutMs: REACH_MS,
      waitsFor: () => (this.#kvstoreFailure === undefined ? [] : [this.#kvstoreFailure]),
      start: async ({ signal }) => {
        const onProblem = (problem: string | undefined): void => {
          this.#etcdProblem = problem;
          if (problem !== undefined) log.warn(problem);
        };
        const onFailure = (reason: string): void => {
          this.#kvstoreFailure = `the local kvstore does not answer: ${reason}; check the endpoints and certificates of --kvstore-config`;
        };
        const mayWrite = (): boolean => this.#writer?.mayWrite() === true;
        const reach = { clock, random, signal, onProblem, onFailure };
        const context = { ...reach, mayWrite, witnessLeases: true, gate: this.#gate };
        this.#etcd = await openLocalEtcd(kvstoreConfig, rateLimit, context);
        await readClusterID(this.#etcd, clusterName, context); // waits until the kvstore answers
      },
      stop: () => this.#etcd?.close({ keepLeases: true }), // agents keep using the copy while another process starts
    };
  }

  #clusters(): Step {
    const { clustermeshConfig: path } = this.#options;
    const { clock, random, log } = this.#context;
    return {
      name: 'clusters',
      start: async ({ signal: starting }) => {
        assert(this.#etcd !== undefined, 'the local kvstore is open');
        this.#watchReach(this.#etcd);
        await readdir(path).catch((cause: unknown) => {
          throw unreadable('--clustermesh-config', path, cause);
        });
        const standby = deferred();
        const writer = new SoleWriter({
          backend: this.#etcd,
          clock,
          random,
          onStandby: standby.resolve,
          onProblem: (problem) => log.warn(problem),
        });
        this.#writer = writer;
        const begun = deferred();
        this.#tasks
          .run('copy', (signal) => this.#copyAlone(writer, begun.resolve, signal))
          .catch((error: unknown) => this.#context.end(messageOf(error)));
        const either = (): Promise<void> => Promise.race([begun.promise, standby.promise]);
        await interruptible(either, starting).catch(() => {}); // interrupted: the process is stopping
        for (const problem of this.#standby()) log.warn(problem);
      },
      stop: async () => {
        this.#clusterReport?.stop();
        await this.#folder?.stop();
        await this.#mesh?.stop();
        await this.#tasks.stop();
      },
    };
  }

  #watchReach(backend: EtcdBackend): void {
    const { log, clock } = this.#context;
    const key = clusterConfigKey(this.#options.clusterName);
    const onChange = (problem: string | undefined): void => log.warn(`local kvstore: ${reachText(problem)}`);
    const reach = new KvstoreReach({ backend, clock, key, onChange });
    this.#reach = reach;
    void this.#tasks.runWithRestart('reach', (signal) => reach.run(signal));
  }

  async #copyAlone(writer: SoleWriter, begun: () => void, signal: AbortSignal): Promise<void> {
    const outcome = await writer.run(() => this.#copy().finally(begun), signal);
    if (outcome === 'taken')
      this.#context.end('the lock was lost: another kvstoremesh may copy into this kvstore');
  }

  async #copy(): Promise<void> {
    const { clusterName, clusterID, clustermeshConfig: path, rateLimit } = this.#options;
    const { serviceTTLMs, heartbeat } = this.#options;
    const { log, clock, random } = this.#context;
    assert(this.#etcd !== undefined, 'the local kvstore is open');
    const local = { clusterName, clusterID, local: this.#etcd };
    const mesh = new KvstoreMesh({ ...local, clock, random, gate: this.#gate, serviceTTLMs });
    this.#mesh = mesh;
    this.#clusterReport = new ClusterReport(remoteClusters(mesh), log, clock);
    this.#clusterReport.start();
    void this.#tasks.runWithRestart('report', (signal) => this.#reportWrites(mesh, signal));
    if (heartbeat) {
      const onFailure = (error: unknown): void => log.warn(`cannot write the heartbeat: ${messageOf(error)}`);
      const beats = new Heartbeat({ backend: this.#etcd, clock, random, onFailure });
      void this.#tasks.runWithRestart('heartbeat', (signal) => beats.run(signal));
    }
    const source = remoteEtcds(path, { clock, random, gate: this.#gate, rateLimit });
    const onProblem = (name: string, reason: string): void => log.warn(remoteEtcdProblem(path, name, reason));
    this.#folder = new ConfigFollower({ source, mesh, clock, onProblem });
    const { listed } = this.#folder;
    await this.#folder.start();
    void listed.then(() => mesh.markAllAdded());
  }

  /** Logs when writes of a copy fail, once for each reason, and when all keys are written again. */
  async #reportWrites(mesh: KvstoreMesh, signal: AbortSignal): Promise<void> {
    const { log, clock } = this.#context;
    const reported = new SetMap<string>();
    while (!signal.aborted) {
      for (const { name, copy } of mesh.status().clusters) {
        const reason = copy.lastFailure?.message ?? '';
        if (!copy.isFailing) {
          if (reported.take(name).size > 0) log.warn(`cluster ${name}: its copy can be written again`);
        } else if (!reported.get(name).has(reason)) {
          reported.add(name, reason);
          log.warn(`cluster ${name}: cannot write its copy to the local kvstore; retrying: ${reason}`);
        }
      }
      await sleep(clock, CHECK_MS, signal);
    }
  }
}

/** Copies remote clusters into the local kvstore until the signal fires. */
export function runKvstoreMesh(
  options: KvstoreMeshProcessOptions,
  run: RunOptions,
  context: RunContext,
): Promise<void> {
  return runProcess((process) => new KvstoreMeshProcess(options, process), run, context);
}
