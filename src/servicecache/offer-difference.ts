import {
  type Backend,
  type Backends,
  backendComparison,
  type EndpointSlice,
  type OfferedBackends,
} from './backend.ts';
import { InStep } from './in-step.ts';

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
