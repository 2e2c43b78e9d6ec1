import type { Rejection } from '../../../../src/base/rejection.ts';
import { IPCache } from '../../../../src/ipcache/ipcache.ts';
import { KubernetesFeed, type KubernetesFeedOptions } from '../../../../src/k8s/feed/kubernetes-feed.ts';
import { NodeManager } from '../../../../src/nodemanager/node-manager.ts';
import { ServiceCache } from '../../../../src/servicecache/service-cache.ts';
import { ManualClock } from '../../../base/support/manual-clock.ts';
import { FakeCluster } from './fake-cluster.ts';

export const OWN_NODE = 'n1';

/** Options of a world. */
export interface WorldOptions extends Partial<KubernetesFeedOptions> {
  /** The cache to compare. The feed also writes to it unless it has another. */
  readonly cache?: IPCache;
  /** Default: a `KubernetesFeed`. */
  readonly makeFeed?: (options: KubernetesFeedOptions) => KubernetesFeed;
}

/** Engines, a feed, and the cluster that it follows. */
export class FeedWorld {
  readonly clock: ManualClock = new ManualClock();
  readonly cluster: FakeCluster;
  readonly rejected: Rejection[] = [];
  readonly ipcache: IPCache;
  readonly services: ServiceCache = new ServiceCache({ clusterName: 'atlantic' });
  readonly nodes: NodeManager;
  readonly feed: KubernetesFeed;

  constructor(
    { cache = new IPCache(), makeFeed = (made) => new KubernetesFeed(made), ...options }: WorldOptions = {},
    cluster: FakeCluster = new FakeCluster(),
  ) {
    this.cluster = cluster;
    this.ipcache = cache;
    const { clock, ipcache, services } = this;
    const names = { clusterName: 'atlantic', clusterID: 1 };
    this.nodes = new NodeManager({ ipcache, clock, clusterName: 'atlantic', nodeName: OWN_NODE });
    const onReject = (rejection: Rejection): void => void this.rejected.push(rejection);
    const engines = { ipcache, services, nodes: this.nodes, clock };
    this.feed = makeFeed({
      source: cluster,
      nodeName: OWN_NODE,
      ...names,
      ...engines,
      onReject,
      random: () => 0,
      ...options,
    });
  }

  /** Starts, and delivers all lists. */
  async started(): Promise<this> {
    this.feed.start();
    await Promise.resolve(); // discovery has answered
    await Promise.resolve();
    this.cluster.settle();
    return this;
  }

  /** Returns the entry of an IP: `identity pod host key source`. */
  at(ip: string): string | undefined {
    const entry = this.ipcache.get(ip);
    if (entry === undefined) return undefined;
    const pod = entry.k8s === undefined ? '-' : `${entry.k8s.namespace}/${entry.k8s.podName}`;
    return `${entry.identity} ${pod} ${entry.hostIP ?? '-'} ${entry.encryptKey} ${entry.source}`;
  }
}
