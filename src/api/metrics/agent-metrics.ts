import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client';
import type { ChangeFeed } from '../change-feed.ts';
import { type DelayHistogram, histogramLines } from '../delay-histogram.ts';
import type { ReadModel } from '../read-model.ts';
import { clusterDescriptions, syncDescriptions } from './cluster-metrics.ts';
import { datapathDescriptions } from './datapath-metrics.ts';
import { byLabel, type Description, one, type Readings } from './description.ts';
import { engineDescriptions, ipcacheDescriptions } from './engine-metrics.ts';
import { kubernetesDescriptions } from './kubernetes-metrics.ts';
import { kvstoreDescriptions } from './kvstore-metrics.ts';

/** From a tenth of a millisecond to a second: a look-up, and a page of a list under load. */
const REQUEST_SECONDS = [0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1];

/** Gauges that are called counters, and say what the sum of another says. */
const MISNAMED = ['resources', 'handles', 'requests'].map((what) => `nodejs_active_${what}_total`);

/**
 * Everything that is measured of an agent, in the text form of Prometheus. Names end in their unit, counters in `_total`.
 * Labels are clusters, sources, reasons and the like, never a prefix, a pod or a service: how many series there are does not
 * depend on how much is known. Costs nothing but two additions a request until it is asked for.
 */
export class AgentMetrics {
  readonly #registry = new Registry();
  readonly #requests: Histogram;
  /** Monitors that are connected. */
  monitors = 0;
  #scrape = 0;
  readonly #readings: Readings;

  constructor(model: ReadModel, feed: ChangeFeed) {
    collectDefaultMetrics({ register: this.#registry });
    for (const name of MISNAMED) this.#registry.removeSingleMetric(name);
    this.#readings = onceAScrape(model, () => this.#scrape);
    for (const description of descriptions(this.#readings, feed)) register(this.#registry, description);
    register(this.#registry, {
      name: 'dpcache_api_monitors',
      help: 'Monitors that are connected.',
      type: 'gauge',
      samples: () => [{ value: this.monitors }],
    });
    this.#requests = new Histogram({
      name: 'dpcache_api_request_duration_seconds',
      help: 'Requests of the API until their answer begins.',
      labelNames: ['route', 'code'],
      buckets: REQUEST_SECONDS,
      registers: [this.#registry],
    });
  }

  /** Counts a request; `route` is the pattern of its path, not the path. */
  request(route: string, code: number, seconds: number): void {
    this.#requests.observe({ route, code: String(code) }, seconds);
  }

  /** The media type of what {@link AgentMetrics.text} gives. */
  get contentType(): string {
    return this.#registry.contentType;
  }

  /** All of it as it is now. Costs a status of each engine: a pass over services and nodes. */
  async text(): Promise<string> {
    this.#scrape++;
    const metrics = await this.#registry.metrics();
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

function register(registry: Registry, { name, help, type, labels = [], samples }: Description): void {
  const options = { name, help, labelNames: [...labels], registers: [registry] };
  if (type === 'gauge') {
    new Gauge({
      ...options,
      collect() {
        this.reset();
        for (const { labels: of = {}, value } of samples()) this.set(of, value);
      },
    });
  } else {
    new Counter({
      ...options,
      collect() {
        this.reset();
        for (const { labels: of = {}, value } of samples()) this.inc(of, value);
      },
    });
  }
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
