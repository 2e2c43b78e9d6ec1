import { networkInterfaces } from 'node:os';
import type { KubernetesDocument } from '../api/status-document.ts';
import type { Clock, Random } from '../base/clock.ts';
import type { Rejection } from '../base/rejection.ts';
import type { Unsubscribe } from '../base/subscription.ts';
import type { TurnGate } from '../base/turn-gate.ts';
import type { OwnCluster } from '../clustermesh/own-cluster.ts';
import { waitForClusters } from '../clustermesh/sync-deadline.ts';
import type { Labels } from '../identity/labels.ts';
import type { IPCache } from '../ipcache/ipcache.ts';
import type { ApiTransport } from '../k8s/client/api-transport.ts';
import type { ClusterAccess } from '../k8s/client/cluster-access.ts';
import { HANDOVER_RESOURCES, KubernetesFeed } from '../k8s/feed/kubernetes-feed.ts';
import { OwnAddresses } from '../k8s/feed/own-addresses.ts';
import { KubernetesClient } from '../k8s/kubernetes-client.ts';
import type { WorldLabels } from '../metadata/cidr-labels.ts';
import type { LocalIdentity } from '../metadata/local-identities.ts';
import { MetadataLayer } from '../metadata/metadata-layer.ts';
import type { Node } from '../nodemanager/node.ts';
import type { NodeHandler } from '../nodemanager/node-handler.ts';
import type { NodeManager } from '../nodemanager/node-manager.ts';
import type { ServiceCache } from '../servicecache/service-cache.ts';
import { isoTime } from './agent-status.ts';
import { kubernetesAccess } from './kubernetes-access.ts';
import type { Logger } from './log.ts';
import type { AgentOptions, KubernetesOptions } from './options.ts';
import type { Step } from './start-step.ts';

/** What {@link KubernetesFollower} feeds, and takes from its process. */
export interface KubernetesFollowerContext {
  readonly log: Logger;
  readonly clock: Clock;
  readonly random: Random;
  readonly gate: TurnGate;
  readonly engines: {
    readonly ipcache: IPCache;
    readonly services: ServiceCache;
    readonly nodes: NodeManager;
  };
  readonly onReject: (rejection: Rejection) => void;
  /** What is recorded, where that is what is followed. */
  readonly recorded: () => ApiTransport | undefined;
  /** The own cluster, once it is followed. */
  readonly own: () => OwnCluster | undefined;
  readonly clusterID: () => number;
  /** Identities of before a restart. */
  readonly restoredIdentities: () => Iterable<LocalIdentity>;
}

/** A list of which nothing more arrives for so long is not waited for any longer (K 55). */
const PATIENCE_MS = 180_000;
/** Nor one that has failed so often: a first failure may be a matter of luck. */
const FAILURES = 3;

/** Addresses of this machine, but for those that only it can use. */
function machineAddresses(): readonly string[] {
  return Object.values(networkInterfaces()).flatMap((addresses = []) =>
    addresses.filter(({ internal }) => !internal).map(({ address }) => address),
  );
}

/** Follows a Kubernetes API server into the engines, beside a kvstore or alone. */
export class KubernetesFollower {
  readonly #options: AgentOptions;
  readonly #kubernetes: KubernetesOptions;
  readonly #context: KubernetesFollowerContext;
  #client: KubernetesClient | undefined;
  #feed: KubernetesFeed | undefined;
  #layer: MetadataLayer | undefined;
  #addresses: OwnAddresses | undefined;
  #ends: Unsubscribe[] = [];

  constructor(options: AgentOptions, kubernetes: KubernetesOptions, context: KubernetesFollowerContext) {
    this.#options = options;
    this.#kubernetes = kubernetes;
    this.#context = context;
  }

