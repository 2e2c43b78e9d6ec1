import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { assert } from '../base/assert.ts';
import type { Clock, Random } from '../base/clock.ts';
import type { RateLimitOptions } from '../base/rate-limit.ts';
import { type Rejection, rejection } from '../base/rejection.ts';
import type { TurnGate } from '../base/turn-gate.ts';
import { ClusterMesh } from '../clustermesh/cluster-mesh.ts';
import { ConfigFollower } from '../clustermesh/config-follower.ts';
import type { MeshEngines } from '../clustermesh/engines.ts';
import { IdentityResolver } from '../clustermesh/identity-resolver.ts';
import { OwnCluster } from '../clustermesh/own-cluster.ts';
import type { SyncDeadline } from '../clustermesh/sync-deadline.ts';
import type { KvstoreBackend } from '../kvstore/backend.ts';
import { EtcdBackend } from '../kvstore/etcd/etcd-backend.ts';
import { MemoryBackend } from '../kvstore/memory/memory-backend.ts';
import { clusterStatuses, type Followed, missingClusters } from './agent-status.ts';
import { ConfigFolder } from './config-folder.ts';
import { InputError, unreadable } from './input-error.ts';
import type { Logger } from './log.ts';
import type { AgentOptions } from './options.ts';
import { openOwnEtcd, readClusterID } from './own-etcd.ts';
import { RecordedMesh } from './recorded-mesh.ts';
import type { Step } from './start-step.ts';

/** What {@link MeshFeed} feeds, and takes from its process. */
export interface MeshFeedContext {
  readonly log: Logger;
  readonly clock: Clock;
  readonly random: Random;
  readonly gate: TurnGate;
  readonly engines: Omit<MeshEngines, 'remoteNodeIdentities'>;
  readonly onReject: (rejection: Rejection) => void;
  /** Counts what is reported in another way. */
  readonly count: (rejection: Rejection) => void;
}

/** Of reading files: a disk that says nothing for so long says nothing more. */
const READ_MS = 180_000;

/** An own kvstore that has not answered for so long cannot be started with: a supervisor is to try again. */
const REACH_MS = 30_000;

/**
 * How long the first sync of a cluster may stand still before the agent goes on without what is missing. A kvstore in this
 * process that is silent for so long has nothing to say; over a network (SEMANTICS 8) it takes longer to know.
 */
const PATIENCE_MS = { memory: 5_000, etcd: 180_000 };

/** A cluster that has failed so often by then is not waited for: a first failure may be a matter of luck. */
const FAILURES = { memory: 1, etcd: 3 };

function problemText(folder: string, name: string, why: string): string {
  return `--clustermesh-config ${join(folder, name)}: ${why}`;
}

/** Follows the kvstores of the own and the remote clusters, recorded or real, into the engines. */
export class MeshFeed {
  readonly #options: AgentOptions;
  /** Of every etcd; what is changed here counts at once. */
  readonly #rates: { -readonly [Field in keyof RateLimitOptions]: RateLimitOptions[Field] };
  readonly #context: MeshFeedContext;
  readonly #recorded: RecordedMesh;
  #reading: string | undefined;
  #ownKvstore: { readonly backend: KvstoreBackend; readonly id: number } | undefined;
  #etcd: EtcdBackend | undefined;
  #etcdProblem: string | undefined;
  #ownFailure: string | undefined;
  #followed: Followed | undefined;
  #folder: ConfigFollower | undefined;
  #synced = false;

  constructor(options: AgentOptions, context: MeshFeedContext) {
    this.#rates = { ...options.rateLimit };
    this.#options = options;
    this.#context = context;
    this.#recorded = new RecordedMesh(context.clock, context.random);
  }

  /** The clusters, once they are followed. */
  get followed(): Followed | undefined {
    return this.#followed;
  }

