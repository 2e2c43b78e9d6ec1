import type { Clock } from '../../base/clock.ts';
import { CILIUM_ENDPOINTS, pods } from '../../k8s/feed/kinds.ts';
import type { KubernetesObject } from '../../k8s/resource.ts';
import { field, isBeingDeleted, timeAt } from './field.ts';
import { type ObservedObjects, objectKey } from './observed-kind.ts';
import { type ObjectAccess, performWrite, placeOfObject } from './perform-write.ts';
import type { Collector, RoundReport } from './rounds.ts';

export interface UnmanagedDnsCollectorOptions extends ObjectAccess {
  /** The pods with the label `k8s-app=kube-dns`. */
  readonly pods: ObservedObjects;
  readonly endpoints: ObservedObjects;
  readonly clock: Pick<Clock, 'now' | 'wallTime'>;
}

/** Default of `pod-restart-selector` in Cilium. */
export const UNMANAGED_DNS_SELECTOR = 'k8s-app=kube-dns';

/** Time for which a pod may be without an endpoint after its start. */
const START_MS = 30_000;
/** Minimum time between two restarts of pods with the same name. */
const RESTART_PAUSE_MS = 5 * 60_000;

/**
 * Returns the pods that run without an endpoint, because they were started before Cilium, the oldest first (OPERATOR
 * 33). Pods that started less than 30 s ago, and pods whose name was restarted in the last 5 min, are not returned.
 * Pure.
 *
 * @param restarted time of the last restart by name, on the same clock as `now`
 */
export function unmanagedPods(
  candidates: Iterable<KubernetesObject>,
  endpoints: ReadonlyMap<string, unknown>,
  restarted: ReadonlyMap<string, number>,
  now: number,
  wallNow: number,
): readonly KubernetesObject[] {
  const startOf = (pod: KubernetesObject): number | undefined => timeAt(pod, 'status', 'startTime');
  const unmanaged = [...candidates].filter((pod) => {
    const key = objectKey(pod);
    const startedAt = startOf(pod);
    return (
      field(pod, 'status', 'phase') === 'Running' &&
      field(pod, 'spec', 'hostNetwork') !== true &&
      !isBeingDeleted(pod) &&
      !endpoints.has(key) &&
      startedAt !== undefined &&
      wallNow - startedAt > START_MS &&
      now - (restarted.get(key) ?? Number.NEGATIVE_INFINITY) >= RESTART_PAUSE_MS
    );
  });
  const order = (a: KubernetesObject, b: KubernetesObject): number =>
    (startOf(a) ?? 0) - (startOf(b) ?? 0) || (objectKey(a) < objectKey(b) ? -1 : 1);
  return unmanaged.sort(order);
}

/** Restarts unmanaged pods, one a round, so that they get an endpoint. */
export class UnmanagedDnsCollector implements Collector {
  readonly name = 'unmanaged-kube-dns';
  readonly needs: Collector['needs'];
  readonly #options: UnmanagedDnsCollectorOptions;
  /** Time of the last restart, by {@link objectKey}. */
  readonly #restarted = new Map<string, number>();

  constructor(options: UnmanagedDnsCollectorOptions) {
    this.#options = options;
    this.needs = [options.pods, options.endpoints];
  }

  async round(report: RoundReport, signal: AbortSignal): Promise<void> {
    const { pods: followed, endpoints, reader, writer, clock } = this.#options;
    const now = clock.now();
    for (const [key, at] of this.#restarted) if (now - at >= RESTART_PAUSE_MS) this.#restarted.delete(key);
    const candidates = followed.objects.values();
    const unmanaged = unmanagedPods(candidates, endpoints.objects, this.#restarted, now, clock.wallTime());
    report.setMarked(unmanaged.length);
    for (const pod of unmanaged) {
      const { uid } = pod.metadata;
      const endpoint = placeOfObject(CILIUM_ENDPOINTS, pod);
      if ((await reader.get(endpoint, signal)) !== undefined) continue;
      const reason = `the pod is running without a CiliumEndpoint, in round ${report.round}`;
      const place = placeOfObject(pods(undefined), pod);
      const outcome = await performWrite(writer, { verb: 'delete', place, uid }, reason, report, signal);
      if (outcome !== 'done' && outcome !== 'dry-run') continue;
      this.#restarted.set(objectKey(pod), now);
      return;
    }
  }
}
