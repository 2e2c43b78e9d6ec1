import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client';
import type { ChangeFeed } from './change-feed.ts';
import { type DelayHistogram, histogramLines } from './delay-histogram.ts';
import type { ClusterFigures, ReadModel, WatchFigures } from './read-model.ts';

/** One value of a metric, with its labels. */
interface Sample {
  readonly value: number;
  readonly labels?: Readonly<Record<string, string>>;
}

/** A metric that is read from the agent when it is scraped. */
interface Description {
  readonly name: string;
  readonly help: string;
  readonly type: 'gauge' | 'counter';
  readonly labels?: readonly string[];
  readonly samples: () => Iterable<Sample>;
}

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

/** What the metrics are read from: each status is asked for once a scrape, however many of them are made of it. */
type Readings = {
  readonly [Engine in 'ipcache' | 'services' | 'nodes']: Pick<ReadModel[Engine], 'status'>;
} & Pick<ReadModel, 'status' | 'rejections'> & { readonly figures: () => readonly ClusterFigures[] };

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

function* byLabel(label: string, counts: Readonly<Record<string, number | undefined>>): Generator<Sample> {
  for (const [name, value = 0] of Object.entries(counts)) yield { value, labels: { [label]: name } };
}

function one(value: number): readonly Sample[] {
  return [{ value }];
}

