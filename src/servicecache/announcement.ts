import type { Map as ImmutableMap } from 'immutable';
import { preferenceOf } from './affinity.ts';
import {
  type Backends,
  backendComparison,
  type EndpointSlice,
  type Endpoints,
  NO_BACKENDS,
  type OfferedBackends,
} from './backend.ts';
import type { ServiceEvent } from './events.ts';
import { equalBackendMaps, everyDifference, type VisitDifference } from './offer-difference.ts';
import { equalServices, type Service } from './service.ts';
import type { ServiceID } from './service-id.ts';
import {
  NO_OFFER,
  type Offer,
  offeredBySlice,
  type ServiceState,
  withAnnouncedParts,
} from './service-state.ts';

/** An announced service and its endpoints. Immutable. */
export interface AnnouncedService {
  readonly service: Service;
  /** The effective endpoints: if the service has an affinity, only those that the affinity selects. */
  readonly endpoints: Endpoints;
}

/** Returns the part of a state that listeners receive; `undefined` if it is not announced. */
export function announcedPart(state: ServiceState | undefined): AnnouncedService | undefined {
  if (state?.service === undefined || !state.announced) return undefined;
  return { service: state.service, endpoints: state.endpoints };
}

/**
 * Returns the event that leads from one state to the next; `undefined` if listeners would see no difference (I3).
 * Compares references only: {@link shareAnnounced} must have replaced equal parts of the next state by the objects of
 * the old one.
 */
export function changeBetween(
  old: ServiceState | undefined,
  next: ServiceState | undefined,
): ServiceEvent | undefined {
  const id = next?.id ?? old?.id;
  return id && eventBetween(id, announcedPart(old), announcedPart(next));
}

/** Like {@link changeBetween}, for the announced parts of the states of a service. */
export function eventBetween(
  id: ServiceID,
  before: AnnouncedService | undefined,
  after: AnnouncedService | undefined,
): ServiceEvent | undefined {
  const last = after ?? before;
  const isSame = before?.service === after?.service && before?.endpoints === after?.endpoints;
  if (last === undefined || isSame) return undefined;
  return {
    action: after === undefined ? 'delete' : 'update',
    id,
    service: last.service,
    oldService: before?.service,
    endpoints: last.endpoints,
    oldEndpoints: before?.endpoints,
  };
}

/** Returns `next` with the service and endpoints of `old` if they are equal and both states are announced. */
export function shareAnnounced(old: ServiceState | undefined, next: ServiceState): ServiceState {
  const before = announcedPart(old);
  const after = announcedPart(next);
  if (old === undefined || before === undefined || after === undefined) return next;
  const service = equalServices(before.service, after.service) ? before.service : after.service;
  const endpoints = haveSameEndpoints(old, next) ? before.endpoints : after.endpoints;
  if (service === after.service && endpoints === after.endpoints) return next;
  return withAnnouncedParts(next, service, endpoints);
}

/**
 * Returns true if both states select backends by the same rules. Both or neither include remote clusters, both or
 * neither include backends that are not ready, and neither has an affinity.
 */
function haveSameSelection(a: ServiceState, b: ServiceState): boolean {
  return (
    a.service?.global === b.service?.global &&
    a.service?.publishNotReady === b.service?.publishNotReady &&
    preferenceOf(a.service) === undefined &&
    preferenceOf(b.service) === undefined
  );
}

/**
 * Calls {@link everyDifference} for each origin in one or both maps, by name, until `visit` returns false. Returns true
 * if it visited all differences. Skips origins that are the same object in both maps.
 */
function everyDifferenceIn<T>(
  before: ImmutableMap<string, T>,
  after: ImmutableMap<string, T>,
  offered: (origin: T | undefined) => OfferedBackends,
  visit: VisitDifference,
): boolean {
  if (before === after) return true;
  const visitedOld = before.every((old, name) => {
    const next = after.get(name);
    return old === next || everyDifference(offered(old), offered(next), visit);
  });
  return (
    visitedOld &&
    after.every((next, name) => before.has(name) || everyDifference(NO_BACKENDS, offered(next), visit))
  );
}

/**
 * Returns true if the endpoints of two states of one service are equal. Only addresses with a changed input are
 * compared, because endpoints are derived from the inputs. The cost is linear in the changes, plus one check of each
 * slice and cluster. If the states select backends by different rules, or one has an affinity, all addresses are
 * compared.
 */
function haveSameEndpoints(old: ServiceState, next: ServiceState): boolean {
  const before = old.endpoints.backends;
  const after = next.endpoints.backends;
  if (before === after) return true;
  if (before.size !== after.size) return false;
  if (!haveSameSelection(old, next)) return equalBackendMaps(before, after);
  const equal = backendComparison();
  const isUnchanged: VisitDifference = (was, is) => {
    const address = was?.address ?? is?.address ?? '';
    const [a, b] = [before.get(address), after.get(address)];
    return a === undefined || b === undefined ? a === b : equal(a, b);
  };
  const offered = (slice: EndpointSlice | undefined): Backends => offeredBySlice(slice, next.service);
  return (
    everyDifferenceIn(old.slices, next.slices, offered, isUnchanged) &&
    everyOfferDifference(old.remotes, next.remotes, offered, isUnchanged)
  );
}

/** Like {@link everyDifferenceIn}, for the offers of remote clusters. */
function everyOfferDifference(
  before: ServiceState['remotes'],
  after: ServiceState['remotes'],
  offered: (slice: EndpointSlice | undefined) => OfferedBackends,
  visit: VisitDifference,
): boolean {
  if (before === after) return true;
  const isSame = (old: Offer, next: Offer): boolean =>
    old === next ||
    (everyDifference(old.whole ?? NO_BACKENDS, next.whole ?? NO_BACKENDS, visit) &&
      everyDifferenceIn(old.slices, next.slices, offered, visit));
  return (
    before.every((old, cluster) => isSame(old, after.get(cluster) ?? NO_OFFER)) &&
    after.every((next, cluster) => before.has(cluster) || isSame(NO_OFFER, next))
  );
}
