import { useEffect, useState } from 'preact/hooks';
import { useTick } from './live.ts';
import { fetchAgent } from './token.tsx';

/** Time between two reads. */
const READ_MS = 10_000;

const BUCKET =
  /^dpcache_kvstore_propagation_seconds_bucket\{cluster="((?:[^"\\]|\\.)*)",le="([^"]+)"\} (\d+)$/gm;

/**
 * Returns for each cluster the smallest bound of the histogram, in milliseconds, within which 99 of 100 changes have arrived since
 * the agent was started. Clusters without changes are absent.
 */
function p99ByCluster(metrics: string): ReadonlyMap<string, number> {
  const buckets = new Map<string, { readonly bound: number; readonly count: number }[]>();
  for (const [, cluster = '', bound = '', count = ''] of metrics.matchAll(BUCKET)) {
    const list = buckets.get(cluster) ?? [];
    list.push({ bound: bound === '+Inf' ? Number.POSITIVE_INFINITY : Number(bound), count: Number(count) });
    buckets.set(cluster, list);
  }
  const found = new Map<string, number>();
  for (const [cluster, list] of buckets) {
    const total = list.at(-1)?.count ?? 0;
    const first = list.find(({ count }) => count >= total * 0.99);
    if (total > 0 && first !== undefined) found.set(cluster, first.bound * 1_000);
  }
  return found;
}

/** Returns the p99 of the propagation from each cluster, from the metrics of the agent. Empty until they are read. */
export function usePropagation(): ReadonlyMap<string, number> {
  const tick = useTick(READ_MS);
  const [found, setFound] = useState<ReadonlyMap<string, number>>(new Map());
  useEffect(() => {
    const ended = new AbortController();
    fetchAgent('/metrics', ended.signal)
      .then((answer) => (answer.ok ? answer.text() : ''))
      .then(
        (text) => setFound(p99ByCluster(text)),
        () => {}, // the connection mark shows that the agent is unreachable
      );
    return () => ended.abort();
  }, [tick]);
  return found;
}