  /** What is wrong with the files that describe etcds now. */
  problems(): readonly string[] {
    return this.#etcdProblem === undefined
      ? this.folderProblems()
      : [this.#etcdProblem, ...this.folderProblems()];
  }

  /** Configurations that cannot be used, each of which is a cluster that is missing. */
  folderProblems(): readonly string[] {
    const path = this.#options.clustermeshConfig ?? '';
    return Object.entries(this.#folder?.status().problems ?? {}).map(([name, why]) =>
      problemText(path, name, why),
    );
  }

  /** Reads the recorded mesh. */
  recordedMesh(): Step {
    return {
      name: 'recorded mesh',
      patienceMs: READ_MS,
      waitsFor: () => (this.#reading === undefined ? [] : [`--load ${this.#reading} is being read`]),
      start: ({ signal, progress }) => this.#readRecorded(signal, progress),
      stop: () => this.#recorded.close(),
    };
  }

  /** Opens the own kvstore, and learns the own cluster's id. */
  ownKvstore(timeout: AbortSignal): Step {
    return {
      name: 'own kvstore',
      patienceMs: REACH_MS,
      waitsFor: () => (this.#ownFailure === undefined ? [] : [this.#ownFailure]),
      start: async ({ signal }) => {
        this.#ownKvstore = await this.#openOwn(AbortSignal.any([signal, timeout]));
      },
      stop: () => this.#etcd?.close(),
    };
  }

  /** Begins to follow the clusters. */
  clusters(): Step {
    return {
      name: 'clusters',
      start: async () => {
        await this.#follow();
        const { clustermeshConfig } = this.#options;
        if (clustermeshConfig !== undefined) await this.#followFolder(clustermeshConfig);
      },
      stop: async () => {
        await this.#folder?.stop();
        await this.#followed?.mesh.stop();
        await this.#followed?.own.stop();
      },
    };
  }

  /** Waits for the own cluster's first sync, each resource by its progress. */
  ownSync(timeout: AbortSignal): Step {
    return {
      name: 'first sync of the own cluster',
      waitsFor: () => this.#missing(true),
      start: ({ signal }) =>
        this.#followed?.own.syncedWithin(this.#deadline(AbortSignal.any([signal, timeout]))),
    };
  }

  /** Waits for the first sync of the remote clusters, each by its progress. */
  remoteSync(timeout: AbortSignal): Step {
    return {
      name: 'first sync of the remote clusters',
      waitsFor: () => [...this.folderProblems(), ...this.#missing(false)],
      start: ({ signal }) =>
        this.#followed?.mesh.clustersSynced(this.#deadline(AbortSignal.any([signal, timeout]))),
    };
  }

  /** The first sync is over: the own etcd is asked at its usual rate from now on, and problems are reported one by one. */
  synced(): void {
    this.#synced = true;
    this.#etcd?.bootstrapped();
  }

  /** The recorded kvstore of a cluster. */
  kvstore(cluster: string): KvstoreBackend | undefined {
    return this.#recorded.get(cluster);
  }

  /** Takes a remote cluster out of the mesh, with all that it has said. False when it is not in it. */
  async leave(cluster: string): Promise<boolean> {
    return (await this.#followed?.mesh.remove(cluster)) ?? false;
  }

  /** Follows a recorded remote cluster. False when there is no kvstore of that name. */
  async join(cluster: string): Promise<boolean> {
    const server = this.#recorded.get(cluster)?.server;
    if (server === undefined || this.#followed === undefined) return false;
    const { clock, random, onReject } = this.#context;
    const outcome = await this.#followed.mesh.add(
      cluster,
      () => new MemoryBackend({ server, clock, random }),
    );
    if (outcome === 'added' || outcome === 'reconnected') return true;
    onReject(
      rejection('invalid-cluster', 'store', cluster, `cannot be followed as a remote cluster: ${outcome}`),
    );
    return false;
  }

  #missing(own: boolean): readonly string[] {
    const clusters = this.#followed === undefined ? [] : clusterStatuses(this.#followed);
    return missingClusters(clusters.filter((cluster) => cluster.own === own));
  }

  #deadline(signal: AbortSignal): SyncDeadline {
    const { kvstore, clustermeshConfig } = this.#options;
    const kind = kvstore === 'etcd' || clustermeshConfig !== undefined ? 'etcd' : 'memory';
    return { deadlineMs: PATIENCE_MS[kind], failures: FAILURES[kind], signal };
  }

  async #readRecorded(signal: AbortSignal, onProgress: () => void): Promise<void> {
    const { load, clusterName } = this.#options;
    const { log, onReject } = this.#context;
    for (const path of load) {
      this.#reading = path;
      await this.#recorded.load(path, { own: clusterName, onReject, onProgress, signal });
    }
    this.#reading = undefined;
    const { clusters } = this.#recorded;
    if (clusters.length > 0 && !clusters.includes(clusterName)) {
      const names = clusters.join(', ');
      log.warn(`no key is of the own cluster ${clusterName} (--cluster); there are ${names}`);
    }
    await this.#recorded.complete(onReject);
  }

  async #openOwn(signal: AbortSignal): Promise<{ readonly backend: KvstoreBackend; readonly id: number }> {
    const { clusterName, clusterID, kvstore, kvstoreConfig } = this.#options;
    if (kvstore === 'memory') return this.#recorded.openOwn(clusterName, clusterID);
    if (kvstoreConfig === undefined)
      throw new InputError('--kvstore etcd: name its configuration with --kvstore-config <file>');
    const { log, clock, random, onReject } = this.#context;
    const onProblem = (why: string | undefined): void => {
      this.#etcdProblem = why && `--kvstore-config ${kvstoreConfig}: ${why}`;
      if (why !== undefined)
        onReject(rejection('unusable-config', 'file', kvstoreConfig, why, '--kvstore-config'));
    };
    const onFailure = (why: string): void => {
      const said = this.#ownFailure !== undefined;
      this.#ownFailure = `the kvstore of cluster ${clusterName} does not answer: ${why}; check the endpoints and certificates of --kvstore-config`;
      if (!said) log.warn(`${this.#ownFailure}; it is asked for ${REACH_MS / 1000} s`);
    };
    const context = { clock, random, signal, onProblem, onFailure };
    this.#etcd = await openOwnEtcd(kvstoreConfig, this.#rates, context);
    return { backend: this.#etcd, id: clusterID ?? (await readClusterID(this.#etcd, clusterName, context)) };
  }

  async #follow(): Promise<void> {
    assert(this.#ownKvstore !== undefined, 'the own kvstore has been opened');
    const { backend, id: ownID } = this.#ownKvstore;
    const { clusterName, clusterID, maxConnectedClusters, network, serviceTTLMs, failStatic } = this.#options;
    const { remoteNodeIdentities } = network;
    const { clock, random, gate, onReject, engines } = this.#context;
    const { ipcache, nodes, services } = engines;
    const own = new OwnCluster({
      clusterName,
      engines: { ipcache, nodes, remoteNodeIdentities },
      ...{ failStatic, backend, clock, random, gate, onReject },
    });
    const mesh = new ClusterMesh({
      ...{ clusterName, clusterID: ownID, maxConnectedClusters, serviceTTLMs },
      ...{ ipcache, nodes, services, remoteNodeIdentities, clock, random, gate, onReject },
    });
    const identities = new IdentityResolver({ own, clusterID, mesh, maxConnectedClusters });
    this.#followed = { own, ownID, mesh, identities };
    own.start();
    for (const cluster of this.#recorded.clusters) if (cluster !== clusterName) await this.join(cluster);
  }

  /** How much is asked of each etcd from now on. */
  changeRates({ qps, bootstrapQps, maxInflight }: RateLimitOptions): void {
    Object.assign(this.#rates, { qps, bootstrapQps, maxInflight });
  }

  async #followFolder(path: string): Promise<void> {
    assert(this.#followed !== undefined, 'the clusters are followed');
    const { mesh } = this.#followed;
    const { clock, random, onReject, count } = this.#context;
    // As upstream has it (pkg/clustermesh, `makeEtcdOpts`): the rate of a bootstrap is for the own kvstore alone.
    const rates = this.#rates;
    const rateLimit: RateLimitOptions = {
      get qps() {
        return rates.qps;
      },
      get maxInflight() {
        return rates.maxInflight;
      },
    };
    const source = new ConfigFolder(path, (config) => new EtcdBackend(config, { clock, random, rateLimit }));
    const onProblem = (name: string, why: string): void => {
      const problem = rejection('unusable-config', 'file', name, why, `--clustermesh-config ${path}`);
      // Until the first sync is over they are reported as a part of what is not complete.
      if (this.#synced) onReject(problem);
      else count(problem);
    };
    await readdir(path).catch((cause: unknown) => {
      throw unreadable('--clustermesh-config', path, cause);
    });
    this.#folder = new ConfigFollower({ source, mesh, clock, onProblem });
    await this.#folder.start();
  }
}
