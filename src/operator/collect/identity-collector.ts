import type { Clock } from '../../base/clock.ts';
import type { ObjectReader } from '../../k8s/client/object-reader.ts';
import type { ObjectWriter } from '../../k8s/client/object-writer.ts';
import { CILIUM_ENDPOINT_SLICES, CILIUM_ENDPOINTS, CILIUM_IDENTITIES } from '../../k8s/feed/kinds.ts';
import { IDENTITY_HEARTBEAT } from '../../k8s/parse-cilium-identity.ts';
import type { KubernetesObject } from '../../k8s/resource.ts';
import { isObject } from '../../net/fields.ts';
import { field, isGoing, items } from './field.ts';
import { type Observed, optional } from './observed-kind.ts';
import { collect, placeOf } from './reaper.ts';
import type { Collector, Tally } from './rounds.ts';
import { UnsafeSettingError } from './unsafe-setting.ts';

/** What an {@link IdentityCollector} works with. */
export interface IdentityCollectorOptions {
  readonly identities: Observed;
  readonly endpoints: Observed;
  /** Their CRD need not be there. */
  readonly slices: Observed;
  readonly reader: ObjectReader;
  /** At most 2,500 deletes a minute: {@link IDENTITY_DELETES_PER_SECOND}. */
  readonly writer: ObjectWriter;
  readonly clock: Clock;
  /** `identity-heartbeat-timeout`: so long one lives that is not seen to be used. Default 30 min. */
  readonly timeoutMs?: number | undefined;
  /** Whether CiliumEndpoints of pods that are gone are deleted: else those that are left keep every identity. */
  readonly endpointsAreCollected: boolean;
}

/** `identity-gc-interval`. */
export const IDENTITY_GC_INTERVAL_MS: number = 15 * 60_000;
/** `identity-gc-rate-limit`: 2,500 a minute. */
export const IDENTITY_DELETES_PER_SECOND: number = 2500 / 60;
const TIMEOUT_MS = 30 * 60_000;

/** The identities that CiliumEndpoints name, or the endpoints in CiliumEndpointSlices. */
function* namesIn(objects: Iterable<KubernetesObject>): Generator<string, void, void> {
  for (const object of objects) {
    yield String(field(object, 'status', 'identity', 'id'));
    for (const endpoint of items(object, 'endpoints')) yield String(field(endpoint, 'id'));
  }
}

/** When an identity last showed life, and what it was then. */
export interface Life {
  readonly uid: string;
  readonly version: string;
  /** Monotonic milliseconds. */
  readonly at: number;
}

/** What a round makes of what it sees. */
export interface IdentityRound {
  readonly lives: ReadonlyMap<string, Life>;
  /** Without life, and not marked yet. */
  readonly mark: readonly string[];
  /** Marked, and without life for the timeout since. */
  readonly remove: readonly string[];
}

function isMarked(identity: KubernetesObject): boolean {
  return field(identity, 'metadata', 'annotations', IDENTITY_HEARTBEAT) !== undefined;
}

/**
 * One round (OPERATOR 21, 22): an identity lives that is named, or was written or first seen less than the timeout ago. What
 * does not is marked, which is a write and so gives it the timeout once more; then it goes. Pure.
 *
 * @param before `lives` of the round before; empty at first, so that nothing goes within the first timeout
 */
export function identityRound(
  before: ReadonlyMap<string, Life>,
  identities: Iterable<KubernetesObject>,
  named: ReadonlySet<string>,
  now: number,
  timeoutMs: number,
): IdentityRound {
  const lives = new Map<string, Life>();
  const mark: string[] = [];
  const remove: string[] = [];
  for (const identity of identities) {
    const { name, uid, resourceVersion: version } = identity.metadata;
    const known = before.get(name);
    const isUnchanged = known?.uid === uid && known.version === version;
    const at = isUnchanged && !named.has(name) ? known.at : now;
    lives.set(name, { uid, version, at });
    if (now - at >= timeoutMs && !isGoing(identity)) (isMarked(identity) ? remove : mark).push(name);
  }
  return { lives, mark, remove };
}

