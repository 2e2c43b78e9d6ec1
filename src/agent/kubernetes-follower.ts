import { networkInterfaces } from 'node:os';
import type { KubernetesDocument } from '../api/status-document.ts';
import { EitherSignal } from '../base/follow-signal.ts';
import { counted } from '../base/show-value.ts';
import { type Unsubscribe, unsubscribeOnce } from '../base/subscription.ts';
import { isoTime } from '../base/system-clock.ts';
import type { ClusterCondition } from '../client/cluster-text.ts';
import type { LocalCluster } from '../clustermesh/local-cluster.ts';
import { lastProgressAt, waitForSync } from '../clustermesh/sync-deadline.ts';
import type { KindStatus } from '../k8s/feed/followed-kind.ts';
import { HostIPs } from '../k8s/feed/host-ips.ts';
import { HANDOVER_RESOURCES, KubernetesFeed } from '../k8s/feed/kubernetes-feed.ts';
import type { CauseListener } from '../k8s/feed/object-feed.ts';
import { KubernetesClient } from '../k8s/kubernetes-client.ts';
import type { ApiTransport } from '../k8s/rest/api-transport.ts';
import type { WorldLabels } from '../metadata/cidr-labels.ts';
import type { LocalIdentity } from '../metadata/local-identities.ts';
import { MetadataLayer } from '../metadata/metadata-layer.ts';
import type { Labels } from '../model/labels.ts';
import type { Node } from '../nodemanager/node.ts';
import type { NodeHandler } from '../nodemanager/node-handler.ts';
import type { Step } from '../process/start-step.ts';
import type { KubernetesTape } from '../tape/kubernetes-tape.ts';
import type { AgentParts } from './agent.ts';
import type { ReportedClusters } from './cluster-report.ts';
import type { FollowedClusters } from './followed-clusters.ts';
import type { FollowedKinds } from './history-keeper.ts';
import { kubernetesAccess } from './kubernetes-access.ts';
import type { AgentOptions, KubernetesOptions } from './options.ts';

export interface KubernetesFollowerContext extends AgentParts {
  /** See `KubernetesFeedOptions`. */
  readonly onCause: CauseListener;
  /** Receives the id of the local cluster once, and each object before it is applied. */
  readonly tape?: Pick<KubernetesTape, 'begin' | 'tap'> | undefined;
  /** The recorded API server; undefined if a real one is followed. */
  readonly recorded: ApiTransport | undefined;
  /** Returns the followed clusters; undefined before they are followed. */
  readonly followed: () => Pick<FollowedClusters, 'local' | 'localID'> | undefined;
  /** Returns the identities of the checkpoint. */
  readonly restoredIdentities: () => Iterable<LocalIdentity>;
}

/** Maximum time without progress of a first list before the start continues without it (KUBERNETES 55). */
const PROGRESS_TIMEOUT_MS = 180_000;
/**
 * Number of failures of a first list after which the start continues without it. More than one, because one failure may
 * be transient.
 */
const MAX_FAILURES = 3;

/** Name of the API server in the log. */
const API_SERVER = 'Kubernetes';
const INITIAL_LISTS = `initial lists of ${API_SERVER}`;
/** Problems that end within this time are not logged: a restarted server is found by the first retries. */
const GRACE_MS = 10_000;

/** Returns the addresses of this machine, without loopback. */
function machineAddresses(): readonly string[] {
  return Object.values(networkInterfaces()).flatMap((addresses = []) =>
    addresses.filter(({ internal }) => !internal).map(({ address }) => address),
  );
}

function rounded(ms: number | undefined): number | undefined {
  return ms === undefined ? undefined : Math.round(ms);
}

/** Feeds the engines from a Kubernetes API server, alone or beside a kvstore. */
export class KubernetesFollower {
  readonly #options: AgentOptions;
  readonly #kubernetes: KubernetesOptions;
  readonly #context: KubernetesFollowerContext;
  #client: KubernetesClient | undefined;
  #feed: KubernetesFeed | undefined;
  #layer: MetadataLayer | undefined;
  #hostIPs: HostIPs | undefined;
  #subscriptions: Unsubscribe[] = [];

  constructor(options: AgentOptions, kubernetes: KubernetesOptions, context: KubernetesFollowerContext) {
    this.#options = options;
    this.#kubernetes = kubernetes;
    this.#context = context;
  }

