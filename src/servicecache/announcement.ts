import type { Endpoints } from './backend.ts';
import type { ServiceEvent } from './events.ts';
import { equalBackendMaps } from './offer-difference.ts';
import { equalServices, type Service } from './service.ts';
import type { ServiceID } from './service-id.ts';
import { type ServiceState, withAnnouncedParts } from './service-state.ts';

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
  const isSame = equalBackendMaps(before.endpoints.backends, after.endpoints.backends);
  const endpoints = isSame ? before.endpoints : after.endpoints;
  if (service === after.service && endpoints === after.endpoints) return next;
  return withAnnouncedParts(next, service, endpoints);
}
