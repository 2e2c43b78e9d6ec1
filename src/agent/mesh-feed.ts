import { readdir } from 'node:fs/promises';
import { assert } from '../base/assert.ts';
import { EitherSignal } from '../base/follow-signal.ts';
import type { RateLimitOptions } from '../base/rate-limit.ts';
import { type Rejection, rejection } from '../base/rejection.ts';
import { sleep } from '../base/sleep.ts';
import { interruptible } from '../base/supervisor.ts';
import { incompleteClusterTexts } from '../client/cluster-text.ts';
import { ClusterMesh } from '../clustermesh/cluster-mesh.ts';
import { ConfigFollower } from '../clustermesh/config-follower.ts';
import type { MeshEngines } from '../clustermesh/engines.ts';
import { IdentityResolver } from '../clustermesh/identity-resolver.ts';
import { LocalCluster } from '../clustermesh/local-cluster.ts';
import { lastProgressAt, type SyncDeadline } from '../clustermesh/sync-deadline.ts';
import type { EtcdBackend } from '../kvstore/etcd/etcd-backend.ts';
import { MemoryBackend } from '../kvstore/memory/memory-backend.ts';
import type { KvstoreBackend } from '../kvstore/session/backend.ts';
import { InputError, unreadable } from '../process/input-error.ts';
import { type LocalEtcdContext, openLocalEtcd, readClusterID } from '../process/local-etcd.ts';
import { remoteEtcdProblems, remoteEtcds } from '../process/remote-etcds.ts';
import { REACH_MS, READ_MS, type Step } from '../process/start-step.ts';
import { RecordedMesh } from '../recording/recorded-mesh.ts';
import type { AgentParts } from './agent.ts';
import { FollowedClusters } from './followed-clusters.ts';
import { KvstoreRates } from './kvstore-rates.ts';
import type { AgentOptions } from './options.ts';

export interface MeshFeedContext extends Omit<AgentParts, 'engines'> {
  readonly engines: Omit<MeshEngines, 'remoteNodeIdentities'>;
  /** Counts a rejection reported elsewhere. */
  readonly countRejection: (rejection: Rejection) => void;
  /** Called when {@link MeshFeed.mayContain} may have changed because the folder of remote clusters was read. */
  readonly onFolderRead: () => void;
  /** Returns the id of the local cluster in the restored state; 0 if there is none. */
  readonly restoredID: () => number;
}

/** Time after which the id of the restored state is used if the local etcd does not answer. Less than `REACH_MS`. */
const RESTORED_ID_MS = 15_000;

/**
 * Maximum time without progress of a cluster's initial sync. After it the agent starts without the missing state. A
 * kvstore in memory has no more events after a short silence; one behind a network may have some (SEMANTICS 8).
 */
const PROGRESS_TIMEOUT_MS = { memory: 5_000, etcd: 180_000 };

/**
 * Number of failures after which the start does not wait for a cluster. More than one for etcd, because one failure may
 * be transient.
 */
const MAX_FAILURES = { memory: 1, etcd: 3 };

/**
 * Maximum time without progress of a cluster with failures. Without this limit, the last of {@link MAX_FAILURES}
 * could take minutes, because a silent server fails after 10 s, and unreachable clusters are retried in turn.
 */
const FAILED_DEADLINE_MS = 60_000;

/** Feeds the engines from the kvstores of the local and the remote clusters, recorded or real. */
export class MeshFeed {
  readonly #options: AgentOptions;
  readonly #rates: KvstoreRates;
  readonly #context: MeshFeedContext;
  readonly #recorded: RecordedMesh;
  /** Path of the recorded mesh which is being read. */
  #readPath: string | undefined;
  #localKvstore: { readonly backend: KvstoreBackend; readonly id: number } | undefined;
  #etcd: EtcdBackend | undefined;
  #etcdProblem: string | undefined;
  #localFailure: string | undefined;
  #loggedIDProblem: string | undefined;
  #followed: FollowedClusters | undefined;
  #folder: ConfigFollower | undefined;
  /** True if all clusters of the mesh have been added. */
  #isListed = false;
  #isInitialSyncDone = false;

  constructor(options: AgentOptions, context: MeshFeedContext) {
    this.#rates = new KvstoreRates(options.rateLimit);
    this.#options = options;
    this.#context = context;
    this.#recorded = new RecordedMesh(context.clock, context.random, context.gate);
  }

  /** The followed clusters; undefined before the step {@link MeshFeed.clusters} has started. */
  get followed(): FollowedClusters | undefined {
    return this.#followed;
  }

