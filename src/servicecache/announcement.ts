import type { Map as ImmutableMap } from '#immutable';
import { preferenceOf } from './affinity.ts';
import { backendComparison, type Endpoints, NO_BACKENDS, type OfferedBackends } from './backend.ts';
import type { ServiceEvent } from './events.ts';
import { equalBackendMaps, everyDifference, type VisitDifference } from './offer-difference.ts';
import { equalServices, type Service } from './service.ts';
import { offeredBySlice, type ServiceState, withAnnouncedParts } from './service-state.ts';

/** An announced service and where its traffic goes. Immutable. */
export interface AnnouncedService {
  readonly service: Service;
  /** After affinity. */
  readonly endpoints: Endpoints;
}

/** What listeners receive of this state: `undefined` when it is not announced. */
export function announcedPart(state: ServiceState | undefined): AnnouncedService | undefined {
  if (state?.service === undefined || !state.announced) return undefined;
  return { service: state.service, endpoints: state.endpoints };
}

/**
 * The event that takes a listener from one state to the next; `undefined` when it would learn nothing (I3).
 * States share what is equal, so comparing two pointers is enough.
 */
export function changeBetween(
  old: ServiceState | undefined,
  next: ServiceState | undefined,
): ServiceEvent | undefined {
  const before = announcedPart(old);
  const after = announcedPart(next);
  const id = next?.id ?? old?.id;
  if (id === undefined) return undefined;
  if (after === undefined) {
    if (before === undefined) return undefined;
    const { service, endpoints } = before;
    return { action: 'delete', id, service, oldService: service, endpoints, oldEndpoints: endpoints };
  }
  const { service, endpoints } = after;
  if (before?.service === service && before.endpoints === endpoints) return undefined;
  return {
    action: 'update',
    id,
    service,
    oldService: before?.service,
    endpoints,
    oldEndpoints: before?.endpoints,
  };
}

/** `next`, with the service and the endpoints of `old` where they say the same and both are announced. */
export function shareAnnounced(old: ServiceState | undefined, next: ServiceState): ServiceState {
  const before = announcedPart(old);
  const after = announcedPart(next);
  if (old === undefined || before === undefined || after === undefined) return next;
  const service = equalServices(before.service, after.service) ? before.service : after.service;
  const endpoints = haveSameEndpoints(old, next) ? before.endpoints : after.endpoints;
  if (service === after.service && endpoints === after.endpoints) return next;
  return withAnnouncedParts(next, service, endpoints);
}

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
function haveSameEndpoints(old: ServiceState, next: ServiceState): boolean {
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
