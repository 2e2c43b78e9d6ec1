import {
  type Backend,
  type Backends,
  backendComparison,
  type EndpointSlice,
  type OfferedBackends,
} from './backend.ts';

/**
 * The backends of one version of an offer, to be matched with those of another: nearly all are listed in the same
 * order, so both are walked side by side, without a lookup. From the first one that is not where it was, what is left
 * is looked up.
 */
export class InStep {
  readonly #walk: IterableIterator<Backend>;
  #next: Backend | undefined;
  /** Those not taken, by address, once a lookup was needed. */
  #left: Map<string, Backend> | undefined;

  constructor(offered: OfferedBackends) {
    this.#walk = offered.values();
    this.#advance();
  }

  /** The backend of that address; each is given once. */
  take(address: string): Backend | undefined {
    const next = this.#next;
    if (next?.address === address) {
      this.#advance();
      return next;
    }
    if (next !== undefined) this.#index(next);
    const found = this.#left?.get(address);
    if (found !== undefined) this.#left?.delete(address);
    return found;
  }

  /** Those that were not taken. Ends the walk. */
  *left(): Generator<Backend, void, void> {
    if (this.#next !== undefined) yield this.#next;
    yield* this.#left?.values() ?? this.#walk;
  }

  #advance(): void {
    const { done, value } = this.#walk.next();
    this.#next = done === true ? undefined : value;
  }

  #index(first: Backend): void {
    const left = new Map([[first.address, first]]);
    for (const backend of this.#walk) left.set(backend.address, backend);
    this.#next = undefined;
    this.#left = left;
  }
}

/** What an offer says of an address in two versions; undefined in a version that does not name it. */
export type VisitDifference = (before: Backend | undefined, after: Backend | undefined) => boolean;

/**
 * Visits each address of which two versions of an offer say different things, until `visit` returns false. Whether
 * it went through. Costs the size of both.
 */
export function everyDifference(
  before: OfferedBackends,
  after: OfferedBackends,
  visit: VisitDifference,
): boolean {
  const equal = backendComparison();
  const earlier = new InStep(before);
  for (const backend of after.values()) {
    const old = earlier.take(backend.address);
    if ((old === undefined || !equal(old, backend)) && !visit(old, backend)) return false;
  }
  for (const gone of earlier.left()) if (!visit(gone, undefined)) return false;
  return true;
}

/** Whether two sets of backends say the same. Costs the size of the set, nothing when they are one object. */
export function equalBackendMaps(a: Backends, b: Backends): boolean {
  return a === b || (a.size === b.size && everyDifference(a, b, () => false));
}

/**
 * `next` with the parts of `previous` that say the same, so that what is equal is one object; `previous` itself
 * when all of it is. Costs the size of the slice.
 */
export function shareSlice(previous: EndpointSlice | undefined, next: EndpointSlice): EndpointSlice {
  if (previous === undefined || previous === next) return next;
  const sameBackends = equalBackendMaps(previous.backends, next.backends);
  const sameNotReady = equalBackendMaps(previous.notReady, next.notReady);
  if (sameBackends && sameNotReady) return previous;
  return {
    service: next.service,
    name: next.name,
    backends: sameBackends ? previous.backends : next.backends,
    notReady: sameNotReady ? previous.notReady : next.notReady,
  };
}
