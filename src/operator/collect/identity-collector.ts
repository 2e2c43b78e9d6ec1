import type { Clock } from '../../base/clock.ts';
import { isoTime } from '../../base/system-clock.ts';
import { forEachInSteps, OPEN_GATE, type TurnGate } from '../../base/turn-gate.ts';
import { CILIUM_ENDPOINT_SLICES, CILIUM_ENDPOINTS, CILIUM_IDENTITIES } from '../../k8s/feed/kinds.ts';
import { IDENTITY_HEARTBEAT } from '../../k8s/parse-cilium-identity.ts';
import type { KubernetesObject } from '../../k8s/resource.ts';
import type { ObjectReader } from '../../k8s/rest/object-reader.ts';
import type { ObjectWriter } from '../../k8s/rest/object-writer.ts';
import { isObject } from '../../net/fields.ts';
import { field, isBeingDeleted, items } from './field.ts';
import { type ObservedObjects, optionalKind } from './observed-kind.ts';
import { performWrite, placeOfObject } from './perform-write.ts';
import type { Collector, RoundReport } from './rounds.ts';

export interface IdentityCollectorOptions {
  readonly identities: ObservedObjects;
  readonly endpoints: ObservedObjects;
  /** The CRD of slices is optional. */
  readonly slices: ObservedObjects;
  readonly reader: ObjectReader;
  /** Must allow at most 2,500 deletes a minute: {@link IDENTITY_DELETES_PER_SECOND}. */
  readonly writer: ObjectWriter;
  readonly clock: Clock;
  /** Splits the computation of a round into short turns of the event loop. Default: not split. */
  readonly gate?: TurnGate | undefined;
}

/** `identity-gc-interval`. */
export const IDENTITY_GC_INTERVAL_MS: number = 15 * 60_000;
/** `identity-gc-rate-limit`: 2,500 a minute (OPERATOR 19). */
export const IDENTITY_DELETES_PER_SECOND: number = 2500 / 60;
/** `identity-heartbeat-timeout`: an identity unused for this time is marked. Unused for it again, it is deleted. */
const HEARTBEAT_TIMEOUT_MS = 30 * 60_000;

/** Number of endpoints read in one step, which takes about 1 ms. */
const ENDPOINTS_PER_STEP = 4096;
/** Number of identities examined in one step, which takes about 1 ms. */
const IDENTITIES_PER_STEP = 2048;

/** Yields the names (numbers) of the identities of CiliumEndpoints, or of the endpoints in CiliumEndpointSlices. */
function* namesIn(objects: Iterable<KubernetesObject>): Generator<string, void, void> {
  for (const object of objects) {
    yield String(field(object, 'status', 'identity', 'id'));
    for (const endpoint of items(object, 'endpoints')) yield String(field(endpoint, 'id'));
  }
}

/** Version of an identity, and when it was last used. */
export interface IdentityUse {
  readonly uid: string;
  readonly version: string;
  /** Monotonic time at which an endpoint last used the identity, or at which it was first seen or written. */
  readonly lastUsedMs: number;
}

export interface IdentityRound {
  readonly uses: ReadonlyMap<string, IdentityUse>;
  /** Identities unused for the timeout and not marked yet. */
  readonly toMark: readonly string[];
  /** Marked identities unused for the timeout since they were marked. */
  readonly toDelete: readonly string[];
  readonly marked: number;
}

function isMarked(identity: KubernetesObject): boolean {
  return field(identity, 'metadata', 'annotations', IDENTITY_HEARTBEAT) !== undefined;
}

/**
 * Computes one round (OPERATOR 21, 22), in steps. An identity is kept if it was used, written or first seen less than
 * the timeout ago. Otherwise it is marked. The mark is a write, so the identity is then kept for another timeout. If it
 * is still not used afterwards, it is deleted. Pure.
 *
 * @param previous `uses` of the previous round; empty at first, so that nothing is deleted within the first timeout
 * @param used names of the identities of endpoints
 */
export function* identityRound(
  previous: ReadonlyMap<string, IdentityUse>,
  identities: Iterable<KubernetesObject>,
  used: ReadonlySet<string>,
  now: number,
  timeoutMs: number,
): Generator<undefined, IdentityRound, void> {
  const uses = new Map<string, IdentityUse>();
  const toMark: string[] = [];
  const toDelete: string[] = [];
  let marked = 0;
  yield* forEachInSteps(identities, IDENTITIES_PER_STEP, (identity) => {
    const { name, uid, resourceVersion: version } = identity.metadata;
    const known = previous.get(name);
    const isUnchanged = known?.uid === uid && known.version === version;
    const lastUsedMs = isUnchanged && !used.has(name) ? known.lastUsedMs : now;
    uses.set(name, { uid, version, lastUsedMs });
    const wasMarked = isMarked(identity);
    if (wasMarked) marked++;
    if (now - lastUsedMs >= timeoutMs && !isBeingDeleted(identity))
      (wasMarked ? toDelete : toMark).push(name);
  });
  return { uses, toMark, toDelete, marked };
}

