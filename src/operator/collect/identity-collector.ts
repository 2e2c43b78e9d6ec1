import type { Clock } from '../../base/clock.ts';
import { CILIUM_ENDPOINT_SLICES, CILIUM_ENDPOINTS, CILIUM_IDENTITIES } from '../../k8s/feed/kinds.ts';
import { IDENTITY_HEARTBEAT } from '../../k8s/parse-cilium-identity.ts';
import type { KubernetesObject } from '../../k8s/resource.ts';
import type { ObjectReader } from '../../k8s/rest/object-reader.ts';
import type { ObjectWriter } from '../../k8s/rest/object-writer.ts';
import { isObject } from '../../net/fields.ts';
import { field, isBeingDeleted, items } from './field.ts';
import { type Observed, optional } from './observed-kind.ts';
import { collect, placeOf } from './reaper.ts';
import type { Collector, RoundReport } from './rounds.ts';
import { UnsafeSettingError } from './unsafe-setting.ts';

/** Options of {@link IdentityCollector}. */
export interface IdentityCollectorOptions {
  readonly identities: Observed;
  readonly endpoints: Observed;
  /** The CRD of slices is optional. */
  readonly slices: Observed;
  readonly reader: ObjectReader;
  /** Must allow at most 2,500 deletes a minute: {@link IDENTITY_DELETES_PER_SECOND}. */
  readonly writer: ObjectWriter;
  readonly clock: Clock;
  /** `identity-heartbeat-timeout`: lifetime of an identity that no endpoint uses. Default 30 min. */
  readonly timeoutMs?: number | undefined;
  /** True if CiliumEndpoints of deleted pods are deleted. Otherwise they would keep their identities in use. */
  readonly endpointsAreCollected: boolean;
}

/** `identity-gc-interval`. */
export const IDENTITY_GC_INTERVAL_MS: number = 15 * 60_000;
/** `identity-gc-rate-limit`: 2,500 a minute. */
export const IDENTITY_DELETES_PER_SECOND: number = 2500 / 60;
const TIMEOUT_MS = 30 * 60_000;

/** Yields the names (numbers) of the identities of CiliumEndpoints, or of the endpoints in CiliumEndpointSlices. */
function* namesIn(objects: Iterable<KubernetesObject>): Generator<string, void, void> {
  for (const object of objects) {
    yield String(field(object, 'status', 'identity', 'id'));
    for (const endpoint of items(object, 'endpoints')) yield String(field(endpoint, 'id'));
  }
}

/** Version of an identity, and the time when it was last used or written. */
export interface Life {
  readonly uid: string;
  readonly version: string;
  /** Monotonic milliseconds. */
  readonly at: number;
}

/** The result of a round. */
export interface IdentityRound {
  readonly lives: ReadonlyMap<string, Life>;
  /** Identities that were not used for the timeout and are not marked yet. */
  readonly mark: readonly string[];
  /** Marked identities that were not used for the timeout since they were marked. */
  readonly remove: readonly string[];
}

function isMarked(identity: KubernetesObject): boolean {
  return field(identity, 'metadata', 'annotations', IDENTITY_HEARTBEAT) !== undefined;
}

/**
 * Computes one round (OPERATOR 21, 22). An identity is kept if an endpoint uses it, or if it was written or first seen less than
 * the timeout ago. Otherwise it is marked. The mark is a write, so the identity is then kept for another timeout. If it is still
 * not used after that, it is removed. Pure.
 *
 * @param previous `lives` of the round before; empty at first, so that nothing is removed within the first timeout
 */
export function identityRound(
  previous: ReadonlyMap<string, Life>,
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
    const known = previous.get(name);
    const isUnchanged = known?.uid === uid && known.version === version;
    const at = isUnchanged && !named.has(name) ? known.at : now;
    lives.set(name, { uid, version, at });
    if (now - at >= timeoutMs && !isBeingDeleted(identity)) (isMarked(identity) ? remove : mark).push(name);
  }
  return { lives, mark, remove };
}