/**
 * Deletes CiliumIdentities that no endpoint names (OPERATOR 20 to 24). Each is first marked by an annotation, which an agent
 * that uses it takes off: then the delete is for a version that is no more. Before anything is deleted, endpoints and slices
 * are listed from etcd: what is followed may be behind, and show no user where there is one.
 */
export class IdentityCollector implements Collector {
  readonly name = 'identity-gc-crd';
  readonly needs: Collector['needs'];
  readonly #options: IdentityCollectorOptions;
  #lives: ReadonlyMap<string, Life> = new Map();

  constructor(options: IdentityCollectorOptions) {
    const { identities, endpoints, slices, endpointsAreCollected, timeoutMs = TIMEOUT_MS } = options;
    if (!endpointsAreCollected)
      throw new UnsafeSettingError(
        'cilium-endpoint-gc-interval',
        '0',
        'identities cannot be collected while CiliumEndpoints of pods that are gone are not',
      );
    if (timeoutMs <= 0)
      throw new UnsafeSettingError(
        'identity-heartbeat-timeout',
        String(timeoutMs),
        'an identity would be deleted while its first endpoint is being made',
      );
    this.#options = options;
    this.needs = [identities, endpoints, optional(slices)];
  }

  async round(tally: Tally, signal: AbortSignal): Promise<void> {
    const { identities, endpoints, slices, clock, timeoutMs = TIMEOUT_MS } = this.#options;
    const all = [...identities.objects.values()];
    const named = new Set([endpoints, slices].flatMap(({ objects }) => [...namesIn(objects.values())]));
    const { lives, mark, remove } = identityRound(this.#lives, all, named, clock.now(), timeoutMs);
    this.#lives = lives;
    tally.marked(all.filter(isMarked).length);
    const still = remove.length === 0 ? remove : await this.#unnamed(remove, signal);
    for (const name of still) {
      await this.#remove(name, tally, signal);
      if (signal.aborted) return;
    }
    for (const name of mark) {
      await this.#mark(name, tally, signal);
      if (signal.aborted) return;
    }
  }

  /** Those that are not named in etcd. Of what is listed only the names are kept: a cluster may have 50,000 endpoints. */
  async #unnamed(names: readonly string[], signal: AbortSignal): Promise<readonly string[]> {
    const { reader, slices } = this.#options;
    const left = new Set(names);
    for (const kind of slices.missing ? [CILIUM_ENDPOINTS] : [CILIUM_ENDPOINTS, CILIUM_ENDPOINT_SLICES])
      for await (const page of reader.list(kind, signal)) for (const name of namesIn(page)) left.delete(name);
    return [...left];
  }

  /** The annotation as the original writes it, over what is there now; a write that comes between is a conflict. */
  async #mark(name: string, tally: Tally, signal: AbortSignal): Promise<void> {
    const { reader, writer, clock } = this.#options;
    const place = { kind: CILIUM_IDENTITIES, name };
    const known = this.#lives.get(name);
    const identity = await reader.get(place, signal);
    if (identity === undefined || identity.metadata.resourceVersion !== known?.version) return;
    const { metadata } = identity;
    const annotations = isObject(metadata['annotations']) ? metadata['annotations'] : {};
    const mark = { [IDENTITY_HEARTBEAT]: new Date(clock.wallTime()).toISOString() };
    const object = { ...identity, metadata: { ...metadata, annotations: { ...annotations, ...mark } } };
    const why = `no endpoint has named identity ${name} in all rounds of the timeout, up to round ${tally.round}`;
    await collect(writer, { verb: 'update', place, object }, why, tally, signal);
  }

  async #remove(name: string, tally: Tally, signal: AbortSignal): Promise<void> {
    const identity = this.#options.identities.objects.get(`/${name}`);
    const known = this.#lives.get(name);
    if (identity === undefined || known === undefined) return;
    const { uid, version: resourceVersion } = known;
    const why = `no endpoint has named identity ${name} since it was marked, up to round ${tally.round}`;
    const place = placeOf(CILIUM_IDENTITIES, identity);
    await collect(this.#options.writer, { verb: 'delete', place, uid, resourceVersion }, why, tally, signal);
  }
}
