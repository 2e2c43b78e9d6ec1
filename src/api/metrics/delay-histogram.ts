import { LATENCY_BOUNDS_MS, type LatencyStatus } from '../../base/latency-histogram.ts';

/** A histogram of delays counted elsewhere, because prom-client has no histogram that accepts finished counts. */
export interface DelayHistogram {
  readonly name: string;
  readonly help: string;
  readonly label: string;
  /** Delays by label value. Delays with the same value are summed. */
  readonly delays: Iterable<readonly [string, LatencyStatus]>;
}

/** Yields the lines of a histogram in the Prometheus text format. */
export function* histogramLines({
  name,
  help,
  label,
  delays,
}: DelayHistogram): Generator<string, void, void> {
  yield `# HELP ${name} ${help}`;
  yield `# TYPE ${name} histogram`;
  for (const [value, { counts, sumMs }] of summed(delays)) {
    const labels = `${label}=${quoted(value)}`;
    let count = 0;
    for (const [at, more] of counts.entries()) {
      count += more;
      const bound = LATENCY_BOUNDS_MS[at];
      yield `${name}_bucket{${labels},le="${bound === undefined ? '+Inf' : bound / 1000}"} ${count}`;
    }
    yield `${name}_sum{${labels}} ${sumMs / 1000}`;
    yield `${name}_count{${labels}} ${count}`;
  }
}

function summed(delays: DelayHistogram['delays']): ReadonlyMap<string, LatencyStatus> {
  const sums = new Map<string, LatencyStatus>();
  for (const [value, more] of delays) {
    const { counts, sumMs } = sums.get(value) ?? { counts: [], sumMs: 0 };
    sums.set(value, {
      counts: more.counts.map((count, at) => count + (counts[at] ?? 0)),
      sumMs: sumMs + more.sumMs,
    });
  }
  return sums;
}

/** Returns a quoted label value. The Prometheus text format escapes `\`, `"` and newlines only. */
function quoted(value: string): string {
  return `"${value.replace(/[\\"]/g, '\\$&').replaceAll('\n', '\\n')}"`;
}
