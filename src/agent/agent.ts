import { join, resolve } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import type { OriginDocument } from '../api/documents.ts';
import type {
  ClusterMetrics,
  EngineViews,
  ParsedManifest,
  ReadModel,
  RestoredDocument,
} from '../api/read-model.ts';
import type { ClusterDetailDocument, ClusterDocument, StatusDocument } from '../api/status-document.ts';
import type { Timer } from '../base/clock.ts';
import { messageOf } from '../base/failure.ts';
import type { RateLimitOptions } from '../base/rate-limit.ts';
import { type Rejection, type RejectionStatus, rejection } from '../base/rejection.ts';
import type { Unsubscribe } from '../base/subscription.ts';
import type { TurnGate } from '../base/turn-gate.ts';
import { incompleteClusterTexts, manyIncompleteText } from '../client/cluster-text.ts';
import type { EngineContents } from '../client/state-document.ts';
import { withRestored } from '../clustermesh/identity-resolver.ts';
import type { HostDatapathOptions } from '../datapath/linux/host-options.ts';
import type { KnownInputs } from '../datapath/linux/known-inputs.ts';
import type { History } from '../history/history.ts';
import { IPCache } from '../ipcache/ipcache.ts';
import type { ExplainedClaim } from '../ipcache/types.ts';
import { isInCluster } from '../k8s/rest/in-cluster.ts';
import type { KvstoreBackend } from '../kvstore/session/backend.ts';
import type { ClusterIdentity } from '../model/identity-cache.ts';
import type { Labels } from '../model/labels.ts';
import { reservedIdentityName } from '../model/numeric-identity.ts';
import { NodeManager } from '../nodemanager/node-manager.ts';
import { FaultReport } from '../process/fault-report.ts';
import { loggedGate } from '../process/logged-gate.ts';
import { RejectionReport } from '../process/rejection-report.ts';
import type { ProcessContext } from '../process/served-process.ts';
import { READ_MS, type Step } from '../process/start-step.ts';
import { Startup } from '../process/startup.ts';
import { openSteps } from '../process/step-text.ts';
import { FollowedManifests } from '../recording/followed-manifests.ts';
import { parseManifestObject } from '../recording/manifest-object.ts';
import type { PlayTarget } from '../recording/play.ts';
import { RecordedKubernetes } from '../recording/recorded-kubernetes.ts';
import { ServiceCache } from '../servicecache/service-cache.ts';
import { agentStatus } from './agent-status.ts';
import { claimOrigin } from './claim-origin.ts';
import { ClusterReport } from './cluster-report.ts';
import { DatapathKeeper } from './datapath-keeper.ts';
import type { FollowedClusters } from './followed-clusters.ts';
import { HistoryKeeper, type HistoryKeeperOptions } from './history-keeper.ts';
import { KubernetesFollower } from './kubernetes-follower.ts';
import { MeshFeed } from './mesh-feed.ts';
import type { AgentOptions, KubernetesOptions } from './options.ts';
import { ReportedIdentities } from './reported-identities.ts';
import { StateKeeper } from './state-keeper.ts';
import { TapeKeeper } from './tape-keeper.ts';

/** The parts of the process used by an agent. */
export type AgentContext = Omit<ProcessContext, 'end'>;

export type AgentEngines = Pick<EngineViews, 'ipcache' | 'services' | 'nodes'>;

/** The parts of an agent used by its sources and keepers. */
export interface AgentParts extends AgentContext {
  readonly gate: TurnGate;
  readonly engines: AgentEngines;
  /** Counts and logs a rejection. */
  readonly onReject: (rejection: Rejection) => void;
}

/** Returns the folder and maximum size of the stored history; undefined if it is not stored. */
function historyDisk({ stateDir, historyDisk: maxBytes = 0 }: AgentOptions): HistoryKeeperOptions['disk'] {
  if (stateDir === undefined || maxBytes === 0) return undefined;
  return { path: join(resolve(stateDir), 'history'), maxBytes };
}

