import type { Backend, EndpointSlice } from './backend.ts';
import type { Service } from './service.ts';
import type { ServiceID } from './service-id.ts';
import {
  partName,
  type ServiceState,
  withRemoteSlice,
  withService,
  withSlice,
  withWholeOffer,
} from './service-state.ts';

/** One input of a service. A checkpoint of a `ServiceCache` is a list of parts. */
export type ServicePart =
  | { readonly kind: 'service'; readonly id: ServiceID; readonly service: Service }
  | { readonly kind: 'slice'; readonly id: ServiceID; readonly slice: EndpointSlice }
  | {
      /** The whole offer of a remote cluster, in the format `services/v1`. */
      readonly kind: 'offer';
      readonly id: ServiceID;
      /** The remote cluster; never empty. */
      readonly cluster: string;
      readonly backends: readonly Backend[];
    }
  | {
      /** A slice of the offer of a remote cluster. */
      readonly kind: 'remote-slice';
      readonly id: ServiceID;
      /** The remote cluster; never empty. */
      readonly cluster: string;
      readonly slice: EndpointSlice;
    };

export function* servicePartsOf({
  id,
  service,
  slices,
  remotes,
}: ServiceState): Generator<ServicePart, void, void> {
  if (service !== undefined) yield { kind: 'service', id, service };
  for (const slice of slices.values()) yield { kind: 'slice', id, slice };
  for (const [cluster, offer] of remotes) {
    if (offer.whole !== undefined) yield { kind: 'offer', id, cluster, backends: offer.whole };
    for (const slice of offer.slices.values()) yield { kind: 'remote-slice', id, cluster, slice };
  }
}

/** Returns the name of a part within its service. See {@link partName}. */
export function servicePartName(part: ServicePart): string {
  if (part.kind === 'slice') return partName('slice', part.slice.name);
  if (part.kind === 'remote-slice') return partName(part.kind, part.cluster, part.slice.name);
  return partName(part.kind, clusterOfPart(part));
}

/** Returns the cluster that a part comes from; empty for the local one. */
export function clusterOfPart(part: ServicePart): string {
  return part.kind === 'offer' || part.kind === 'remote-slice' ? part.cluster : '';
}

/** Returns true if the part comes from a checkpoint and no source has confirmed it. */
export function isRestoredPart({ restored }: ServiceState, part: ServicePart): boolean {
  return restored.size > 0 && restored.has(servicePartName(part));
}

/** Returns true if a state has the part, with this or another value. */
export function hasServicePart({ service, slices, remotes }: ServiceState, part: ServicePart): boolean {
  if (part.kind === 'service') return service !== undefined;
  if (part.kind === 'slice') return slices.has(part.slice.name);
  const offer = remotes.get(part.cluster);
  return part.kind === 'offer' ? offer?.whole !== undefined : offer?.slices.has(part.slice.name) === true;
}

export function withServicePart(state: ServiceState, part: ServicePart): ServiceState {
  if (part.kind === 'service') return withService(state, part.service);
  if (part.kind === 'slice') return withSlice(state, part.slice.name, part.slice);
  if (part.kind === 'offer') return withWholeOffer(state, part.cluster, part.backends);
  return withRemoteSlice(state, part.cluster, part.slice.name, part.slice);
}

export function withoutServicePart(state: ServiceState, part: ServicePart): ServiceState {
  if (part.kind === 'service') return withService(state, undefined);
  if (part.kind === 'slice') return withSlice(state, part.slice.name, undefined);
  if (part.kind === 'remote-slice') return withRemoteSlice(state, part.cluster, part.slice.name, undefined);
  return withWholeOffer(state, part.cluster, undefined);
}