function descriptions(model: Readings, feed: ChangeFeed): readonly Description[] {
  return [
    ...ipcacheDescriptions(model),
    ...engineDescriptions(model),
    ...clusterDescriptions(model),
    ...kvstoreDescriptions(model),
    ...syncDescriptions(model),
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

function ipcacheDescriptions({ ipcache }: Readings): readonly Description[] {
  return [
    {
      name: 'dpcache_ipcache_entries',
      help: 'Keys of the IPCache by family, those that are hidden by an endpoint included.',
      type: 'gauge',
      labels: ['family', 'form'],
      *samples() {
        const { ipv4, ipv6 } = ipcache.status();
        for (const [family, { endpoints, cidrs }] of [
          ['ipv4', ipv4],
          ['ipv6', ipv6],
        ] as const) {
          yield { value: endpoints, labels: { family, form: 'endpoint' } };
          yield { value: Object.values(cidrs).reduce((a, b) => a + b, 0), labels: { family, form: 'cidr' } };
        }
      },
    },
    {
      name: 'dpcache_ipcache_entries_by_source',
      help: 'Effective entries of the IPCache by the source of their claim.',
      type: 'gauge',
      labels: ['source'],
      samples: () => byLabel('source', ipcache.status().entriesBySource),
    },
    {
      name: 'dpcache_ipcache_overruled_claims',
      help: 'Claims that are kept while a stronger one is effective.',
      type: 'gauge',
      samples: () => one(ipcache.status().overruledClaims),
    },
    {
      name: 'dpcache_ipcache_waiting_keys',
      help: 'Keys whose claims wait for room.',
      type: 'gauge',
      samples: () => one(ipcache.status().waiting),
    },
    {
      name: 'dpcache_ipcache_bytes',
      help: 'Memory of tables and rows.',
      type: 'gauge',
      samples: () => one(ipcache.status().bytes),
    },
    {
      name: 'dpcache_ipcache_outcomes_total',
      help: 'What became of writes.',
      type: 'counter',
      labels: ['outcome'],
      samples: () => byLabel('outcome', ipcache.status().outcomes),
    },
    {
      name: 'dpcache_ipcache_listeners',
      help: 'Listeners of the IPCache.',
      type: 'gauge',
      samples: () => one(ipcache.status().listeners),
    },
  ];
}

function engineDescriptions({ ipcache, services, nodes }: Readings): readonly Description[] {
  return [
    {
      name: 'dpcache_listener_faults_total',
      help: 'Calls of listeners that have thrown.',
      type: 'counter',
      labels: ['engine'],
      samples: () => [
        { value: ipcache.status().listenerFaults, labels: { engine: 'ipcache' } },
        { value: services.status().listenerFaults, labels: { engine: 'servicecache' } },
        { value: nodes.status().callbackFaults, labels: { engine: 'nodemanager' } },
      ],
    },
    {
      name: 'dpcache_services',
      help: 'Services by state: announced, or known only from endpoints or other clusters.',
      type: 'gauge',
      labels: ['state'],
      samples: () => {
        const { announced, unknown } = services.status();
        return byLabel('state', { announced, unknown });
      },
    },
    {
      name: 'dpcache_service_backends',
      help: 'Effective backends of all services.',
      type: 'gauge',
      samples: () => one(services.status().backends),
    },
    {
      name: 'dpcache_nodes',
      help: 'Nodes by source.',
      type: 'gauge',
      labels: ['source'],
      samples: () => byLabel('source', nodes.status().nodesBySource),
    },
    {
      name: 'dpcache_node_outcomes_total',
      help: 'What became of writes to the node manager.',
      type: 'counter',
      labels: ['outcome'],
      samples: () => byLabel('outcome', nodes.status().outcomes),
    },
    {
      name: 'dpcache_node_handler_pending',
      help: 'Nodes of which a handler is not up to date.',
      type: 'gauge',
      labels: ['handler'],
      samples: () =>
        nodes
          .status()
          .handlers.map(({ name = '', pending }) => ({ value: pending, labels: { handler: name } })),
    },
    {
      name: 'dpcache_node_handler_faults_total',
      help: 'Calls of a node handler that have failed.',
      type: 'counter',
      labels: ['handler'],
      samples: () =>
        nodes
          .status()
          .handlers.map(({ name = '', faults }) => ({ value: faults, labels: { handler: name } })),
    },
  ];
}

function kvstoreDescriptions({ figures }: Pick<Readings, 'figures'>): readonly Description[] {
  const sums = (read: (watch: WatchFigures) => number): readonly Sample[] =>
    figures().map(({ name, watches }) => ({
      value: watches.reduce((sum, watch) => sum + read(watch), 0),
      labels: { cluster: name },
    }));
  const labels = ['cluster'];
  return [
    {
      ...{ name: 'dpcache_kvstore_queue_bytes', type: 'gauge', labels },
      help: 'What has arrived from a kvstore and is not in the engines yet.',
      samples: () => sums(({ queuedBytes }) => queuedBytes),
    },
    {
      ...{ name: 'dpcache_kvstore_listings_total', type: 'counter', labels },
      help: 'Lists that were begun, of all resources.',
      samples: () => sums(({ listings }) => listings),
    },
    {
      ...{ name: 'dpcache_kvstore_streams_total', type: 'counter', labels },
      help: 'Streams that were followed, of all resources: what is more than one each are reconnects.',
      samples: () => sums(({ resumptions }) => resumptions),
    },
    {
      ...{ name: 'dpcache_kvstore_watch_failures_total', type: 'counter', labels },
      help: 'Failures of watches, each of which was tried again.',
      samples: () => sums(({ failures }) => failures),
    },
    {
      ...{ name: 'dpcache_kvstore_requests_total', type: 'counter', labels: ['cluster', 'outcome'] },
      help: 'Requests to a kvstore, by outcome: ok, or the code of the error.',
      samples: () =>
        figures().flatMap(({ name, kvstore }) =>
          Object.entries(kvstore?.requests ?? {}).map(([outcome, value = 0]) => ({
            value,
            labels: { cluster: name, outcome },
          })),
        ),
    },
    {
      ...{ name: 'dpcache_kvstore_leases', type: 'gauge', labels },
      help: 'Leases that are held in a kvstore.',
      samples: () => known(figures(), ({ kvstore }) => kvstore?.leases),
    },
    {
      ...{ name: 'dpcache_kvstore_leases_lost_total', type: 'counter', labels },
      help: 'Leases in a kvstore that were lost while keys were bound to them.',
      samples: () => known(figures(), ({ kvstore }) => kvstore?.leasesLost),
    },
  ];
}

function syncDescriptions({ figures }: Pick<Readings, 'figures'>): readonly Description[] {
  const inSeconds = (ms: number | undefined): number | undefined => (ms === undefined ? ms : ms / 1000);
  const labels = ['cluster'];
  return [
    {
      ...{ name: 'dpcache_cluster_first_sync_duration_seconds', type: 'gauge', labels },
      help: 'How long it took until everything of a cluster was complete for the first time.',
      samples: () => known(figures(), ({ firstSyncMs }) => inSeconds(firstSyncMs)),
    },
    {
      ...{ name: 'dpcache_cluster_last_sync_duration_seconds', type: 'gauge', labels },
      help: 'How long it took until everything of a cluster was complete when it was last followed anew.',
      samples: () => known(figures(), ({ lastSyncMs }) => inSeconds(lastSyncMs)),
    },
  ];
}

/** A sample of each cluster of which there is a value. */
function known(
  clusters: readonly ClusterFigures[],
  read: (cluster: ClusterFigures) => number | undefined,
): readonly Sample[] {
  return clusters.flatMap((cluster) => {
    const value = read(cluster);
    return value === undefined ? [] : { value, labels: { cluster: cluster.name } };
  });
}

function clusterDescriptions(model: Readings): readonly Description[] {
  const clusters = function* (
    value: (cluster: ReturnType<ReadModel['status']>['clusters'][number]) => number,
  ) {
    for (const cluster of model.status().clusters)
      yield { value: value(cluster), labels: { cluster: cluster.name } };
  };
  return [
    {
      name: 'dpcache_cluster_ready',
      help: 'Whether what is known of a cluster is complete and follows its kvstore.',
      type: 'gauge',
      labels: ['cluster'],
      samples: () => clusters(({ ready }) => Number(ready)),
    },
    {
      name: 'dpcache_cluster_connected',
      help: 'Whether the kvstore of a cluster answers.',
      type: 'gauge',
      labels: ['cluster'],
      samples: () => clusters(({ connected }) => Number(connected)),
    },
    {
      name: 'dpcache_cluster_stale_since_timestamp_seconds',
      help: 'While stale state of a cluster is served: of when it is.',
      type: 'gauge',
      labels: ['cluster'],
      *samples() {
        for (const { name, knownAt } of model.status().clusters)
          if (knownAt !== undefined) yield { value: Date.parse(knownAt) / 1000, labels: { cluster: name } };
      },
    },
    {
      name: 'dpcache_cluster_failures_total',
      help: 'Failures of requests to the kvstore of a cluster.',
      type: 'counter',
      labels: ['cluster'],
      samples: () => clusters(({ failures }) => failures),
    },
    {
      name: 'dpcache_cluster_rejections_total',
      help: 'Values of a cluster that were rejected.',
      type: 'counter',
      labels: ['cluster'],
      samples: () => clusters(({ rejected }) => rejected),
    },
    {
      name: 'dpcache_cluster_keys',
      help: 'Keys that are held of a cluster, by resource.',
      type: 'gauge',
      labels: ['cluster', 'resource'],
      *samples() {
        for (const { name, keys } of model.status().clusters)
          for (const [resource, value] of Object.entries(keys))
            yield { value, labels: { cluster: name, resource } };
      },
    },
    {
      name: 'dpcache_sync_duration_seconds',
      help: 'How long the first sync took.',
      type: 'gauge',
      samples: () => {
        const { syncedMs } = model.status();
        return syncedMs === undefined ? [] : one(syncedMs / 1000);
      },
    },
  ];
}