/** Wires the engines to their sources. */
export class Agent implements ReadModel, PlayTarget {
  readonly ipcache: IPCache;
  readonly services: ServiceCache;
  readonly nodes: NodeManager;
  readonly #options: AgentOptions;
  readonly #context: AgentContext;
  readonly #rejections: RejectionReport;
  readonly #faults: FaultReport;
  readonly #onReject = (rejection: Rejection): void => this.#rejections.add(rejection);
  readonly #manifests: FollowedManifests;
  /** Paths of the manifests read last. */
  #manifestPaths: readonly string[];
  readonly #mesh: MeshFeed;
  readonly #startup: Startup;
  readonly #reportedIdentities: ReportedIdentities;
  readonly #stateKeeper: StateKeeper | undefined;
  /** The datapath of the kernel; undefined if none is configured. */
  readonly datapath: DatapathKeeper | undefined;
  readonly #history: HistoryKeeper | undefined;
  readonly #tape: TapeKeeper | undefined;
  readonly #recordedKubernetes: RecordedKubernetes | undefined;
  readonly #kubernetes: KubernetesFollower | undefined;
  readonly #reports: ClusterReport[] = [];
  #syncedMs: number | undefined;
  /** The stale clusters when the agent began to stop, because closed clusters look stale, too. */
  #staleAtStop: readonly (readonly [name: string, knownAt: number])[] | undefined;

