import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { KnownIdentity, ReadModel } from '../api/read-model.ts';
import type { StatusDocument } from '../api/status-document.ts';
import { assert } from '../base/assert.ts';
import type { Clock, Random } from '../base/clock.ts';
import { type Rejection, type RejectionStatus, rejection } from '../base/rejection.ts';
import { unsubscribeOnce } from '../base/subscription.ts';
import { TurnGate } from '../base/turn-gate.ts';
import { ClusterMesh } from '../clustermesh/cluster-mesh.ts';
import { ConfigFollower } from '../clustermesh/config-follower.ts';
import { IdentityResolver } from '../clustermesh/identity-resolver.ts';
import { OwnCluster } from '../clustermesh/own-cluster.ts';
import type { Labels } from '../identity/labels.ts';
import { IPCache } from '../ipcache/ipcache.ts';
import type { KvstoreBackend } from '../kvstore/backend.ts';
import { EtcdBackend } from '../kvstore/etcd/etcd-backend.ts';
import { MemoryBackend } from '../kvstore/memory/memory-backend.ts';
import { NodeManager } from '../nodemanager/node-manager.ts';
import { ServiceCache } from '../servicecache/service-cache.ts';
import {
  agentStatus,
  clusterStatus,
  clusterStatuses,
  type Followed,
  missingClusters,
} from './agent-status.ts';
import { ClusterReport, type ReportedClusters } from './cluster-report.ts';
import { ConfigFolder } from './config-folder.ts';
import { FollowedManifests } from './followed-manifests.ts';
import { InputError, unreadable } from './input-error.ts';
import type { Logger } from './log.ts';
import type { AgentOptions } from './options.ts';
import { openOwnEtcd, readClusterID } from './own-etcd.ts';
import type { PlayStage } from './play.ts';
import { RecordedMesh } from './recorded-mesh.ts';
import { RejectionReport } from './rejection-report.ts';
import type { EngineContents } from './state-document.ts';

/** What an agent takes from its process. */
export interface AgentContext {
  readonly log: Logger;
  readonly clock: Clock;
  readonly random: Random;
}

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

/** The clusters, with one stream of changes. */
function reported(followed: Followed): ReportedClusters {
  const { own, mesh } = followed;
  return {
    names: [...own.names, ...mesh.names],
    statusOf: (name) => clusterStatus(followed, name),
    onChange: (callback) => {
      const subscriptions = [own.onChange(callback), mesh.onChange(callback)];
      return unsubscribeOnce(() => {
        for (const unsubscribe of subscriptions) unsubscribe();
      });
    },
  };
}

/** The engines and what feeds them, wired together. */
export class Agent implements ReadModel, PlayStage {
  readonly ipcache: IPCache;
  readonly services: ServiceCache;
  readonly nodes: NodeManager;
  readonly #options: AgentOptions;
  readonly #context: AgentContext;
  readonly #recorded: RecordedMesh;
  readonly #gate: TurnGate;
  readonly #rejected: RejectionReport;
  readonly #reject: (rejection: Rejection) => void;
  readonly #manifests: FollowedManifests;
  #followed: Followed | undefined;
  #etcd: EtcdBackend | undefined;
  #etcdProblem: string | undefined;
  #folder: ConfigFollower | undefined;
  #report: ClusterReport | undefined;
  #syncedMs: number | undefined;

