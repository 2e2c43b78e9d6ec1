import type { Clock } from '../../base/clock.ts';
import { forEachInSteps, OPEN_GATE, type TurnGate } from '../../base/turn-gate.ts';
import { CILIUM_ENDPOINTS, CILIUM_NODES, pods } from '../../k8s/feed/kinds.ts';
import type { KubernetesObject } from '../../k8s/resource.ts';
import { staleRound } from '../../kvstore/gc/garbage-collector.ts';
import { field, isBeingDeleted, items, timeAt } from './field.ts';
import { type ObservedObjects, versionOf } from './observed-kind.ts';
import { type ObjectAccess, performWrite, placeOfObject } from './perform-write.ts';
import type { Collector, RoundReport } from './rounds.ts';

export interface EndpointCollectorOptions extends ObjectAccess {
  readonly endpoints: ObservedObjects;
  readonly pods: ObservedObjects;
  readonly nodes: ObservedObjects;
  readonly clock: Pick<Clock, 'wallTime'>;
  /** Time between two rounds. */
  readonly intervalMs: number;
  /** Splits a round into short turns of the event loop. Default: not split. */
  readonly gate?: TurnGate | undefined;
}

/** Default of Cilium's `cilium-endpoint-gc-interval`. */
export const ENDPOINT_GC_INTERVAL_MS: number = 5 * 60_000;

/** Looks up the possible owners of an endpoint by name. */
export interface EndpointOwners {
  pod(namespace: string, name: string): KubernetesObject | undefined;
  node(name: string): KubernetesObject | undefined;
}

const PODS = pods(undefined);
/** Number of endpoints compared with their owners in one step, which takes about 1 ms. */
const ENDPOINTS_PER_STEP = 512;
const FINISHED: ReadonlySet<unknown> = new Set(['Succeeded', 'Failed']);

function valuesOf(list: readonly unknown[], ...names: readonly string[]): readonly unknown[] {
  return list.flatMap((item) => names.map((name) => field(item, name))).filter((text) => text !== undefined);
}

/** Returns true if an endpoint has an address of `pod`. It belongs to this pod even if an earlier pod created it. */
function hasAddressOf(endpoint: KubernetesObject, pod: KubernetesObject): boolean {
  const listed = new Set(valuesOf(items(endpoint, 'status', 'networking', 'addressing'), 'ipv4', 'ipv6'));
  const addresses = [field(pod, 'status', 'podIP'), ...valuesOf(items(pod, 'status', 'podIPs'), 'ip')];
  return addresses.some((address) => address !== undefined && listed.has(address));
}

/**
 * Returns the reason why an endpoint does not belong to the pod `name`; undefined if it does.
 *
 * @param uid the uid in the owner reference; undefined if the endpoint has no owner reference
 */
function missingPodReason(
  endpoint: KubernetesObject,
  owners: EndpointOwners,
  name: string,
  uid?: unknown,
): string | undefined {
  const { namespace = '' } = endpoint.metadata;
  const pod = owners.pod(namespace, name);
  if (pod === undefined) return `pod ${namespace}/${name} does not exist`;
  const phase = field(pod, 'status', 'phase');
  if (FINISHED.has(phase)) return `pod ${namespace}/${name} is ${String(phase)}`;
  if (uid === undefined || uid === pod.metadata.uid || hasAddressOf(endpoint, pod)) return undefined;
  return `pod ${namespace}/${name} was recreated: its uid is ${pod.metadata.uid}, not ${String(uid)}`;
}

/**
 * Returns the reason why an endpoint is not needed, or `undefined` if it is needed (OPERATOR 26, 28). An endpoint is
 * needed if one of its owners exists or has an unknown kind. Pure.
 */
export function staleReason(endpoint: KubernetesObject, owners: EndpointOwners): string | undefined {
  if (isBeingDeleted(endpoint)) return undefined;
  const references = items(endpoint, 'metadata', 'ownerReferences');
  if (references.length === 0) return missingPodReason(endpoint, owners, endpoint.metadata.name);
  let reason: string | undefined;
  for (const owner of references) {
    const name = String(field(owner, 'name'));
    const kind = field(owner, 'kind');
    if (kind === 'Pod') reason = missingPodReason(endpoint, owners, name, field(owner, 'uid'));
    else if (kind === 'CiliumNode' && owners.node(name) === undefined)
      reason = `CiliumNode ${name} does not exist`;
    else return undefined;
    if (reason === undefined) return undefined;
  }
  return reason;
}

