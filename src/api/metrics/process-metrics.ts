import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client';
import type { Description } from './description.ts';

/** From a tenth of a millisecond to a second: a look-up, and a page of a list under load. */
const REQUEST_SECONDS = [0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1];

/** Gauges that are called counters, and say what the sum of another says. */
const MISNAMED = ['resources', 'handles', 'requests'].map((what) => `nodejs_active_${what}_total`);

/** What is measured of a process, in the text form of Prometheus, and its requests. */
export class ProcessMetrics {
  readonly #registry = new Registry();
  readonly #requests: Histogram;

  constructor(described: readonly Description[]) {
    collectDefaultMetrics({ register: this.#registry });
    for (const name of MISNAMED) this.#registry.removeSingleMetric(name);
    for (const description of described) register(this.#registry, description);
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

  /** The media type of what {@link ProcessMetrics.text} gives. */
  get contentType(): string {
    return this.#registry.contentType;
  }

  /** All of it as it is now. */
  text(): Promise<string> {
    return this.#registry.metrics();
  }
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