  /**
   * Returns the step which starts the feed. The step fails if the kubeconfig is invalid. It does not wait for the API
   * server.
   */
  follow(onChange: () => void): Step {
    return {
      name: 'Kubernetes',
      start: async () => {
        const { clock, random, gate, log, engines, followed, recorded } = this.#context;
        const onFault = (error: unknown): void => log.error({ err: error }, 'the Kubernetes feed failed');
        const access = recorded ?? (await kubernetesAccess(this.#kubernetes, clock));
        this.#client = new KubernetesClient(access, { clock, random, gate, onFault });
        const feed = this.#newFeed(this.#client, onFault);
        this.#feed = feed;
        this.#subscriptions.push(feed.onChange(onChange));
        const clusters = followed();
        if (clusters !== undefined) this.#handOver(feed, clusters.local);
        if (this.#kubernetes.hostIPs) {
          this.#hostIPs = new HostIPs({
            addresses: machineAddresses,
            world: this.#world,
            ipcache: engines.ipcache,
            clock,
            onFault,
          });
          this.#hostIPs.start();
        }
        feed.start();
      },
      stop: async () => {
        for (const unsubscribe of this.#subscriptions.splice(0)) unsubscribe();
        this.#hostIPs?.stop();
        await this.#feed?.stop();
        await this.#client?.close();
      },
    };
  }

  /**
   * Returns the step which waits for all first lists. The deadline of each list restarts whenever the list makes
   * progress.
   */
  sync(timeout: AbortSignal): Step {
    return {
      name: INITIAL_LISTS,
      waitsFor: () => this.blockers(),
      progressAt: () => lastProgressAt(this.#feed),
      start: async ({ signal }) => {
        const { clock } = this.#context;
        using either = new EitherSignal(signal, timeout);
        const deadline = {
          clock,
          deadlineMs: PROGRESS_TIMEOUT_MS,
          failures: MAX_FAILURES,
          signal: either.signal,
        };
        if (this.#feed !== undefined) await waitForSync(this.#feed, deadline);
      },
    };
  }

  /** Returns one sentence for each incomplete list. */
  blockers(): readonly string[] {
    return this.#feed?.blockers() ?? [];
  }

  /** The followed kinds; undefined before the start. */
  get kinds(): FollowedKinds | undefined {
    return this.#feed;
  }

  /** True if all followed services and endpoints have been read. */
  get servicesComplete(): boolean {
    return this.#feed?.servicesComplete === true;
  }

  /** True if all first lists are complete. */
  get synced(): boolean {
    return this.#feed?.synced === true;
  }

  /** Returns the labels of an identity: those of its CiliumIdentity, or of the node-local identity. */
  labelsOf(identity: number): Labels | undefined {
    return this.#feed?.identities.lookupByID(identity) ?? this.#layer?.identities.labelsOf(identity);
  }

  /** Releases the numbers of restored node-local identities without prefixes (AGENT 19). */
  releaseWithheldIdentities(): void {
    this.#layer?.releaseWithheld();
  }

  /** True if the IPCache has the claims of all prefixes whose labels were set so far. */
  get areLabelsApplied(): boolean {
    return this.#layer === undefined || this.#layer.applied >= this.#layer.revision;
  }

  /** Resolves when the IPCache has the claims of all prefixes whose labels were set so far. */
  async waitForLabels(): Promise<void> {
    await this.#layer?.waitForRevision();
  }

  /** Yields all known identities with their labels: those of CiliumIdentities, then node-local ones. */
  *identities(): Generator<readonly [number, Labels], void, void> {
    yield* this.#feed?.identities.entries() ?? [];
    for (const { identity, labels } of this.#layer?.identities.entries() ?? []) yield [identity, labels];
  }

  /** Number of changes of {@link identities}. Never decreases. */
  get identityChanges(): number {
    return (this.#feed?.identities.changes ?? 0) + (this.#layer?.identities.changes ?? 0);
  }

  /**
   * The API server and its initial lists for a {@link ClusterReport}. The server has a problem while changes of a kind
   * that was listed are not received, also if another kind was never listed because it is forbidden.
   */
  get reported(): ReportedClusters {
    const names = [API_SERVER, INITIAL_LISTS];
    return {
      prefix: '',
      graceMs: GRACE_MS,
      names,
      statusOf: (name) =>
        name === API_SERVER
          ? this.#serverCondition()
          : { state: 'ready', ready: this.synced, connected: true, missing: [] },
      onChange: (callback) => {
        const check = (): void => {
          for (const name of names) callback(name);
        };
        return this.#feed?.onChange(check) ?? unsubscribeOnce(() => {});
      },
    };
  }

  #serverCondition(): ClusterCondition {
    const kinds = this.#feed?.status().kinds ?? [];
    const behindMs = ({ resource }: KindStatus): number => resource?.behindMs ?? -1;
    const [worst] = [...kinds].sort((a, b) => behindMs(b) - behindMs(a));
    if (worst === undefined || behindMs(worst) < 0)
      return { state: 'ready', ready: true, connected: true, missing: this.#incompleteKinds() };
    return {
      state: 'failed',
      ready: false,
      connected: kinds.some(({ state }) => state === 'watching'),
      knownAt: isoTime(this.#context.clock.wallTime() - behindMs(worst)),
      missing: [],
      lastFailure:
        worst.state === 'missing' ? `${worst.name} are not served` : worst.resource?.lastFailure?.message,
    };
  }

  #incompleteKinds(): readonly string[] {
    const { names = [] } = this.#feed ?? {};
    return names.filter((name) => {
      const kind = this.#feed?.progressOf(name);
      return kind !== undefined && !kind.synced && !kind.settled;
    });
  }

  status(): KubernetesDocument | undefined {
    if (this.#feed === undefined || this.#client === undefined) return undefined;
    const { synced, kinds, handover } = this.#feed.status();
    return {
      server: this.#client.status().server,
      synced,
      handover,
      kinds: kinds.map(({ name, state, complete, objects, rejected, resource }) => ({
        name,
        state,
        complete,
        objects,
        rejected,
        events: resource?.events ?? 0,
        lastEventAt: isoTime(resource?.lastEventAt),
        resourceVersion: resource?.resourceVersion,
        lists: resource?.lists ?? 0,
        bookmarks: resource?.bookmarks ?? 0,
        lagMs: rounded(resource?.lagMs),
        behindMs: rounded(resource?.behindMs),
        retryInMs: rounded(resource?.retryInMs),
        failures: resource?.failures ?? 0,
        lastFailure: resource?.lastFailure?.message,
        lastFailureAt: isoTime(resource?.lastFailure?.at),
      })),
    };
  }

  #newFeed(source: KubernetesClient, onFault: (error: unknown) => void): KubernetesFeed {
    const { clusterName, nodeName } = this.#options;
    const {
      watch,
      endpoints,
      identities,
      serviceProxyName: proxyName,
      headlessServices: headless,
      nodeAnnotations,
      encryptKey,
    } = this.#kubernetes;
    const { log, clock, random, gate, engines, onReject, onCause, tape } = this.#context;
    const clusterID = this.#context.followed()?.localID ?? 0;
    tape?.begin(clusterID);
    return new KubernetesFeed({
      source,
      clusterName,
      clusterID,
      nodeName,
      clock,
      random,
      gate,
      onReject,
      onCause,
      tap: tape?.tap,
      onFault,
      ipcache: watch.includes('endpoints') ? engines.ipcache : undefined,
      services: watch.includes('services') ? engines.services : undefined,
      nodes: watch.includes('nodes') ? engines.nodes : undefined,
      identities: watch.includes('identities') ? identities : 'none',
      endpoints,
      metadata: this.#newMetadataLayer(),
      policies: watch.includes('policies'),
      world: this.#world,
      nodeAnnotations,
      encryptKey,
      keepRestoredNodes: true,
      onForget: (kind, objects) =>
        log.warn(
          { kind, objects },
          `Kubernetes: removed ${counted(objects, 'object')} of ${kind}, because the API server has not served them for 10 minutes; install the CRD again if it was deleted by mistake`,
        ),
      selection: { proxyName, headless },
    });
  }

  get #world(): WorldLabels {
    return this.#kubernetes.dualStack ? 'dual-stack' : 'single-stack';
  }

  /**
   * Returns a new layer for the labels of prefixes. If a node changes, the layer is refreshed for its addresses,
   * because their identity depends on the node (KUBERNETES 43).
   */
  #newMetadataLayer(): MetadataLayer {
    const { engines, onReject } = this.#context;
    const layer = new MetadataLayer({
      ipcache: engines.ipcache,
      nextTurn: setImmediate,
      world: this.#world,
      onReject,
    });
    layer.identities.withhold(this.#context.restoredIdentities());
    this.#layer = layer;
    const refresh = (node: Node): void => {
      for (const { ip } of node.fields.addresses) layer.refresh(ip);
    };
    const handler: NodeHandler = {
      name: 'labels of prefixes',
      nodeAdd: refresh,
      nodeUpdate: (old, now) => {
        refresh(old);
        refresh(now);
      },
      nodeDelete: refresh,
    };
    this.#subscriptions.push(engines.nodes.subscribe(handler));
    return layer;
  }

  /**
   * Reports to the feed when the local kvstore is complete or lost (KUBERNETES 52). An empty kvstore in memory is not
   * reported, because every agent without an etcd has one.
   */
  #handOver(feed: KubernetesFeed, local: LocalCluster): void {
    const report = (): void => {
      const { connected, ready, resources } = local.status();
      const isEmpty = Object.values(resources).every(({ keys }) => keys === 0);
      if (this.#options.kvstore === 'memory' && isEmpty) return;
      for (const resource of HANDOVER_RESOURCES) {
        if (!connected) feed.reportKvstore(resource, 'lost');
        else if (ready && resources[resource]?.synced === true) feed.reportKvstore(resource, 'complete');
      }
    };
    report();
    this.#subscriptions.push(local.onChange(report));
  }
}
