import type { TurnGate } from '../../base/turn-gate.ts';
import type { ChangeFeed } from '../change-feed.ts';
import type { ConflictsDocument } from '../conflicts.ts';
import type { HealthProblem } from '../problems.ts';
import type { ReadModel } from '../read-model.ts';
import type { StatusDocument } from '../status-document.ts';
import { clusterMetrics } from './cluster-metrics.ts';
import { datapathMetrics } from './datapath-metrics.ts';
import { type DelayHistogram, histogramLines } from './delay-histogram.ts';
import { engineMetrics } from './engine-metrics.ts';
import { historyMetrics, tapeMetrics } from './history-metrics.ts';
import { kubernetesMetrics } from './kubernetes-metrics.ts';
import { kvstoreMetrics } from './kvstore-metrics.ts';
import {
  countsMetric,
  type MetricSources,
  problemsMetric,
  rejectionsMetric,
  statusMetrics,
} from './metric.ts';
import { ProcessMetrics } from './process-metrics.ts';
import { Scrape } from './scrape.ts';

/**
 * Metrics of an agent in the Prometheus text format. Names end with their unit, counters with `_total`. Labels are
 * clusters, sources, reasons and similar, never a prefix, a pod or a service. So the number of series does not grow
 * with the number of entries. Metrics of the engines are computed only when they are scraped.
 */
export class AgentMetrics extends ProcessMetrics {
  /** Returns the number of connected monitors. The routes of the API replace this function, and those below. */
  monitors: () => number = () => 0;
  /** Returns the number of conflicts between clusters by kind; undefined if they have not been counted. */
  conflicts: () => ConflictsDocument['counts'] | undefined = () => undefined;
  /** Returns the current problems for a status; undefined if there is no API. */
  problems: (status: StatusDocument) => readonly HealthProblem[] | undefined = () => undefined;
  readonly #sources: MetricSources;

  constructor(model: ReadModel, feed: ChangeFeed) {
    const scrape = new Scrape();
    const sources = sourcesOf(model, scrape);
    super(
      [
        engineMetrics(sources),
        ...clusterMetrics(sources),
        kvstoreMetrics(sources),
        kubernetesMetrics(sources),
        datapathMetrics(sources),
        historyMetrics(sources),
        tapeMetrics(sources),
        {
          dpcache_rejections_total: rejectionsMetric(() => sources.rejections()),
          dpcache_changes_total: statusMetrics(() => feed).counter(
            'Changes of prefixes, services and nodes.',
            'revision',
          ),
          dpcache_api_monitors: statusMetrics<AgentMetrics>(() => this).gauge(
            'Connected clients of `/v1/monitor`.',
            ({ monitors }) => monitors(),
          ),
          dpcache_problems: problemsMetric(() => this.problems(sources.status())),
          dpcache_conflicts: countsMetric(
            'gauge',
            'Conflicts between clusters: overlapping CIDRs of pods, prefixes of several clusters, duplicate ids.',
            'kind',
            () => this.conflicts(),
          ),
        },
      ],
      scrape,
    );
    this.#sources = sources;
  }

  /** Returns the metrics. Reads the status of each engine once, which is a pass over services and nodes. */
  override async text(gate: TurnGate): Promise<string> {
    let metrics = await super.text(gate);
    for (const histogram of histograms(this.#sources)) {
      await gate.pass(gate.slice);
      metrics += `\n${[...histogramLines(histogram)].join('\n')}`;
    }
    return `${metrics}\n`;
  }
}

function sourcesOf(model: ReadModel, scrape: Scrape): MetricSources {
  return {
    ipcache: { status: scrape.once(() => model.ipcache.status()) },
    services: { status: scrape.once(() => model.services.status()) },
    nodes: { status: scrape.once(() => model.nodes.status()) },
    status: scrape.once(() => model.status()),
    rejections: () => model.rejections(),
    clusters: scrape.once(() => [...model.clusterMetrics()]),
  };
}

function histograms({ clusters, nodes }: MetricSources): readonly DelayHistogram[] {
  const propagation = clusters().flatMap(({ name, watches }) =>
    watches.map(({ delays }) => [name, delays] as const),
  );
  return [
    {
      name: 'dpcache_kvstore_propagation_seconds',
      help: 'Time from the arrival of a kvstore change until the engines have applied it.',
      label: 'cluster',
      delays: propagation,
    },
    {
      name: 'dpcache_node_handler_duration_seconds',
      help: 'Duration of node handler calls, including failed ones.',
      label: 'handler',
      delays: nodes.status().handlers.map(({ name = '', durations }) => [name, durations] as const),
    },
  ];
}
