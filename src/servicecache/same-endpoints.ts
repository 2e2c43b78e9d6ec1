import type { Map as ImmutableMap } from 'immutable';
import { preferenceOf } from './affinity.ts';
import { backendComparison, NO_BACKENDS, type OfferedBackends } from './backend.ts';
import { equalBackendMaps, everyDifference, type VisitDifference } from './offer-difference.ts';
import { offeredBySlice, type ServiceState } from './service-state.ts';

/** Whether both states count the same origins, and take all their winners. */
function countsAlike(a: ServiceState, b: ServiceState): boolean {
  return (
    a.service?.global === b.service?.global &&
    a.service?.publishNotReady === b.service?.publishNotReady &&
    preferenceOf(a.service) === undefined &&
    preferenceOf(b.service) === undefined
  );
}

/** {@link everyDifference} for all origins of a kind. Those that are the same object are passed over. */
function everyDifferenceIn<T>(
  before: ImmutableMap<string, T>,
  after: ImmutableMap<string, T>,
  offered: (origin: T | undefined) => OfferedBackends,
  visit: VisitDifference,
): boolean {
  if (before === after) return true;
  const stay = before.every((old, name) => {
    const next = after.get(name);
    return old === next || everyDifference(offered(old), offered(next), visit);
  });
  return (
    stay &&
    after.every((next, name) => before.has(name) || everyDifference(NO_BACKENDS, offered(next), visit))
  );
}

/**
 * Whether the endpoints of two states of one service say the same. They follow from the inputs, so only the
 * addresses of which some input says something else are compared: the cost is that of what has changed, and one
 * look at each slice and cluster. Where the service counts other origins now, or has an affinity, all of them are.
 */
export function haveSameEndpoints(old: ServiceState, next: ServiceState): boolean {
  const before = old.endpoints.backends;
  const after = next.endpoints.backends;
  if (before === after) return true;
  if (before.size !== after.size) return false;
  if (!countsAlike(old, next)) return equalBackendMaps(before, after);
  const equal = backendComparison();
  const isSame: VisitDifference = (was, is) => {
    const address = was?.address ?? is?.address ?? '';
    const [a, b] = [before.get(address), after.get(address)];
    return a === undefined || b === undefined ? a === b : equal(a, b);
  };
  return (
    everyDifferenceIn(old.slices, next.slices, (slice) => offeredBySlice(slice, next.service), isSame) &&
    everyDifferenceIn(old.remotes, next.remotes, (offer) => offer ?? NO_BACKENDS, isSame)
  );
}