/**
 * Deletes unused CiliumIdentities (OPERATOR 20 to 24). An identity is first marked by an annotation. If an agent uses
 * the identity, it removes the annotation, and the delete then fails because the version has changed. Before a delete,
 * endpoints and slices are listed by quorum reads, because the watched state may be behind and not contain a user of
 * the identity.
 */
export class IdentityCollector implements Collector {
  readonly name = 'identity-gc-crd';
  readonly needs: Collector['needs'];
  readonly #options: IdentityCollectorOptions;
  /** The last computed round. */
  #round: IdentityRound = { uses: new Map(), toMark: [], toDelete: [], marked: 0 };

  constructor(options: IdentityCollectorOptions) {
    this.#options = options;
    this.needs = [options.identities, options.endpoints, optionalKind(options.slices)];
  }

  async round(report: RoundReport, signal: AbortSignal): Promise<void> {
    const { gate = OPEN_GATE } = this.#options;
    if (!(await gate.runSteps(this.#computeRound(), signal))) return;
    const { toMark, toDelete, marked } = this.#round;
    report.setMarked(marked);
    const unused = toDelete.length === 0 ? toDelete : await this.#stillUnused(toDelete, signal);
    for (const name of unused) {
      await this.#delete(name, report, signal);
      if (signal.aborted) return;
    }
    for (const name of toMark) {
      await this.#mark(name, report, signal);
      if (signal.aborted) return;
    }
  }

  /** Computes the next {@link IdentityRound}, in steps. If the steps are aborted, `#round` is unchanged. */
  *#computeRound(): Generator<undefined, void, void> {
    const { identities, endpoints, slices, clock } = this.#options;
    const used = new Set<string>();
    for (const { objects } of [endpoints, slices])
      yield* forEachInSteps(namesIn(objects.values()), ENDPOINTS_PER_STEP, (name) => used.add(name));
    // A copy, because the objects may change between two steps.
    const all = [...identities.objects.values()];
    this.#round = yield* identityRound(this.#round.uses, all, used, clock.now(), HEARTBEAT_TIMEOUT_MS);
  }

  /**
   * Returns the identities among `names` that no endpoint or slice uses, by quorum lists. Keeps only the names in
   * memory, because a cluster may have 50,000 endpoints.
   */
  async #stillUnused(names: readonly string[], signal: AbortSignal): Promise<readonly string[]> {
    const { reader, slices } = this.#options;
    const unused = new Set(names);
    for (const kind of slices.isMissing ? [CILIUM_ENDPOINTS] : [CILIUM_ENDPOINTS, CILIUM_ENDPOINT_SLICES])
      for await (const page of reader.list(kind, signal))
        for (const name of namesIn(page)) unused.delete(name);
    return [...unused];
  }

  /**
   * Adds the annotation, in Cilium's format, to the current version of the identity. A concurrent write causes a
   * conflict.
   */
  async #mark(name: string, report: RoundReport, signal: AbortSignal): Promise<void> {
    const { reader, writer, clock } = this.#options;
    const place = { kind: CILIUM_IDENTITIES, name };
    const known = this.#round.uses.get(name);
    const identity = await reader.get(place, signal);
    if (identity === undefined || identity.metadata.resourceVersion !== known?.version) return;
    const { metadata } = identity;
    const annotations = isObject(metadata['annotations']) ? metadata['annotations'] : {};
    const mark = { [IDENTITY_HEARTBEAT]: isoTime(clock.wallTime()) };
    const object = { ...identity, metadata: { ...metadata, annotations: { ...annotations, ...mark } } };
    const reason = `no endpoint used identity ${name} in any round of the timeout, up to round ${report.round}`;
    await performWrite(writer, { verb: 'update', place, object }, reason, report, signal);
  }

  async #delete(name: string, report: RoundReport, signal: AbortSignal): Promise<void> {
    const identity = this.#options.identities.objects.get(`/${name}`);
    const known = this.#round.uses.get(name);
    if (identity === undefined || known === undefined) return;
    const { uid, version: resourceVersion } = known;
    const reason = `no endpoint used identity ${name} since it was marked, up to round ${report.round}`;
    const place = placeOfObject(CILIUM_IDENTITIES, identity);
    const write = { verb: 'delete', place, uid, resourceVersion } as const;
    await performWrite(this.#options.writer, write, reason, report, signal);
  }
}
