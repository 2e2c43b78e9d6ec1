import type { EndpointSlice, Ports } from '../../servicecache/backend.ts';
import type { Service } from '../../servicecache/service.ts';
import type { ServiceCache } from '../../servicecache/service-cache.ts';
import { endpointSliceScanner } from '../endpoint-slice-scanner.ts';
import { ENDPOINT_SLICE_FIELDS, readEndpointSlice } from '../parse-endpoint-slice.ts';
import { ENDPOINTS_FIELDS, readEndpoints } from '../parse-endpoints.ts';
import type { ObjectFields } from '../parse-object.ts';
import { readService, SERVICE_FIELDS } from '../parse-service.ts';
import { serviceScanner } from '../service-scanner.ts';
import { SharedValues } from '../shared-values.ts';
import type { KindReader } from './object-feed.ts';

/** The methods of `ServiceCache` which the feed calls. */
export type FedServices = Pick<
  ServiceCache,
  'updateService' | 'deleteService' | 'updateEndpoints' | 'deleteEndpoints' | 'batch'
>;

/**
 * Returns a reader that writes services to the service cache. It has no `same`, because the cache itself ignores an
 * unchanged service (KUBERNETES 42).
 */
export function serviceReader(services: FedServices): KindReader<Service> {
  const ports = new SharedValues<Service['ports']>();
  return {
    kind: 'Service',
    fields: SERVICE_FIELDS,
    scanner: serviceScanner(ports),
    read: (fields) => readService(fields, ports),
    change: (current, previous) => {
      if (current !== undefined) services.updateService(current);
      else if (previous !== undefined) services.deleteService(previous.id);
    },
    batch: (changes) => services.batch(changes),
  };
}

/**
 * Returns a reader that writes slices to the service cache. If the label of a slice names another service than before,
 * the slice is removed from the previous service (KUBERNETES 10).
 */
function sliceReader(
  decoding: Pick<KindReader<EndpointSlice>, 'kind' | 'fields' | 'scanner' | 'read'>,
  services: FedServices,
): KindReader<EndpointSlice> {
  return {
    ...decoding,
    change: (current, previous) => {
      if (current !== undefined) services.updateEndpoints(current);
      if (previous !== undefined && previous.service.name !== current?.service.name)
        services.deleteEndpoints(previous.service, previous.name);
    },
    batch: (changes) => services.batch(changes),
  };
}

/** Returns the reader of EndpointSlices, v1 or v1beta1. */
export function endpointSliceReader(services: FedServices): KindReader<EndpointSlice> {
  const ports = new SharedValues<Ports>();
  const read = (fields: ObjectFields): EndpointSlice | undefined => readEndpointSlice(fields, ports);
  const scanner = endpointSliceScanner(ports);
  return sliceReader({ kind: 'EndpointSlice', fields: ENDPOINT_SLICE_FIELDS, scanner, read }, services);
}

/** Returns the reader of Endpoints, which are never used together with slices (KUBERNETES 13). */
export function endpointsReader(services: FedServices): KindReader<EndpointSlice> {
  return sliceReader({ kind: 'Endpoints', fields: ENDPOINTS_FIELDS, read: readEndpoints }, services);
}
