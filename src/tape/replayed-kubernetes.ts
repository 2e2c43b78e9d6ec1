import type { Clock } from '../base/clock.ts';
import type { Rejection } from '../base/rejection.ts';
import { KubernetesFeed, type KubernetesFeedOptions } from '../k8s/feed/kubernetes-feed.ts';
import { NO_SOURCE, type ResourceEvent, type ResourceSink } from '../k8s/resource.ts';
import type { TapeLine } from './tape-line.ts';
import type { TapedKubernetes, TapeSettings } from './tape-settings.ts';

/** Where the objects of a tape are applied. */
export interface ReplayedKubernetesContext {
  readonly clock: Clock;
  readonly engines: Pick<KubernetesFeedOptions, 'ipcache' | 'services' | 'nodes'>;
  readonly onReject: (rejection: Rejection) => void;
}

/** Applies a tape's Kubernetes lines with a `KubernetesFeed`. */
export class ReplayedKubernetes {
  readonly #feed: KubernetesFeed;
  readonly #sinks = new Map<string, ResourceSink>();
  #batch: ResourceEvent[] = [];

  constructor(
    { clusterName, nodeName }: TapeSettings,
    kubernetes: TapedKubernetes,
    clusterID: number,
    context: ReplayedKubernetesContext,
  ) {
    const { watch, endpoints, identities, serviceProxyName, headlessServices, nodeAnnotations, encryptKey } =
      kubernetes;
    const { clock, engines, onReject } = context;
    this.#feed = new KubernetesFeed({
      source: NO_SOURCE,
      clusterName,
      clusterID,
      nodeName,
      clock,
      onReject,
      endpoints,
      nodeAnnotations,
      encryptKey,
      selection: { proxyName: serviceProxyName, headless: headlessServices },
      ipcache: watch.includes('endpoints') ? engines.ipcache : undefined,
      services: watch.includes('services') ? engines.services : undefined,
      nodes: watch.includes('nodes') ? engines.nodes : undefined,
      identities: watch.includes('identities') ? identities : 'none',
      keepRestoredNodes: true,
    });
  }

  /** Applies a line. A batch is applied with its last line. */
  apply(line: Extract<TapeLine, { readonly kind: string }>): void {
    const feed = this.#feed.feedOf(line.kind);
    if (feed === undefined) return; // a kind that is not replayed: policies
    if (line.ev !== 'kind') {
      this.#batch.push({ type: line.ev === 'object' ? 'put' : 'delete', object: line.object });
      if (line.more === 1) return;
      const batch = this.#batch;
      this.#batch = [];
      this.#sinkOf(line.kind).apply(batch);
    } else if (line.do === 'start') this.#sinks.set(line.kind, feed.start());
    else if (line.do === 'received') feed.received();
    else this.#sinkOf(line.kind).onListed();
  }

  close(): Promise<void> {
    return this.#feed.stop();
  }

  /** Returns the sink of a kind. Starts its feed if the tape has no line with its start. */
  #sinkOf(kind: string): ResourceSink {
    let sink = this.#sinks.get(kind);
    if (sink === undefined) {
      sink = this.#feed.feedOf(kind)?.start() ?? { apply: () => {}, onListed: () => {} };
      this.#sinks.set(kind, sink);
    }
    return sink;
  }
}