  constructor(options: AgentOptions, context: AgentContext) {
    const { clock, random, log } = context;
    const { clusterName, nodeName, network } = options;
    this.#options = options;
    this.#context = context;
    this.#gate = new TurnGate({ clock, nextTurn: setImmediate });
    this.#recorded = new RecordedMesh(clock, random);
    this.#rejected = new RejectionReport(log, clock);
    const onReject = (rejection: Rejection): void => this.#rejected.add(rejection);
    const onListenerFault = (error: unknown): void => log.error({ err: error }, 'a listener has failed');
    this.#reject = onReject;
    this.ipcache = new IPCache({ onReject, onListenerFault });
    this.services = new ServiceCache({ clusterName, onReject, onListenerFault });
    this.#manifests = new FollowedManifests({
      services: this.services,
      gate: this.#gate,
      clock,
      log,
      onReject,
    });
    this.nodes = new NodeManager({
      ...network,
      ipcache: this.ipcache,
      clock,
      random,
      clusterName,
      localNodeName: nodeName,
      onReject,
      onHandlerFault: ({ error, node }) => log.error({ err: error, node }, 'a node handler has failed'),
    });
  }

  /**
   * Reads the inputs and follows the mesh; resolves once all of it has been complete, or stands still. Gives what
   * is not complete then, a sentence each. Throws `InputError` when an input cannot be read. Once only.
   */
  async start(signal: AbortSignal): Promise<readonly string[]> {
    assert(this.#followed === undefined, 'the agent has been started');
    const { clock } = this.#context;
    const begun = clock.now();
    await this.#readInputs(signal);
    using timeout = this.#timeout();
    const waiting = AbortSignal.any([signal, timeout.signal]);
    const followed = await this.#follow(waiting);
    this.#followed = followed;
    const { kvstore, clustermeshConfig } = this.#options;
    if (clustermeshConfig !== undefined) await this.#followFolder(clustermeshConfig, followed.mesh);
    const kind = kvstore === 'etcd' || clustermeshConfig !== undefined ? 'etcd' : 'memory';
    const { own, mesh } = followed;
    const patience = { deadlineMs: PATIENCE_MS[kind], failures: FAILURES[kind], signal: waiting };
    await Promise.all([own.syncedWithin(patience), mesh.clustersSynced(patience)]);
    this.services.markSynced();
    this.#etcd?.bootstrapped();
    this.#syncedMs = Math.round(clock.now() - begun);
    this.#report = new ClusterReport(reported(followed), this.#context.log, clock);
    this.#report.start();
    return [...this.#folderProblems(), ...missingClusters(clusterStatuses(followed))];
  }

  /** Fires when the first sync has been waited for long enough, unless it is disposed of before. */
  #timeout(): { readonly signal: AbortSignal } & Disposable {
    const controller = new AbortController();
    const { timeoutMs } = this.#options;
    const timer =
      timeoutMs === undefined ? undefined : this.#context.clock.after(timeoutMs, () => controller.abort());
    return { signal: controller.signal, [Symbol.dispose]: () => timer?.cancel() };
  }

  /** Reads manifests anew: what is not in them any more goes. Throws `InputError` when one cannot be read. */
  readManifests(paths: readonly string[], signal: AbortSignal): Promise<void> {
    return this.#manifests.read(paths, signal);
  }

  /** What the engines hold now. */
  contents(): EngineContents {
    const { ipcache, nodes, services } = this;
    return { entries: ipcache.entries(), nodes: nodes.nodes(), services: services.snapshot() };
  }

  /** As the cluster that the number names has them. */
  readonly labelsOf = (identity: number): Labels | undefined => this.#followed?.identities.resolve(identity);

  *identities(): Generator<KnownIdentity, void, void> {
    if (this.#followed === undefined) return;
    const { own, mesh } = this.#followed;
    const { clusterName } = this.#options;
    for (const [identity, labels] of own.identities.entries())
      yield { identity, labels, cluster: clusterName };
    for (const cluster of mesh.names) {
      for (const [identity, labels] of mesh.identitiesOf(cluster)?.entries() ?? [])
        yield { identity, labels, cluster };
    }
  }

  rejections(): RejectionStatus {
    return this.#rejected.status();
  }

  /** What is not complete, a sentence each; of the first sync that it is under way. */
  blockers(): readonly string[] {
    const followed = this.#followed;
    if (followed === undefined) return ['the agent is starting'];
    const missing = missingClusters(clusterStatuses(followed));
    const first = this.#syncedMs === undefined ? ['the first sync is under way'] : [];
    return [...first, ...this.#folderProblems(), ...missing];
  }

  kvstore(cluster: string): KvstoreBackend | undefined {
    return this.#recorded.get(cluster);
  }

  /** Takes a remote cluster out of the mesh, with all that it has said. False when it is not in it. */
  async leave(cluster: string): Promise<boolean> {
    return (await this.#followed?.mesh.remove(cluster)) ?? false;
  }

  /** Follows a remote cluster (again). False when there is no kvstore of that name. */
  async join(cluster: string): Promise<boolean> {
    return this.#followed !== undefined && (await this.#add(this.#followed.mesh, cluster));
  }

  status(): StatusDocument {
    return agentStatus({
      options: this.#options,
      engines: this,
      followed: this.#followed,
      rejected: this.#rejected.status(),
      syncedMs: this.#syncedMs,
      configProblems:
        this.#etcdProblem === undefined
          ? this.#folderProblems()
          : [this.#etcdProblem, ...this.#folderProblems()],
    });
  }

  /** Ends following. The engines keep what they know (SEMANTICS 6). */
  async stop(): Promise<void> {
    this.#report?.stop();
    await this.#folder?.stop();
    await this.#followed?.mesh.stop();
    await this.#followed?.own.stop();
    await this.#etcd?.close();
    await this.#recorded.close();
    this.nodes.close();
    this.#rejected.flush();
  }

  async #readInputs(signal: AbortSignal): Promise<void> {
    const { load, manifests, clusterName } = this.#options;
    for (const path of load) await this.#recorded.load(path, clusterName, this.#reject, signal);
    const { clusters } = this.#recorded;
    if (clusters.length > 0 && !clusters.includes(clusterName)) {
      const names = clusters.join(', ');
      this.#context.log.warn(`no key is of the own cluster ${clusterName} (--cluster); there are ${names}`);
    }
    await this.#recorded.complete(this.#reject);
    await this.#manifests.read(manifests, signal);
  }

  /** The own cluster's kvstore, and the id that it gives to the cluster. */
  async #openOwn(signal: AbortSignal): Promise<{ backend: KvstoreBackend; id: number }> {
    const { clusterName, clusterID, kvstore, kvstoreConfig, rateLimit } = this.#options;
    if (kvstore === 'memory') return this.#recorded.openOwn(clusterName, clusterID);
    if (kvstoreConfig === undefined)
      throw new InputError('--kvstore etcd: name its configuration with --kvstore-config <file>');
    const onProblem = (why: string | undefined): void => {
      this.#etcdProblem = why && `--kvstore-config ${kvstoreConfig}: ${why}`;
      if (why !== undefined)
        this.#reject(rejection('unusable-config', 'file', kvstoreConfig, why, '--kvstore-config'));
    };
    const context = { ...this.#context, signal, onProblem };
    this.#etcd = await openOwnEtcd(kvstoreConfig, rateLimit, context);
    return { backend: this.#etcd, id: clusterID ?? (await readClusterID(this.#etcd, clusterName, context)) };
  }

  async #followFolder(path: string, mesh: ClusterMesh): Promise<void> {
    const { clock, random } = this.#context;
    // As upstream has it (pkg/clustermesh, `makeEtcdOpts`): the rate of a bootstrap is for the own kvstore alone.
    const rateLimit = this.#options.rateLimit && { ...this.#options.rateLimit, bootstrapQps: undefined };
    const source = new ConfigFolder(path, (config) => new EtcdBackend(config, { clock, random, rateLimit }));
    const onProblem = (name: string, why: string): void => {
      const problem = rejection('unusable-config', 'file', name, why, `--clustermesh-config ${path}`);
      // Until the first sync is over they are reported as a part of what is not complete.
      if (this.#syncedMs === undefined) this.#rejected.count(problem);
      else this.#reject(problem);
    };
    await readdir(path).catch((cause: unknown) => {
      throw unreadable('--clustermesh-config', path, cause);
    });
    this.#folder = new ConfigFollower({ source, mesh, clock, onProblem });
    await this.#folder.start();
  }

  /** Configurations that cannot be used, each of which is a cluster that is missing. */
  #folderProblems(): readonly string[] {
    const path = this.#options.clustermeshConfig ?? '';
    return Object.entries(this.#folder?.status().problems ?? {}).map(([name, why]) =>
      problemText(path, name, why),
    );
  }

  async #follow(signal: AbortSignal): Promise<Followed> {
    const { clusterName, maxConnectedClusters, network, serviceTTLMs, failStatic } = this.#options;
    const { remoteNodeIdentities } = network;
    const { clock, random } = this.#context;
    const { ipcache, nodes, services } = this;
    const onReject = this.#reject;
    const gate = this.#gate;
    const { backend, id: ownID } = await this.#openOwn(signal);
    const own = new OwnCluster({
      clusterName,
      engines: { ipcache, nodes, remoteNodeIdentities },
      ...{ failStatic, backend, clock, random, gate, onReject },
    });
    own.start();
    const mesh = new ClusterMesh({
      ...{ clusterName, clusterID: ownID, maxConnectedClusters, serviceTTLMs },
      ...{ ipcache, nodes, services, remoteNodeIdentities, clock, random, gate, onReject },
    });
    for (const cluster of this.#recorded.clusters) {
      if (cluster !== clusterName) await this.#add(mesh, cluster);
    }
    const identities = new IdentityResolver({
      own,
      clusterID: this.#options.clusterID,
      mesh,
      maxConnectedClusters,
    });
    return { own, ownID, mesh, identities };
  }

  async #add(mesh: ClusterMesh, cluster: string): Promise<boolean> {
    const server = this.#recorded.get(cluster)?.server;
    if (server === undefined) return false;
    const { clock, random } = this.#context;
    const outcome = await mesh.add(cluster, () => new MemoryBackend({ server, clock, random }));
    if (outcome === 'added' || outcome === 'reconnected') return true;
    this.#reject(
      rejection('invalid-cluster', 'store', cluster, `cannot be followed as a remote cluster: ${outcome}`),
    );
    return false;
  }
}