  /** Returns the current problems of the configuration files of etcds, and of the id of the local cluster. */
  problems(): readonly string[] {
    const own = [this.#etcdProblem, this.#idProblem()].filter((problem) => problem !== undefined);
    return [...own, ...this.folderProblems()];
  }

  /**
   * Returns the problem if the local cluster has another id in its configuration, which may be published after the
   * start. With a wrong id, the agent accepts a remote cluster that has the real id of the local cluster, so that its
   * identities are confused with local ones, and nodes of Kubernetes have the wrong id.
   */
  #idProblem(): string | undefined {
    const { local, localID } = this.#followed ?? {};
    if (local === undefined || local.clusterID === 0 || local.clusterID === localID) return undefined;
    return `--cluster-id: the agent uses id ${localID} for cluster ${this.#options.clusterName}, but its configuration in the kvstore has id ${local.clusterID}; restart the agent, or correct --cluster-id`;
  }

  #logIDProblem(): void {
    const problem = this.#idProblem();
    if (problem === this.#loggedIDProblem) return;
    this.#loggedIDProblem = problem;
    if (problem !== undefined) this.#context.log.warn(problem);
  }

  /** Returns one sentence for each unusable configuration of a remote cluster. */
  folderProblems(): readonly string[] {
    return remoteEtcdProblems(this.#options.clustermeshConfig ?? '', this.#folder);
  }

  recordedMesh(): Step {
    return {
      name: 'recorded mesh',
      progressTimeoutMs: READ_MS,
      waitsFor: () => (this.#readPath === undefined ? [] : [`reading --load ${this.#readPath}`]),
      start: ({ signal, progress }) => this.#readRecorded(signal, progress),
      stop: () => this.#recorded.close(),
    };
  }

  /** Returns the step which opens the local kvstore and reads the id of the local cluster. */
  localKvstore(timeout: AbortSignal): Step {
    return {
      name: 'local kvstore',
      progressTimeoutMs: REACH_MS,
      waitsFor: () => (this.#localFailure === undefined ? [] : [this.#localFailure]),
      start: async ({ signal }) => {
        using either = new EitherSignal(signal, timeout);
        this.#localKvstore = await this.#openLocal(either.signal);
      },
      stop: () => this.#etcd?.close(),
    };
  }

  /** Returns the step which follows the clusters. If the folder of remote clusters hangs, the start continues. */
  clusters(): Step {
    return {
      name: 'clusters',
      progressTimeoutMs: READ_MS,
      onTimeout: 'continue',
      waitsFor: () => this.#unreadFolder(),
      start: async ({ signal }) => {
        await this.#follow();
        const { clustermeshConfig } = this.#options;
        if (clustermeshConfig !== undefined) await this.#followFolder(clustermeshConfig, signal);
        else this.#isListed = true;
      },
      stop: async () => {
        await this.#folder?.stop();
        await this.#followed?.mesh.stop();
        await this.#followed?.local.stop();
      },
    };
  }

  /** Returns the step which waits for the initial sync of the local cluster as long as it makes progress. */
  localSync(timeout: AbortSignal): Step {
    return {
      name: 'initial sync of the local cluster',
      waitsFor: () => this.#incompleteClusters('local'),
      progressAt: () => lastProgressAt(this.#followed?.local),
      start: async ({ signal }) => {
        using either = new EitherSignal(signal, timeout);
        await this.#followed?.local.syncedWithin(this.#deadline(either.signal));
      },
    };
  }

  /** Returns the step which waits for the initial sync of each remote cluster as long as it makes progress. */
  remoteSync(timeout: AbortSignal): Step {
    return {
      name: 'initial sync of the remote clusters',
      waitsFor: () => [
        ...this.#unreadFolder(),
        ...this.folderProblems(),
        ...this.#incompleteClusters('remote'),
      ],
      progressAt: () => lastProgressAt(this.#followed?.mesh),
      start: async ({ signal }) => {
        using either = new EitherSignal(signal, timeout);
        await this.#waitForFolder(either.signal);
        await this.#followed?.mesh.clustersSynced(this.#deadline(either.signal));
      },
    };
  }

  /**
   * Ends the initial sync: the local etcd gets its usual request rate, and problems are reported individually from now
   * on.
   */
  endInitialSync(): void {
    this.#isInitialSyncDone = true;
    this.#etcd?.endBootstrap();
  }

  /**
   * Returns true if the services of all remote clusters are known. Those of a cluster are known if it is complete, its
   * services have expired, or a checkpoint contains it (`isRestored`). Returns false before the clusters are followed.
   */
  areOffersKnown(isRestored: (cluster: string) => boolean): boolean {
    if (this.#followed === undefined || !this.#isListed || this.folderProblems().length > 0) return false;
    const { mesh } = this.#followed;
    return mesh.names.every(
      (name) =>
        mesh.progressOf(name)?.synced === true ||
        isRestored(name) ||
        mesh.statusOf(name)?.servicesExpired === true,
    );
  }

  /**
   * Returns true if the mesh contains a remote cluster, or may contain it, because its configuration is unusable or the
   * folder of remote clusters was not read yet.
   */
  mayContain(cluster: string): boolean {
    if (this.#followed === undefined || !this.#isListed) return true;
    return (
      this.#followed.mesh.progressOf(cluster) !== undefined || this.#folder?.mayContain(cluster) === true
    );
  }

  recordedKvstore(cluster: string): KvstoreBackend | undefined {
    return this.#recorded.get(cluster);
  }

  /** Returns true if the kvstore of a cluster is in the process: a recorded one, or that of `--kvstore memory`. */
  isInProcess(cluster: string): boolean {
    const { clusterName, kvstore } = this.#options;
    return cluster === clusterName ? kvstore === 'memory' : this.#recorded.get(cluster) !== undefined;
  }

  /** Removes a remote cluster and its state from the mesh. Resolves to false if the mesh does not contain it. */
  async leave(cluster: string): Promise<boolean> {
    return (await this.#followed?.mesh.remove(cluster)) ?? false;
  }

  /** Adds a recorded remote cluster to the mesh. Resolves to false if no kvstore has that name. */
  async join(cluster: string): Promise<boolean> {
    const server = this.#recorded.get(cluster)?.server;
    if (server === undefined || this.#followed === undefined) return false;
    const { clock, random, gate, onReject } = this.#context;
    const outcome = await this.#followed.mesh.add(
      cluster,
      () => new MemoryBackend({ server, clock, random, gate }),
    );
    if (outcome === 'added' || outcome === 'reconnected') return true;
    onReject(rejection('invalid-cluster', 'store', cluster, `cannot be a remote cluster: ${outcome}`));
    return false;
  }

  #incompleteClusters(kind: 'local' | 'remote'): readonly string[] {
    const clusters = this.#followed?.statuses() ?? [];
    return incompleteClusterTexts(clusters.filter(({ local }) => local === (kind === 'local')));
  }

  #deadline(signal: AbortSignal): SyncDeadline {
    const { kvstore, clustermeshConfig } = this.#options;
    const kind = kvstore === 'etcd' || clustermeshConfig !== undefined ? 'etcd' : 'memory';
    return {
      deadlineMs: PROGRESS_TIMEOUT_MS[kind],
      failedDeadlineMs: Math.min(PROGRESS_TIMEOUT_MS[kind], FAILED_DEADLINE_MS),
      failures: MAX_FAILURES[kind],
      signal,
    };
  }

  /** Waits until the folder of remote clusters has been read once, because its first read may fail. */
  async #waitForFolder(signal: AbortSignal): Promise<void> {
    if (this.#folder === undefined || this.#isListed) return;
    const listed = new AbortController();
    using either = new EitherSignal(signal, listed.signal);
    void this.#folder.listed.then(() => listed.abort());
    await sleep(this.#context.clock, PROGRESS_TIMEOUT_MS.etcd, either.signal);
  }

  async #readRecorded(signal: AbortSignal, onProgress: () => void): Promise<void> {
    const { load, keys, clusterName } = this.#options;
    const { log, onReject } = this.#context;
    for (const path of load) {
      this.#readPath = path;
      await this.#recorded.load(path, { local: clusterName, onReject, onProgress, signal });
    }
    this.#readPath = undefined;
    if (keys !== undefined) await this.#recorded.store(keys(), { onReject, onProgress, signal });
    const { clusters } = this.#recorded;
    if (clusters.length > 0 && !clusters.includes(clusterName)) {
      const names = clusters.join(', ');
      log.warn(`no keys of the local cluster ${clusterName} (--cluster); found keys of ${names}`);
    }
    await this.#recorded.complete(onReject);
  }

  async #openLocal(signal: AbortSignal): Promise<{ readonly backend: KvstoreBackend; readonly id: number }> {
    const { clusterName, clusterID, kvstore, kvstoreConfig } = this.#options;
    if (kvstore === 'memory') return this.#recorded.openLocal(clusterName, clusterID);
    if (kvstoreConfig === undefined) throw new InputError('--kvstore etcd requires --kvstore-config <file>');
    const { log, clock, random, gate, onReject } = this.#context;
    const onProblem = (problem: string | undefined, reason?: string): void => {
      this.#etcdProblem = problem;
      if (reason !== undefined)
        onReject(rejection('unusable-config', 'file', kvstoreConfig, reason, '--kvstore-config'));
    };
    const onFailure = (reason: string): void => {
      const isRepeated = this.#localFailure !== undefined;
      this.#localFailure = `the kvstore of cluster ${clusterName} does not answer: ${reason}; check the endpoints and certificates of --kvstore-config`;
      if (!isRepeated) log.warn(`${this.#localFailure}; retrying for ${REACH_MS / 1000} s`);
    };
    const context = { clock, random, gate, signal, onProblem, onFailure };
    this.#etcd = await openLocalEtcd(kvstoreConfig, this.#rates.local, context);
    return { backend: this.#etcd, id: clusterID ?? (await this.#readID(this.#etcd, context)) };
  }

  /**
   * Returns the id of the local cluster in its kvstore. If there is none, or if the kvstore does not answer, returns
   * the id of the restored state, so that an agent with a checkpoint starts during an outage of its kvstore.
   */
  async #readID(etcd: EtcdBackend, context: LocalEtcdContext): Promise<number> {
    const { clock, restoredID } = this.#context;
    const restored = restoredID();
    const late = new AbortController();
    using either = new EitherSignal(context.signal, late.signal);
    const timer = restored === 0 ? undefined : clock.after(RESTORED_ID_MS, () => late.abort());
    const id = await readClusterID(etcd, this.#options.clusterName, { ...context, signal: either.signal });
    timer?.cancel();
    return id || restored;
  }

  async #follow(): Promise<void> {
    assert(this.#localKvstore !== undefined, 'the local kvstore is open');
    const { backend, id: localID } = this.#localKvstore;
    const { clusterName, clusterID, maxConnectedClusters, network, serviceTTLMs, failStatic } = this.#options;
    const { serviceV2 } = this.#options;
    const { clock, random, gate, onReject } = this.#context;
    const { services, ...others } = this.#context.engines;
    const engines = { ...others, remoteNodeIdentities: network.remoteNodeIdentities };
    const common = { clusterName, clock, random, gate, onReject };
    const local = new LocalCluster({ ...common, ...engines, failStatic, backend });
    // The kvstore may contain a larger id. The mesh refuses remote clusters with larger ids, so none has the same id.
    const ownID = localID > maxConnectedClusters ? 0 : localID;
    const remote = { clusterID: ownID, maxConnectedClusters, serviceTTLMs, serviceV2 };
    const mesh = new ClusterMesh({ ...common, ...engines, services, ...remote });
    const identities = new IdentityResolver({ local, clusterID, mesh, maxConnectedClusters });
    this.#followed = new FollowedClusters(local, localID, mesh, identities);
    local.onChange(() => this.#logIDProblem());
    local.start();
    for (const cluster of this.#recorded.clusters) if (cluster !== clusterName) await this.join(cluster);
  }

  /** Sets the rates of calls to each etcd, from the next call on. Returns the changes as text. */
  changeRates(rates: RateLimitOptions): readonly string[] {
    return this.#rates.change(rates);
  }

  #unreadFolder(): readonly string[] {
    const { clustermeshConfig } = this.#options;
    if (clustermeshConfig === undefined || this.#isListed) return [];
    return [`--clustermesh-config ${clustermeshConfig}: not read yet`];
  }

  async #followFolder(path: string, signal: AbortSignal): Promise<void> {
    assert(this.#followed !== undefined, 'the clusters are followed');
    const { mesh } = this.#followed;
    const { clock, random, gate, onReject, countRejection: count, onFolderRead } = this.#context;
    const source = remoteEtcds(path, { clock, random, gate, rateLimit: this.#rates.remote });
    const onProblem = (name: string, reason: string): void => {
      const problem = rejection('unusable-config', 'file', name, reason, `--clustermesh-config ${path}`);
      // Before the end of the initial sync, the problems are reported with the incomplete inputs.
      if (this.#isInitialSyncDone) onReject(problem);
      else count(problem);
    };
    // Reads of a folder may hang, for example in a network file system.
    const check = async (): Promise<void> => {
      await readdir(path).catch((cause: unknown) => {
        throw unreadable('--clustermesh-config', path, cause);
      });
    };
    await interruptible(check, signal);
    const onScan = (): void => {
      this.#isListed = this.#folder?.status().listed === true;
      onFolderRead();
    };
    const folder = new ConfigFollower({ source, mesh, clock, onProblem, onScan });
    this.#folder = folder;
    await interruptible(() => folder.start(), signal);
  }
}
