import { rejection } from '../base/rejection.ts';
import { parseEndpointSlice } from '../k8s/parse-endpoint-slice.ts';
import { parseEndpoints } from '../k8s/parse-endpoints.ts';
import type { Parsed } from '../k8s/parse-object.ts';
import { parseService } from '../k8s/parse-service.ts';
import type { EndpointSlice } from '../servicecache/backend.ts';
import type { Service } from '../servicecache/service.ts';
import type { ServiceCache } from '../servicecache/service-cache.ts';
import type { Manifest } from './manifests.ts';

/** A parsed object of a manifest. */
export interface ManifestObject {
  /**
   * `Service shop/checkout`, or `Endpoints shop/checkout NAME` with the names of the service and of the Endpoints or
   * EndpointSlice. Two versions of an object have the same key.
   */
  readonly key: string;
  /** Stores the object in the cache. */
  readonly apply: () => void;
  /** Removes the object from the cache. */
  readonly withdraw: () => void;
}

/** The value of a manifest's object. */
export type ManifestValue = { readonly service: Service } | { readonly slice: EndpointSlice };

type ObjectReader<T> = (object: unknown, options: { readonly at: string }) => Parsed<T>;

const readService: ObjectReader<ManifestValue> = (object, options) => {
  const { value: service, rejections } = parseService(object, options);
  return { value: service && { service }, rejections };
};

function endpointsReader(parse: ObjectReader<EndpointSlice>): ObjectReader<ManifestValue> {
  return (object, options) => {
    const { value: slice, rejections } = parse(object, options);
    return { value: slice && { slice }, rejections };
  };
}

function manifestObject(value: ManifestValue, services: ServiceCache): ManifestObject {
  if ('service' in value) {
    const { service } = value;
    const { id } = service;
    return {
      key: `Service ${id.namespace}/${id.name}`,
      apply: () => services.updateService(service),
      withdraw: () => services.deleteService(id),
    };
  }
  const { slice } = value;
  const { service: id, name } = slice;
  return {
    key: `Endpoints ${id.namespace}/${id.name} ${name}`,
    apply: () => services.updateEndpoints(slice),
    withdraw: () => services.deleteEndpoints(id, name),
  };
}

/** Readers by API group and kind. The group matters because `serving.knative.dev` has a different kind `Service`. */
const READERS: ReadonlyMap<string, ObjectReader<ManifestValue>> = new Map([
  ['/Service', readService],
  ['/Endpoints', endpointsReader(parseEndpoints)],
  ['discovery.k8s.io/EndpointSlice', endpointsReader(parseEndpointSlice)],
]);

function groupOf(apiVersion: string): string {
  const slash = apiVersion.indexOf('/');
  return slash < 0 ? '' : apiVersion.slice(0, slash);
}

/** The API version of objects without `apiVersion`, by kind, for manifests that were written by hand. */
const IMPLIED_API_VERSIONS: ReadonlyMap<unknown, string> = new Map([
  ['EndpointSlice', 'discovery.k8s.io/v1'],
]);

/**
 * Parses a Service, Endpoints or EndpointSlice. An object of another kind has one rejection, with the reason
 * `unknown-kind`.
 */
export function parseManifestObject({ object, at }: Manifest): Parsed<ManifestValue> {
  const { kind, apiVersion = IMPLIED_API_VERSIONS.get(kind) ?? 'v1' } = object;
  const read = typeof apiVersion === 'string' ? READERS.get(`${groupOf(apiVersion)}/${kind}`) : undefined;
  if (read !== undefined) return read(object, { at });
  const fullKind = typeof apiVersion === 'string' && apiVersion !== 'v1' ? `${apiVersion} ${kind}` : kind;
  const reason = 'must be Service, Endpoints or EndpointSlice';
  return { value: undefined, rejections: [rejection('unknown-kind', 'kind', fullKind, reason, at)] };
}

/**
 * Parses a Service, Endpoints or EndpointSlice. Counts rejections in the cache (I12). Returns `unusable` if it is
 * invalid, and `other-kind` if it is of another kind.
 */
export function readManifestObject(
  manifest: Manifest,
  services: ServiceCache,
): ManifestObject | 'unusable' | 'other-kind' {
  const { value, rejections } = parseManifestObject(manifest);
  for (const rejected of rejections) services.reject(rejected);
  if (value !== undefined) return manifestObject(value, services);
  return rejections.some(({ reason }) => reason === 'unknown-kind') ? 'other-kind' : 'unusable';
}