/**
 * Deletes CiliumEndpoints of deleted pods (OPERATOR 25 to 28). An endpoint is deleted if it is older than an interval,
 * was stale and unchanged in two rounds, and is also stale by quorum reads of its owners. Endpoints of recreated pods,
 * endpoints that are seen before their pod, and endpoints that an agent still writes are therefore kept.
 */
export class EndpointCollector implements Collector {
  readonly name = 'endpoint-gc';
  readonly needs: Collector['needs'];
  readonly #options: EndpointCollectorOptions;
  /** Versions of the endpoints found stale by the previous round, by `namespace/name`. */
  #marked = new Map<string, string>();

  constructor(options: EndpointCollectorOptions) {
    this.#options = options;
    this.needs = [options.endpoints, options.pods, options.nodes];
  }

  async round(report: RoundReport, signal: AbortSignal): Promise<void> {
    const { endpoints, gate = OPEN_GATE } = this.#options;
    const stale = new Map<string, string>();
    if (!(await gate.runSteps(this.#findStale(stale), signal))) return;
    const { remove } = staleRound(this.#marked, stale);
    this.#marked = stale; // failed deletes are retried in the next round
    report.setMarked(stale.size);
    for (const [key, version] of remove) {
      const endpoint = endpoints.objects.get(key);
      if (endpoint === undefined || versionOf(endpoint) !== version) continue; // written or deleted since
      await this.#remove(endpoint, report, signal);
      if (signal.aborted) return;
    }
  }

  /** Adds the versions of the stale endpoints to `stale`, in steps. */
  *#findStale(stale: Map<string, string>): Generator<undefined, void, void> {
    const { endpoints, pods: followed, nodes, clock, intervalMs } = this.#options;
    const owners: EndpointOwners = {
      pod: (namespace, name) => followed.objects.get(`${namespace}/${name}`),
      node: (name) => nodes.objects.get(`/${name}`),
    };
    yield* forEachInSteps(endpoints.objects, ENDPOINTS_PER_STEP, ([key, endpoint]) => {
      const ageMs = clock.wallTime() - (timeAt(endpoint, 'metadata', 'creationTimestamp') ?? 0);
      const isYoung = ageMs >= 0 && ageMs < intervalMs;
      if (!isYoung && staleReason(endpoint, owners) !== undefined) stale.set(key, versionOf(endpoint));
    });
  }

  async #remove(endpoint: KubernetesObject, report: RoundReport, signal: AbortSignal): Promise<void> {
    const { writer } = this.#options;
    const reason = staleReason(endpoint, await this.#readOwners(endpoint, signal));
    if (reason === undefined) return;
    const { uid, resourceVersion } = endpoint.metadata;
    const place = placeOfObject(CILIUM_ENDPOINTS, endpoint);
    const write = { verb: 'delete', place, uid, resourceVersion } as const;
    const rounds = `in rounds ${report.round - 1} and ${report.round}`;
    await performWrite(writer, write, `${reason}, ${rounds}`, report, signal);
  }

  /** Returns the owners of one endpoint, by quorum reads. */
  async #readOwners(endpoint: KubernetesObject, signal: AbortSignal): Promise<EndpointOwners> {
    const { reader } = this.#options;
    const { namespace = '', name: ownName } = endpoint.metadata;
    const read = new Map<string, KubernetesObject>();
    const references = items(endpoint, 'metadata', 'ownerReferences');
    const owners = references.length === 0 ? [{ kind: 'Pod', name: ownName }] : references;
    for (const owner of owners) {
      const isPod = field(owner, 'kind') === 'Pod';
      const name = String(field(owner, 'name'));
      const place = isPod ? { kind: PODS, namespace, name } : { kind: CILIUM_NODES, name };
      const object = await reader.get(place, signal);
      if (object !== undefined) read.set(`${isPod ? 'Pod' : 'CiliumNode'} ${name}`, object);
    }
    return {
      pod: (_namespace, name) => read.get(`Pod ${name}`),
      node: (name) => read.get(`CiliumNode ${name}`),
    };
  }
}