  /** Begins to follow. What the API server does is no reason to end the start; a kubeconfig that cannot be used is. */
  follow(onChange: () => void): Step {
    return {
      name: 'Kubernetes',
      start: async () => {
        const { clock, random, gate, log, engines, own } = this.#context;
        const onFault = (error: unknown): void =>
          log.error({ err: error }, 'the feed of Kubernetes has failed');
        this.#client = new KubernetesClient(await this.#way(), { clock, random, gate, onFault });
        const feed = this.#newFeed(this.#client, onFault);
        this.#feed = feed;
        this.#ends.push(feed.onChange(onChange));
        const cluster = own();
        if (cluster !== undefined) this.#handOver(feed, cluster);
        if (this.#kubernetes.ownAddresses) {
          const { ipcache } = engines;
          const addresses = { addresses: machineAddresses, world: this.#world };
          this.#addresses = new OwnAddresses({ ...addresses, ipcache, clock, onFault });
          this.#addresses.start();
        }
        feed.start();
      },
      stop: async () => {
        for (const end of this.#ends.splice(0)) end();
        this.#addresses?.stop();
        await this.#feed?.stop();
        await this.#client?.close();
      },
    };
  }

  /** Waits for all first lists, each by its progress. */
  sync(timeout: AbortSignal): Step {
    return {
      name: 'first lists of Kubernetes',
      waitsFor: () => this.blockers(),
      start: async ({ signal }) => {
        const { clock } = this.#context;
        const waiting = AbortSignal.any([signal, timeout]);
        const deadline = { clock, deadlineMs: PATIENCE_MS, failures: FAILURES, signal: waiting };
        if (this.#feed !== undefined) await waitForClusters(this.#feed, deadline);
      },
    };
  }

  /** What is not complete, a sentence each. */
  blockers(): readonly string[] {
    return this.#feed?.blockers() ?? [];
  }

  /** Whether all that is waited for is there. */
  get synced(): boolean {
    return this.#feed?.synced === true;
  }

  /** The labels of an identity that a CiliumIdentity has, or that is of this node alone. */
  labelsOf(identity: number): Labels | undefined {
    return this.#feed?.identities.lookupByID(identity) ?? this.#layer?.identities.labelsOf(identity);
  }

  /** Nothing of before the restart is awaited any more: numbers that were not asked for again are free (AGENT 19). */
  releaseWithheld(): void {
    this.#layer?.releaseWithheld();
  }

  /** Resolves once the labels of prefixes that were said so far are claims. */
  async labelled(): Promise<void> {
    await this.#layer?.waitForRevision();
  }

  /** Identities of CiliumIdentities, and of this node alone. */
  *identities(): Generator<readonly [number, Labels], void, void> {
    yield* this.#feed?.identities.entries() ?? [];
    for (const { identity, labels } of this.#layer?.identities.entries() ?? []) yield [identity, labels];
  }

  /** Goes up with every change of those. */
  get identityChanges(): number {
    return (this.#feed?.identities.changes ?? 0) + (this.#layer?.identities.changes ?? 0);
  }

  status(): KubernetesDocument | undefined {
    if (this.#feed === undefined || this.#client === undefined) return undefined;
    const { synced, kinds, handover } = this.#feed.status();
    return {
      server: this.#client.status().server,
      synced,
      handover,
      kinds: kinds.map(({ name, state, complete, objects, rejected, resource }) => ({
        ...{ name, state, complete, objects, rejected },
        events: resource?.events ?? 0,
        lastEventAt: isoTime(resource?.lastEventAt),
        lists: resource?.lists ?? 0,
        bookmarks: resource?.bookmarks ?? 0,
        lagMs: resource?.lagMs === undefined ? undefined : Math.round(resource.lagMs),
        failures: resource?.failures ?? 0,
        lastFailure: resource?.lastFailure?.message,
      })),
    };
  }

  async #way(): Promise<ClusterAccess | ApiTransport> {
    const { clock, recorded } = this.#context;
    return recorded() ?? (await kubernetesAccess(this.#kubernetes, clock));
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
    const { clock, random, gate, engines, onReject, clusterID } = this.#context;
    return new KubernetesFeed({
      ...{ source, clusterName, clusterID: clusterID(), nodeName, clock, random, gate, onReject, onFault },
      ipcache: watch.includes('endpoints') ? engines.ipcache : undefined,
      services: watch.includes('services') ? engines.services : undefined,
      nodes: watch.includes('nodes') ? engines.nodes : undefined,
      identities: watch.includes('identities') ? identities : 'none',
      endpoints,
      metadata: this.#labelled(),
      policies: watch.includes('policies'),
      world: this.#world,
      nodeAnnotations,
      encryptKey,
      keepRestoredNodes: true,
      selection: { proxyName, headless },
    });
  }

  get #world(): WorldLabels {
    return this.#kubernetes.dualStack ? 'dual-stack' : 'single-stack';
  }

  /** Labels of prefixes: looked at again where a node has come or gone, as its address is another one then (K 43). */
  #labelled(): MetadataLayer {
    const { engines, onReject } = this.#context;
    const layer = new MetadataLayer({
      ...{ ipcache: engines.ipcache, nextTurn: setImmediate, world: this.#world, onReject },
    });
    layer.identities.withhold(this.#context.restoredIdentities());
    this.#layer = layer;
    const look = (node: Node): void => {
      for (const { ip } of node.fields.addresses) layer.refresh(ip);
    };
    const handler: NodeHandler = {
      name: 'labels of prefixes',
      nodeAdd: look,
      nodeUpdate: (old, now) => {
        look(old);
        look(now);
      },
      nodeDelete: look,
    };
    this.#ends.push(engines.nodes.subscribe(handler));
    return layer;
  }

  /** The kvstore is complete, or lost, as the own cluster sees it (K 52). One in this process that is empty says nothing. */
  #handOver(feed: KubernetesFeed, own: OwnCluster): void {
    const look = (): void => {
      const { connected, ready, resources } = own.status();
      const isEmpty = Object.values(resources).every(({ keys }) => keys === 0);
      if (this.#options.kvstore === 'memory' && isEmpty) return;
      for (const resource of HANDOVER_RESOURCES) {
        if (!connected) feed.kvstore(resource, 'lost');
        else if (ready && resources[resource]?.synced === true) feed.kvstore(resource, 'complete');
      }
    };
    look();
    this.#ends.push(own.onChange(look));
  }
}
