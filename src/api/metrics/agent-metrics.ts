import type { ChangeFeed } from '../change-feed.ts';
import { type DelayHistogram, histogramLines } from '../delay-histogram.ts';
import type { ReadModel } from '../read-model.ts';
import { clusterDescriptions, syncDescriptions } from './cluster-metrics.ts';
import { datapathDescriptions } from './datapath-metrics.ts';
import { byLabel, type Description, one, type Readings } from './description.ts';
import { engineDescriptions, ipcacheDescriptions } from './engine-metrics.ts';
import { kubernetesDescriptions } from './kubernetes-metrics.ts';
import { kvstoreDescriptions } from './kvstore-metrics.ts';
import { ProcessMetrics } from './process-metrics.ts';

/**
 * Everything that is measured of an agent, in the text form of Prometheus. Names end in their unit, counters in `_total`.
 * Labels are clusters, sources, reasons and the like, never a prefix, a pod or a service: how many series there are does not
 * depend on how much is known. Costs nothing but two additions a request until it is asked for.
 */
export class AgentMetrics extends ProcessMetrics {
  /** Monitors that are connected. */
  monitors = 0;
  readonly #scrapes: { count: number };
  readonly #readings: Readings;

  constructor(model: ReadModel, feed: ChangeFeed) {
    const scrapes = { count: 0 };
    const readings = onceAScrape(model, () => scrapes.count);
    super([
      ...descriptions(readings, feed),
      {
        name: 'dpcache_api_monitors',
        help: 'Monitors that are connected.',
        type: 'gauge',
        samples: () => [{ value: this.monitors }],
      },
    ]);
    this.#scrapes = scrapes;
    this.#readings = readings;
  }

  /** Costs a status of each engine: a pass over services and nodes. */
  override async text(): Promise<string> {
    this.#scrapes.count++;
    const metrics = await super.text();
    const lines = histograms(this.#readings).flatMap((histogram) => [...histogramLines(histogram)]);
    return `${metrics}\n${lines.join('\n')}\n`;
  }
}

function onceAScrape(model: ReadModel, scrape: () => number): Readings {
  const once = <T>(read: () => T): (() => T) => {
    let last: { readonly of: number; readonly value: T } | undefined;
    return () => {
      if (last?.of !== scrape()) last = { of: scrape(), value: read() };
      return last.value;
    };
  };
  return {
    ipcache: { status: once(() => model.ipcache.status()) },
    services: { status: once(() => model.services.status()) },
    nodes: { status: once(() => model.nodes.status()) },
    status: once(() => model.status()),
    rejections: () => model.rejections(),
    figures: once(() => [...model.figures()]),
  };
}

function histograms({ figures, nodes }: Readings): readonly DelayHistogram[] {
  const propagation = figures().flatMap(({ name, watches }) =>
    watches.map(({ delays }) => [name, delays] as const),
  );
  return [
    {
      name: 'dpcache_kvstore_propagation_seconds',
      help: 'From the arrival of a change of a kvstore to the engines having it.',
      label: 'cluster',
      delays: propagation,
    },
    {
      name: 'dpcache_node_handler_duration_seconds',
      help: 'Calls of a node handler until they have ended, those that failed included.',
      label: 'handler',
      delays: nodes.status().handlers.map(({ name = '', durations }) => [name, durations] as const),
    },
  ];
}

function descriptions(model: Readings, feed: ChangeFeed): readonly Description[] {
  return [
    ...ipcacheDescriptions(model),
    ...engineDescriptions(model),
    ...clusterDescriptions(model),
    ...kvstoreDescriptions(model),
    ...syncDescriptions(model),
    ...kubernetesDescriptions(model),
    ...datapathDescriptions(model),
    {
      name: 'dpcache_rejections_total',
      help: 'Inputs that were rejected, by reason.',
      type: 'counter',
      labels: ['reason'],
      samples: () => byLabel('reason', model.rejections().byReason),
    },
    {
      name: 'dpcache_changes_total',
      help: 'Changes of prefixes, services and nodes.',
      type: 'counter',
      samples: () => one(feed.revision),
    },
  ];
}