/**
 * Deletes unused CiliumIdentities (OPERATOR 20 to 24). An identity is first marked by an annotation. If an agent uses the
 * identity, it removes the annotation, and the delete then fails because the version has changed. Before a delete, endpoints and
 * slices are listed by quorum reads, because the watched state may be behind and not contain a user of the identity.
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
        'identities can be deleted only if CiliumEndpoints of deleted pods are deleted, too',
      );
    if (timeoutMs <= 0)
      throw new UnsafeSettingError(
        'identity-heartbeat-timeout',
        String(timeoutMs),
        'must be greater than 0, because an identity would be deleted before its first endpoint is created',
      );
    this.#options = options;
    this.needs = [identities, endpoints, optional(slices)];
  }

  async round(report: RoundReport, signal: AbortSignal): Promise<void> {
    const { identities, endpoints, slices, clock, timeoutMs = TIMEOUT_MS } = this.#options;
    const all = [...identities.objects.values()];
    const named = new Set([endpoints, slices].flatMap(({ objects }) => [...namesIn(objects.values())]));
    const { lives, mark, remove } = identityRound(this.#lives, all, named, clock.now(), timeoutMs);
    this.#lives = lives;
    report.marked(all.filter(isMarked).length);
    const still = remove.length === 0 ? remove : await this.#unnamed(remove, signal);
    for (const name of still) {
      await this.#remove(name, report, signal);
      if (signal.aborted) return;
    }
    for (const name of mark) {
      await this.#mark(name, report, signal);
      if (signal.aborted) return;
    }
  }

  /**
   * Returns the identities among `names` that no endpoint or slice uses, by quorum lists. Keeps only the names in memory, because
   * a cluster may have 50,000 endpoints.
   */
  async #unnamed(names: readonly string[], signal: AbortSignal): Promise<readonly string[]> {
    const { reader, slices } = this.#options;
    const left = new Set(names);
    for (const kind of slices.missing ? [CILIUM_ENDPOINTS] : [CILIUM_ENDPOINTS, CILIUM_ENDPOINT_SLICES])
      for await (const page of reader.list(kind, signal)) for (const name of namesIn(page)) left.delete(name);
    return [...left];
  }

  /** Adds the annotation, in upstream's format, to the current version of the identity. A concurrent write causes a conflict. */
  async #mark(name: string, report: RoundReport, signal: AbortSignal): Promise<void> {
    const { reader, writer, clock } = this.#options;
    const place = { kind: CILIUM_IDENTITIES, name };
    const known = this.#lives.get(name);
    const identity = await reader.get(place, signal);
    if (identity === undefined || identity.metadata.resourceVersion !== known?.version) return;
    const { metadata } = identity;
    const annotations = isObject(metadata['annotations']) ? metadata['annotations'] : {};
    const mark = { [IDENTITY_HEARTBEAT]: new Date(clock.wallTime()).toISOString() };
    const object = { ...identity, metadata: { ...metadata, annotations: { ...annotations, ...mark } } };
    const reason = `no endpoint used identity ${name} in all rounds of the timeout, up to round ${report.round}`;
    await collect(writer, { verb: 'update', place, object }, reason, report, signal);
  }

  async #remove(name: string, report: RoundReport, signal: AbortSignal): Promise<void> {
    const identity = this.#options.identities.objects.get(`/${name}`);
    const known = this.#lives.get(name);
    if (identity === undefined || known === undefined) return;
    const { uid, version: resourceVersion } = known;
    const reason = `no endpoint used identity ${name} since it was marked, up to round ${report.round}`;
    const place = placeOf(CILIUM_IDENTITIES, identity);
    await collect(
      this.#options.writer,
      { verb: 'delete', place, uid, resourceVersion },
      reason,
      report,
      signal,
    );
  }
}