  constructor(options: AgentOptions, context: AgentContext) {
    const { clock, random, log } = context;
    const { clusterName, nodeName } = options;
    this.#options = options;
    this.#context = context;
    this.#manifestPaths = options.manifests;
    this.#startup = new Startup(context);
    const gate = loggedGate(context);
    this.#rejections = new RejectionReport(log, clock);
    this.#faults = new FaultReport(log, clock);
    const onReject = this.#onReject;
    const onListenerFault = (err: unknown): void => this.#faults.add('a listener', { err });
    // Random, because peers choose keys and must not be able to choose colliding ones.
    const hashSeed = Math.floor(random() * 2 ** 32);
    this.ipcache = new IPCache({ hashSeed, onReject, onListenerFault });
    this.services = new ServiceCache({
      clusterName,
      nodeName,
      onReject,
      onListenerFault,
      // `nodePort` has no addresses here, because the datapath and the API add those of nodes themselves.
      nodePort: { enabled: true },
    });
    this.nodes = this.#newNodeManager(this.ipcache);
    const { ipcache, services, nodes } = this;
    const engines: AgentEngines = { ipcache, services, nodes };
    const parts: AgentParts = { log, clock, random, gate, onReject, engines };
    this.#reportedIdentities = new ReportedIdentities({
      clusterName,
      followed: () => this.#mesh.followed,
      kubernetes: () => this.#kubernetes,
    });
    if (options.tape !== undefined)
      this.#tape = new TapeKeeper(options, options.tape, { ...parts, labelsOf: this.labelsOf });
    this.#manifests = new FollowedManifests({ services, gate, clock, log, onReject });
    this.#mesh = this.#newMeshFeed(parts);
    const { kubernetes, datapath, historyMemory, stateDir } = options;
    if (kubernetes !== undefined && (!kubernetes.ifInCluster || isInCluster())) {
      const isRecorded = kubernetes.load.length > 0 || kubernetes.objects !== undefined;
      this.#recordedKubernetes = isRecorded ? new RecordedKubernetes(clock) : undefined;
      this.#kubernetes = this.#newKubernetesFollower(kubernetes, parts);
    }
    if (datapath !== undefined) this.datapath = this.#newDatapathKeeper(datapath, parts);
    if (historyMemory)
      this.#history = new HistoryKeeper({ ...parts, memory: historyMemory, disk: historyDisk(options) });
    if (stateDir !== undefined) this.#stateKeeper = this.#newStateKeeper(stateDir, parts);
  }

  #newNodeManager(ipcache: IPCache): NodeManager {
    const { clusterName, nodeName, network } = this.#options;
    const { clock, random } = this.#context;
    return new NodeManager({
      ...network,
      ipcache,
      clock,
      random,
      clusterName,
      nodeName,
      localNodeIsHost: true,
      onReject: this.#onReject,
      onHandlerFault: ({ handler, error, node }) => {
        this.#faults.add(`node handler ${handler.name ?? 'without a name'}`, { err: error, node });
        const prefix = node === undefined ? '' : `${node}: `;
        this.#history?.noteFailure(handler.name ?? 'node handler', `${prefix}${messageOf(error)}`);
      },
    });
  }

  #newMeshFeed(parts: AgentParts): MeshFeed {
    return new MeshFeed(this.#options, {
      ...parts,
      engines: {
        ...parts.engines,
        tap: this.#tape?.tape.mesh,
        onCause: (cause) => this.#history?.history.setCause(cause),
        onWithdrawal: (cluster, isRunning) => this.#history?.noteWithdrawal(cluster, isRunning),
      },
      countRejection: (rejection) => this.#rejections.count(rejection),
      onFolderRead: () => this.#releaseCompleteClusters(),
      restoredID: () => this.#restoredID(),
    });
  }

  /** Returns the id of the local cluster; before it is followed, that of the checkpoint. 0 if it is unknown. */
  #clusterID(): number {
    const { local, localID = 0 } = this.#mesh.followed ?? {};
    return local?.clusterID || localID || this.#restoredID();
  }

  /** Returns the id of the local cluster in the checkpoint, or in its restored nodes; 0 if it is unknown. */
  #restoredID(): number {
    const { clusterID: restored = 0 } = this.#stateKeeper?.restoration ?? {};
    if (restored !== 0) return restored;
    for (const { cluster, clusterID } of this.nodes.nodes())
      if (cluster === this.#options.clusterName && clusterID !== 0) return clusterID;
    return 0;
  }

  #newKubernetesFollower(kubernetes: KubernetesOptions, parts: AgentParts): KubernetesFollower {
    return new KubernetesFollower(this.#options, kubernetes, {
      ...parts,
      onCause: (cause) => this.#history?.history.setCause(cause && { store: 'k8s', ...cause }),
      tape: this.#tape?.tape.kubernetes,
      recorded: this.#recordedKubernetes?.transport,
      followed: () => this.#mesh.followed,
      restoredIdentities: () => this.#stateKeeper?.restoration.identities() ?? [],
    });
  }

  #newDatapathKeeper(options: HostDatapathOptions, parts: AgentParts): DatapathKeeper {
    const { nodeName, clusterName } = this.#options;
    return new DatapathKeeper({
      ...parts,
      options,
      nodeName,
      clusterName,
      incompleteInputs: () => [
        ...this.incompleteInputs(),
        ...(this.#kubernetes?.areLabelsApplied === false
          ? ['Kubernetes: prefixes with labels have no identity yet']
          : []),
      ],
      knownInputs: () => this.#knownInputs(),
      onRepairFailed: (error) => this.#history?.noteFailure('datapath linux', messageOf(error)),
    });
  }

  #newStateKeeper(path: string, parts: AgentParts): StateKeeper {
    const { importCiliumState: importFrom, clusterName, nodeName } = this.#options;
    return new StateKeeper({
      ...parts,
      path,
      importFrom,
      clusterName,
      nodeName,
      clusterID: () => this.#clusterID(),
      identities: () => this.identities(),
      identityVersion: () => this.#reportedIdentities.version,
      staleClusters: () => this.#staleAtStop ?? this.#staleClusters(),
    });
  }

  /**
   * Runs the steps of `first`, then the agent's own steps. When the initial sync is complete or has timed out, returns
   * one sentence for each incomplete input, or one for all remote clusters if many are incomplete. Throws `InputError`
   * if an input cannot be used. May be called once only.
   */
  async start(signal: AbortSignal, first: readonly Step[] = []): Promise<readonly string[]> {
    using timeout = this.#timeout();
    const steps = [...first.map((step) => [step]), ...this.#stages(timeout.signal)];
    await this.#startup.start(steps, signal);
    this.datapath?.initialSyncDone();
    return this.#briefInputs();
  }

  /**
   * Returns {@link Agent.incompleteInputs}. If many remote clusters are incomplete, one sentence replaces theirs, which
   * are logged at `debug`.
   */
  #briefInputs(): readonly string[] {
    const clusters = this.#clusters();
    const inputs = this.#incompleteInputs(clusters);
    const text = manyIncompleteText(remoteOf(clusters));
    if (text === undefined) return inputs;
    for (const sentence of incompleteClusterTexts(remoteOf(clusters))) this.#context.log.debug(sentence);
    return [...withoutRemoteClusters(inputs, clusters), text];
  }

  #staleClusters(): readonly (readonly [name: string, knownAt: number])[] {
    return this.#clusters().flatMap(({ name, knownAt }) =>
      knownAt === undefined ? [] : [[name, Date.parse(knownAt)] as const],
    );
  }

  #clusters(): readonly ClusterDocument[] {
    return this.#mesh.followed?.statuses() ?? [];
  }

  /**
   * Returns the steps in the order of the start (AGENT 1, 2, 4); the stop uses the reverse order. The state on disk
   * comes first, then all feeds, then the wait for complete inputs, then the steps that need complete inputs. Steps of
   * one row run concurrently.
   */
  #stages(timeout: AbortSignal): readonly (readonly Step[])[] {
    const mesh = this.#mesh;
    const recorded = this.#recordedKubernetes;
    const rows: readonly (readonly (Step | undefined)[])[] = [
      [this.#enginesStep()],
      [this.#tape?.step()],
      [this.#stateKeeper?.step()],
      [this.#history?.step()],
      [this.datapath?.step()],
      [mesh.recordedMesh()],
      [this.#readFirstManifests()],
      [recorded && this.#readRecordedObjects(recorded)],
      [mesh.localKvstore(timeout)],
      [mesh.clusters()],
      [this.#kubernetes?.follow(() => this.#releaseCompleteClusters())],
      [mesh.localSync(timeout), mesh.remoteSync(timeout), this.#kubernetes?.sync(timeout)],
      [this.#endOfInitialSync()],
    ];
    return rows.map((row) => row.filter((step) => step !== undefined));
  }

  #enginesStep(): Step {
    return {
      name: 'engines',
      start: () => {},
      stop: () => {
        this.nodes.close();
        this.#rejections.flush();
        this.#faults.flush();
      },
    };
  }

  #releaseCompleteClusters(): void {
    for (const cluster of this.#stateKeeper?.restoration.clusters ?? []) this.#releaseIfComplete(cluster);
  }

  /** Withdraws the restored state of a cluster. Never rejects. */
  async #releaseRestored(keeper: StateKeeper, cluster: string): Promise<void> {
    try {
      await this.#kubernetes?.waitForLabels();
      await keeper.releaseRestored(cluster);
      if (cluster === this.#options.clusterName) this.#kubernetes?.releaseWithheldIdentities();
    } catch (error) {
      this.#context.log.error(
        { err: error, cluster },
        `cluster ${cluster}: cannot remove the restored state`,
      );
    }
  }

  /**
   * Withdraws the restored state of a cluster if its sources are complete or it has left the mesh. Does nothing before
   * the end of the initial sync, because another source may still provide entries which only the restored state has.
   */
  #releaseIfComplete(cluster: string): void {
    const { followed } = this.#mesh;
    if (this.#stateKeeper === undefined || this.#syncedMs === undefined || followed === undefined) return;
    if (this.#isComplete(cluster, followed)) void this.#releaseRestored(this.#stateKeeper, cluster);
    else if (followed.mesh.statusOf(cluster)?.servicesExpired === true)
      this.#stateKeeper.releaseRestoredOffers(cluster);
  }

  /**
   * Returns true if the kvstore of a cluster is complete or has left the mesh; for the local cluster, all lists of
   * Kubernetes, too.
   */
  #isComplete(cluster: string, followed: FollowedClusters): boolean {
    const isLocal = followed.isLocal(cluster);
    const progress = followed.progressOf(cluster);
    // An empty kvstore in memory has no further keys. An empty etcd may have lost its data.
    const isEmpty = isLocal && this.#options.kvstore === 'memory' && progress?.settled === true;
    const isComplete = progress === undefined ? !this.#mesh.mayContain(cluster) : progress.synced || isEmpty;
    const isKubernetesComplete = !isLocal || this.#kubernetes === undefined || this.#kubernetes.synced;
    return isComplete && isKubernetesComplete;
  }

  /** Withdraws the restored services of clusters that are not followed: no follower measures their service TTL. */
  #releaseUnfollowed(): void {
    for (const cluster of this.#stateKeeper?.restoration.clusters ?? [])
      if (this.#mesh.followed?.progressOf(cluster) === undefined)
        this.#stateKeeper?.releaseRestoredOffers(cluster);
  }

  #readRecordedObjects(kubernetes: RecordedKubernetes): Step {
    return {
      name: 'recorded Kubernetes',
      progressTimeoutMs: READ_MS,
      start: async ({ progress }) => {
        const { load = [], objects } = this.#options.kubernetes ?? {};
        for (const path of load) await kubernetes.load(path, this.#onReject, progress);
        if (objects !== undefined) await kubernetes.store(objects(), this.#onReject, progress);
      },
    };
  }

  #readFirstManifests(): Step {
    const { manifests } = this.#options;
    return {
      name: 'manifests',
      progressTimeoutMs: READ_MS,
      waitsFor: () => this.#manifests.reading.map((path) => `reading --manifests ${path}`),
      start: ({ signal, progress }) => this.#manifests.read(manifests, signal, progress),
    };
  }

  /**
   * Returns the step which marks the inputs of the service cache as complete, and from then on withdraws the restored
   * state of complete clusters. It runs when the inputs are complete, or when the wait for them has timed out.
   */
  #endOfInitialSync(): Step {
    const { log, clock } = this.#context;
    const begun = clock.now();
    const { serviceTTLMs } = this.#options;
    let unsubscribe: Unsubscribe | undefined;
    let timer: Timer | undefined;
    return {
      name: 'end of the initial sync',
      start: () => {
        this.services.markSynced();
        this.#mesh.endInitialSync();
        this.#tape?.tape.markSynced();
        this.#syncedMs = Math.round(clock.now() - begun);
        const { followed } = this.#mesh;
        for (const reported of [followed, this.#kubernetes?.reported])
          if (reported !== undefined) this.#reports.push(new ClusterReport(reported, log, clock));
        for (const report of this.#reports) report.start();
        this.#history?.start(followed, this.#kubernetes?.kinds);
        unsubscribe = followed?.onChange((cluster) => this.#releaseIfComplete(cluster));
        if (serviceTTLMs !== undefined) timer = clock.after(serviceTTLMs, () => this.#releaseUnfollowed());
        this.#releaseCompleteClusters();
      },
      stop: () => {
        unsubscribe?.();
        timer?.cancel();
        this.#history?.stop();
        for (const report of this.#reports) report.stop();
      },
    };
  }

  /** Returns a signal that fires when the timeout of the initial sync has elapsed. Disposing cancels the timer. */
  #timeout(): { readonly signal: AbortSignal } & Disposable {
    const controller = new AbortController();
    const { timeoutMs } = this.#options;
    const timer =
      timeoutMs === undefined ? undefined : this.#context.clock.after(timeoutMs, () => controller.abort());
    return { signal: controller.signal, [Symbol.dispose]: () => timer?.cancel() };
  }

  /**
   * Reads the manifests again. Objects missing in them are removed. Throws `InputError` if a manifest cannot
   * be read.
   */
  async readManifests(paths: readonly string[], signal: AbortSignal): Promise<void> {
    this.#tape?.tape.note('the manifests are read again');
    await this.#manifests.read(paths, signal);
    if (!isDeepStrictEqual(paths, this.#manifestPaths))
      this.#history?.history.mark('setting', 'manifests', paths.join(' '));
    this.#manifestPaths = paths;
  }

  /** Changes the rates of requests to each etcd. See `RateLimitOptions`. */
  changeRates(rateLimit: RateLimitOptions): void {
    this.#tape?.tape.note('the rates of requests are set again');
    const changes = this.#mesh.changeRates(rateLimit);
    if (changes.length > 0) this.#history?.history.mark('setting', 'kvstore-opt', changes.join(', '));
  }

  contents(): EngineContents {
    const { ipcache, nodes, services } = this;
    return { entries: ipcache.entries(), nodes: nodes.nodes(), services: services.entries() };
  }

  readonly parseManifest = (object: Readonly<Record<string, unknown>>): ParsedManifest => {
    const { value, rejections } = parseManifestObject({ object, at: 'manifest' });
    const [rejected] = rejections;
    return (
      value ?? { rejected: rejected ?? rejection('malformed-manifest', 'object', object, 'is unusable') }
    );
  };

  /** Returns the labels of an identity, or the restored ones if no source has them. */
  readonly labelsOf = (identity: number): Labels | undefined =>
    this.#reportedIdentities.labelsOf(identity) ?? this.#stateKeeper?.restoration.labelsOf(identity);

  readonly restoredOf = (cluster: string): RestoredDocument | undefined =>
    this.#stateKeeper?.restored(cluster || this.#options.clusterName);

  readonly originOf = (claim: Pick<ExplainedClaim, 'key' | 'source' | 'owner' | 'k8s'>): OriginDocument => {
    const { clusterName } = this.#options;
    return claimOrigin(claim, {
      clusterName,
      isInProcess: (cluster) => this.#mesh.isInProcess(cluster),
      versionOf: (cluster, resource, name) => this.#mesh.followed?.versionOf(cluster, resource, name),
      conditionOf: (cluster) => this.#mesh.followed?.statusOf(cluster),
      sourceOfNode: (fullName) => this.nodes.get(fullName)?.source,
    });
  };

  readonly restoredIdentity = (identity: number): RestoredDocument | undefined => {
    if (this.#reportedIdentities.labelsOf(identity) !== undefined) return undefined;
    const cluster = this.#stateKeeper?.restoration.clusterOf(identity);
    return cluster === undefined ? undefined : this.restoredOf(cluster);
  };

  readonly clusterOf = (identity: number): string => {
    if (reservedIdentityName(identity) !== undefined) return '';
    const restored = this.#stateKeeper?.restoration;
    return this.#reportedIdentities.clusterOf(identity) ?? restored?.clusterOf(identity) ?? '';
  };

  identities(): Generator<ClusterIdentity, void, void> {
    return withRestored(this.#reportedIdentities.entries(), this.#stateKeeper?.restoration);
  }

  clusterNames(): readonly string[] {
    return this.#mesh.followed?.names ?? [];
  }

  cluster(name: string): ClusterDetailDocument | undefined {
    return this.#mesh.followed?.detailOf(name);
  }

  clusterMetrics(): Iterable<ClusterMetrics> {
    return this.#mesh.followed?.metrics() ?? [];
  }

  rejections(): RejectionStatus {
    return this.#rejections.status();
  }

  /**
   * Returns the reasons why the agent is not ready. After the start, a remote cluster is no reason: otherwise its
   * outage would make the pods of all agents unready, and stop their rolling update.
   */
  blockers(): readonly string[] {
    const clusters = this.#clusters();
    const inputs = this.#incompleteInputs(clusters);
    return this.#syncedMs === undefined ? inputs : withoutRemoteClusters(inputs, clusters);
  }

  /** Returns one sentence for each running step and each incomplete input. */
  incompleteInputs(): readonly string[] {
    return this.#incompleteInputs(this.#clusters());
  }

  #incompleteInputs(clusters: readonly ClusterDocument[]): readonly string[] {
    const starting = openSteps(this.#startup.status()).flatMap(({ text, waitsFor }) => [text, ...waitsFor]);
    const lists = this.#kubernetes?.blockers() ?? [];
    const incomplete = incompleteClusterTexts(clusters);
    const all = [...starting, ...this.#mesh.folderProblems(), ...incomplete, ...lists];
    if (all.length === 0 && this.#syncedMs === undefined) return ['the agent is starting'];
    return [...new Set(all)];
  }

  #knownInputs(): KnownInputs {
    const keeper = this.#stateKeeper;
    const { followed } = this.#mesh;
    const { clusterName } = this.#options;
    const isLocalComplete = followed !== undefined && this.#isComplete(clusterName, followed);
    return {
      areLocalEntriesKnown:
        (this.#syncedMs !== undefined || (isLocalComplete && this.#manifests.isRead)) &&
        this.#kubernetes?.areLabelsApplied !== false,
      isLocalComplete: this.#manifests.isRead && this.#kubernetes?.servicesComplete !== false,
      areClustersKnown: this.#mesh.areOffersKnown((cluster) => keeper?.restored(cluster) !== undefined),
      isSynced: this.#syncedMs !== undefined,
    };
  }

  kvstore(cluster: string): KvstoreBackend | undefined {
    return this.#mesh.recordedKvstore(cluster);
  }

  /** The recorded Kubernetes; `undefined` if none was loaded. */
  get recordedKubernetes(): RecordedKubernetes | undefined {
    return this.#recordedKubernetes;
  }

  /** Removes a remote cluster and its state from the mesh. Resolves to false if the mesh does not contain it. */
  leave(cluster: string): Promise<boolean> {
    return this.#mesh.leave(cluster);
  }

  /** Adds a remote cluster to the mesh. Resolves to false if no kvstore has that name. */
  join(cluster: string): Promise<boolean> {
    return this.#mesh.join(cluster);
  }

  /** The recorded changes; undefined if none are recorded. */
  get history(): History | undefined {
    return this.#history?.history;
  }

  status(): StatusDocument {
    return agentStatus({
      options: this.#options,
      engines: this,
      followed: this.#mesh.followed,
      rejected: this.#rejections.status(),
      steps: this.#startup.status(),
      syncedMs: this.#syncedMs,
      configProblems: this.#mesh.problems(),
      kubernetes: this.#kubernetes?.status(),
      checkpoint: this.#stateKeeper?.status(),
      datapath: this.datapath?.status(),
      history: this.#history?.status(),
      tape: this.#tape?.status(),
    });
  }

  /** Stops following. The engines keep their state (SEMANTICS 6). A step that does not stop is logged and abandoned. */
  async stop(): Promise<void> {
    this.#staleAtStop ??= this.#staleClusters();
    this.#tape?.tape.note('the agent is stopping');
    await this.#startup.stop();
  }
}

function remoteOf(clusters: readonly ClusterDocument[]): readonly ClusterDocument[] {
  return clusters.filter(({ local }) => !local);
}

/** Returns the sentences that are not about a remote cluster. */
function withoutRemoteClusters(
  inputs: readonly string[],
  clusters: readonly ClusterDocument[],
): readonly string[] {
  const remote = new Set(incompleteClusterTexts(remoteOf(clusters)));
  return inputs.filter((sentence) => !remote.has(sentence));
}
