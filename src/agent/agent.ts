import { assert } from '../base/assert.ts';
import type { Clock, Random } from '../base/clock.ts';
import { type Rejection, rejection } from '../base/rejection.ts';
import { ClusterMesh } from '../clustermesh/cluster-mesh.ts';
import { OwnCluster } from '../clustermesh/own-cluster.ts';
import { IPCache } from '../ipcache/ipcache.ts';
import type { KvstoreBackend } from '../kvstore/backend.ts';
import { MemoryBackend } from '../kvstore/memory/memory-backend.ts';
import { NodeManager } from '../nodemanager/node-manager.ts';
import { ServiceCache } from '../servicecache/service-cache.ts';
import {
  type AgentStatus,
  agentStatus,
  type ClusterStatus,
  clusterStatuses,
  type Followed,
  missingClusters,
} from './agent-status.ts';
import type { Knowledge } from './answers.ts';
import { applyManifest } from './apply-manifest.ts';
import { waitForSync } from './first-sync.ts';
import { labelName } from './label-name.ts';
import type { Logger } from './log.ts';
import { readManifests } from './manifests.ts';
import type { AgentOptions } from './options.ts';
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
 * How long the first sync may stand still before the agent goes on without what is missing. The kvstore is in
 * this process: whoever is silent for so long has nothing to say.
 */
const PATIENCE_MS = 5_000;

/** The engines and what feeds them, wired together. */
export class Agent implements Knowledge, PlayStage {
  readonly ipcache: IPCache;
  readonly services: ServiceCache;
  readonly nodes: NodeManager;
  readonly #options: AgentOptions;
  readonly #context: AgentContext;
  readonly #recorded: RecordedMesh;
  readonly #refused: RejectionReport;
  readonly #refuse: (rejection: Rejection) => void;
  #followed: Followed | undefined;
  #syncedMs: number | undefined;

  constructor(options: AgentOptions, context: AgentContext) {
    const { clock, random, log } = context;
    const { clusterName, nodeName, network } = options;
    this.#options = options;
    this.#context = context;
    this.#recorded = new RecordedMesh(clock, random);
    this.#refused = new RejectionReport(log);
    const onReject = (rejection: Rejection): void => this.#refused.add(rejection);
    const onListenerFault = (error: unknown): void => log.error({ err: error }, 'a listener has failed');
    this.#refuse = onReject;
    this.ipcache = new IPCache({ onReject, onListenerFault });
    this.services = new ServiceCache({ clusterName, onReject, onListenerFault });
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
    const followed = await this.#follow();
    this.#followed = followed;
    const clusters = (): readonly ClusterStatus[] => clusterStatuses(followed);
    await waitForSync(
      {
        synced: Promise.all([followed.own.synced(), followed.mesh.synced()]),
        progress: () => heldKeys(clusters()),
        hopeless: () => clusters().every(({ ready, state }) => ready || state === 'failed'),
      },
      { clock, patienceMs: PATIENCE_MS, signal },
    );
    this.services.markSynced();
    this.#syncedMs = clock.now() - begun;
    return missingClusters(clusters());
  }

  /** What the engines hold now. */
  contents(): EngineContents {
    const { ipcache, nodes, services } = this;
    return { entries: ipcache.entries(), nodes: nodes.nodes(), services: services.snapshot() };
  }

  /** What an identity stands for, by the labels of whichever cluster knows it. */
  readonly identityName = (identity: number): string | undefined => {
    if (this.#followed === undefined) return undefined;
    const { own, mesh } = this.#followed;
    for (const cluster of this.#recorded.clusters) {
      const identities = cluster === this.#options.clusterName ? own.identities : mesh.identitiesOf(cluster);
      const labels = identities?.lookupByID(identity);
      if (labels !== undefined) return labelName(labels);
    }
    return undefined;
  };

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

  status(): AgentStatus {
    return agentStatus({
      options: this.#options,
      engines: this,
      followed: this.#followed,
      refused: this.#refused.status(),
      syncedMs: this.#syncedMs,
    });
  }

  /** Ends following. The engines keep what they know (SEMANTICS 6). */
  async stop(): Promise<void> {
    await this.#followed?.mesh.stop();
    await this.#followed?.own.stop();
    await this.#recorded.close();
    this.nodes.close();
  }

  async #readInputs(signal: AbortSignal): Promise<void> {
    const { load, manifests, clusterName } = this.#options;
    for (const path of load) await this.#recorded.load(path, this.#refuse, signal);
    const { clusters } = this.#recorded;
    if (clusters.length > 0 && !clusters.includes(clusterName)) {
      const names = clusters.join(', ');
      this.#context.log.warn(`no key is of the own cluster ${clusterName} (--cluster); there are ${names}`);
    }
    await this.#recorded.complete(this.#refuse);
    for (const path of manifests) {
      for await (const manifest of readManifests(path, this.#refuse)) applyManifest(manifest, this.services);
    }
  }

  async #follow(): Promise<Followed> {
    const { clusterName, maxConnectedClusters, network } = this.#options;
    const { remoteNodeIdentities } = network;
    const { clock, random } = this.#context;
    const { ipcache, nodes, services } = this;
    const onReject = this.#refuse;
    const backend = this.#recorded.open(clusterName);
    const ownID = this.#options.clusterID ?? (await this.#recorded.clusterID(clusterName));
    const own = new OwnCluster({
      clusterName,
      engines: { ipcache, nodes, remoteNodeIdentities },
      backend,
      onReject,
    });
    own.start();
    const mesh = new ClusterMesh({
      ...{ clusterName, clusterID: ownID, maxConnectedClusters },
      ...{ ipcache, nodes, services, remoteNodeIdentities, clock, random, onReject },
    });
    for (const cluster of this.#recorded.clusters) {
      if (cluster !== clusterName) await this.#add(mesh, cluster);
    }
    return { own, ownID, mesh };
  }

  async #add(mesh: ClusterMesh, cluster: string): Promise<boolean> {
    const server = this.#recorded.get(cluster)?.server;
    if (server === undefined) return false;
    const { clock, random } = this.#context;
    const outcome = await mesh.add(cluster, () => new MemoryBackend({ server, clock, random }));
    if (outcome === 'added' || outcome === 'reconnected') return true;
    this.#refuse(
      rejection('invalid-cluster', 'store', cluster, `cannot be followed as a remote cluster: ${outcome}`),
    );
    return false;
  }
}

function heldKeys(clusters: readonly ClusterStatus[]): number {
  return clusters.flatMap(({ keys }) => Object.values(keys)).reduce((sum, count) => sum + count, 0);
}
