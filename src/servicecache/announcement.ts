import type { Endpoints } from './backend.ts';
import type { ServiceEvent } from './events.ts';
import { haveSameEndpoints } from './same-endpoints.ts';
import { equalServices, type Service } from './service.ts';
import { type ServiceState, withAnnouncedParts } from './service-state.ts';

/** An announced service and where its traffic goes. Immutable. */
export interface AnnouncedService {
  readonly service: Service;
  /** After affinity. */
  readonly endpoints: Endpoints;
}

/** What listeners have been told of this state: `undefined` when it is not announced. */
export function announcedPart(state: ServiceState | undefined): AnnouncedService | undefined {
  if (state?.service === undefined || !state.announced) return undefined;
  return { service: state.service, endpoints: state.endpoints };
}

/**
 * The event that takes a listener from one state to the next; `undefined` when it would learn nothing (I3).
 * States share what is equal, so two pointers tell.
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
