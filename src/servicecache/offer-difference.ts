import { isMap } from 'immutable';
import {
  type Backend,
  type Backends,
  backendComparison,
  type EndpointSlice,
  type OfferedBackends,
} from './backend.ts';
import { everyMapDifference } from './map-difference.ts';

/**
 * Finds the backends of one version of an offer by the addresses of another version. Both usually list them in the same
 * order, so this iterates over the backends without lookups. At the first difference it indexes the remaining ones by
 * address.
 */
export class OrderedMatcher {
  /** The backends after `#next`, in the order of the offer. */
  readonly #following: IterableIterator<Backend>;
  /** The next backend in the order of the offer; undefined if none is left, or after {@link OrderedMatcher.#index}. */
  #next: Backend | undefined;
  /** The remaining backends by address; undefined before the first difference. */
  #remaining: Map<string, Backend> | undefined;

  constructor(offered: OfferedBackends) {
    this.#following = offered.values();
    this.#advance();
  }

  /** Returns the backend of an address. Each backend is returned once. */
  take(address: string): Backend | undefined {
    const next = this.#next;
    if (next?.address === address) {
      this.#advance();
      return next;
    }
    if (next !== undefined) this.#index(next);
    const found = this.#remaining?.get(address);
    if (found !== undefined) this.#remaining?.delete(address);
    return found;
  }

  /** Yields the backends that {@link OrderedMatcher.take} has not returned. The matcher must not be used again. */
  *remaining(): Generator<Backend, void, void> {
    if (this.#next !== undefined) yield this.#next;
    yield* this.#remaining?.values() ?? this.#following;
  }

  #advance(): void {
    const { done, value } = this.#following.next();
    this.#next = done === true ? undefined : value;
  }

  #index(first: Backend): void {
    const remaining = new Map([[first.address, first]]);
    for (const backend of this.#following) remaining.set(backend.address, backend);
    this.#next = undefined;
    this.#remaining = remaining;
  }
}

/** Receives the backend of an address in two versions, undefined if it has none. Returns false to stop. */
export type VisitDifference = (before: Backend | undefined, after: Backend | undefined) => boolean;

/** Returns true if an offer is an immutable map, which can be used directly as the service's backends. */
export function isImmutable(offered: OfferedBackends): offered is Backends {
  return isMap(offered);
}

/**
 * Visits the addresses whose backends differ in two versions, until `visit` returns false. Returns true if it visited
 * all. If both are immutable maps, the cost is linear in the parts that they do not share, otherwise in both.
 */
export function everyDifference(
  before: OfferedBackends,
  after: OfferedBackends,
  visit: VisitDifference,
): boolean {
  const equal = backendComparison();
  if (isImmutable(before) && isImmutable(after))
    return everyMapDifference(
      before,
      after,
      (old, next) => (old !== undefined && next !== undefined && equal(old, next)) || visit(old, next),
    );
  const earlier = new OrderedMatcher(before);
  for (const backend of after.values()) {
    const old = earlier.take(backend.address);
    if ((old === undefined || !equal(old, backend)) && !visit(old, backend)) return false;
  }
  for (const removed of earlier.remaining()) if (!visit(removed, undefined)) return false;
  return true;
}

/** Returns true if two sets of backends are equal. Costs the same as {@link everyDifference}. */
export function equalBackendMaps(a: Backends, b: Backends): boolean {
  return a === b || (a.size === b.size && everyDifference(a, b, () => false));
}

/** Returns `next` with the equal backends of `previous`, or `previous` itself if all are equal. */
function shareBackends(previous: Backends, next: Backends): Backends {
  if (previous.size === 0 || next.size === 0) return previous.size === next.size ? previous : next;
  const shared = previous.asMutable();
  everyDifference(previous, next, (before, after) => {
    if (after !== undefined) shared.set(after.address, after);
    else if (before !== undefined) shared.delete(before.address);
    return true;
  });
  return shared.wasAltered() ? shared.asImmutable() : previous;
}

/**
 * Returns `next` with the equal parts of `previous`, or `previous` itself if all parts are equal. Linear in the slice.
 */
export function shareSlice(previous: EndpointSlice | undefined, next: EndpointSlice): EndpointSlice {
  if (previous === undefined || previous === next) return next;
  const backends = shareBackends(previous.backends, next.backends);
  const notReady = shareBackends(previous.notReady, next.notReady);
  if (backends === previous.backends && notReady === previous.notReady) return previous;
  return { service: next.service, name: next.name, backends, notReady };
}
