import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client';
import type { TurnGate } from '../../base/turn-gate.ts';
import type { Metric, Metrics } from './metric.ts';
import type { Scrape } from './scrape.ts';

/** Histogram bounds, from a lookup (0.1 ms) to a page of a list under load (1 s). */
const REQUEST_SECONDS = [0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1];

/** Default gauges that are removed, because they are named like counters, and are only the sums of other gauges. */
const MISNAMED = ['resources', 'handles', 'requests'].map((kind) => `nodejs_active_${kind}_total`);

/**
 * Reasons for refusing a request or a connection. `unauthorized`: no valid token. `forbidden`: an unknown `Host`, or a
 * foreign `Origin`. `handshake`: a failed or incomplete TLS handshake, for example without a valid client certificate.
 * `limit`: closed because of the limits of connections; during a handshake, the connection is also counted as
 * `handshake`.
 */
const REFUSAL_REASONS = ['unauthorized', 'forbidden', 'handshake', 'limit'] as const;

export type RefusalReason = (typeof REFUSAL_REASONS)[number];

/** The default metrics, created with the first server of this process. */
let defaultMetrics: Registry | undefined;

/**
 * Returns a registry with the default metrics of prom-client. All servers of a process share these metrics, because the
 * timer and the observer of garbage collections that measure them run until the process ends.
 */
function registryWithDefaults(): Registry {
  if (defaultMetrics === undefined) {
    defaultMetrics = new Registry();
    collectDefaultMetrics({ register: defaultMetrics });
    for (const name of MISNAMED) defaultMetrics.removeSingleMetric(name);
  }
  return Registry.merge([defaultMetrics]);
}

/** Metrics of a process and its API requests, in the Prometheus text format. */
export class ProcessMetrics {
  readonly #registry = registryWithDefaults();
  readonly #requests: Histogram;
  readonly #credentialFailures: Counter;
  readonly #refused: Counter;
  readonly #scrape: Scrape;

  /** Each {@link ProcessMetrics.text} begins a new `scrape`. Throws if two tables have a metric of the same name. */
  constructor(tables: readonly Metrics[], scrape: Scrape) {
    this.#scrape = scrape;
    for (const metrics of tables)
      for (const [name, metric] of Object.entries(metrics)) register(this.#registry, name, metric);
    this.#requests = new Histogram({
      name: 'dpcache_api_request_duration_seconds',
      help: 'Duration of API requests until the response starts.',
      labelNames: ['route', 'code'],
      buckets: REQUEST_SECONDS,
      registers: [this.#registry],
    });
    this.#credentialFailures = new Counter({
      name: 'dpcache_api_credential_failures_total',
      help: 'Failed reads of the files of --listen-…; the previous contents stay in use.',
      registers: [this.#registry],
    });
    this.#refused = new Counter({
      name: 'dpcache_api_refused_total',
      help: 'Requests and connections that were refused before a route received them.',
      labelNames: ['reason'],
      registers: [this.#registry],
    });
    for (const reason of REFUSAL_REASONS) this.#refused.inc({ reason }, 0);
  }

  /** Counts a request. `route` is the path pattern, not the path. */
  countRequest(route: string, code: number, seconds: number): void {
    this.#requests.observe({ route, code: String(code) }, seconds);
  }

  /** Counts a failed reload of the API's token or certificates. */
  countCredentialFailure(): void {
    this.#credentialFailures.inc();
  }

  /** Counts a refused request or connection. */
  countRefused(reason: RefusalReason): void {
    this.#refused.inc({ reason });
  }

  /** Media type of {@link ProcessMetrics.text}. */
  get contentType(): string {
    return this.#registry.contentType;
  }

  /**
   * Returns the metrics. Each one is read when the gate admits it, because those of 255 clusters have 9,000 lines,
   * which take 0.1 s.
   */
  async text(gate: TurnGate): Promise<string> {
    this.#scrape.begin();
    const texts: string[] = [];
    for (const { name } of this.#registry.getMetricsAsArray()) {
      await gate.pass(gate.slice);
      texts.push(await this.#registry.getSingleMetricAsString(name));
    }
    return `${texts.join('\n\n')}\n`;
  }
}

function register(registry: Registry, name: string, { help, type, labels = [], samples }: Metric): void {
  const configuration = {
    name,
    help,
    labelNames: [...labels],
    registers: [registry],
    collect(this: Gauge | Counter): void {
      this.reset();
      if (labels.length === 0) this.remove(); // `reset` sets a metric without labels to 0
      for (const { labels: sampleLabels = {}, value } of samples()) this.inc(sampleLabels, value);
    },
  };
  if (type === 'gauge') new Gauge(configuration);
  else new Counter(configuration);
}
