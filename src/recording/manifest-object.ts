import { rejection } from '../base/rejection.ts';
import { parseEndpointSlice } from '../k8s/parse-endpoint-slice.ts';
import { parseEndpoints } from '../k8s/parse-endpoints.ts';
import type { Parsed } from '../k8s/parse-object.ts';
import { parseService } from '../k8s/parse-service.ts';
import type { EndpointSlice } from '../servicecache/backend.ts';
import type { ServiceCache } from '../servicecache/service-cache.ts';
import type { Manifest } from './manifests.ts';

/** A parsed object of a manifest. */
export interface ManifestObject {
  /** Kind and name: `Service shop/checkout`. Two versions of an object have the same key. */
  readonly key: string;
  /** Stores the object in the cache. */
  readonly apply: () => void;
  /** Removes the object from the cache. */
  readonly withdraw: () => void;
}

/** Parses one kind of object. */
type Read = (manifest: Manifest, services: ServiceCache) => Parsed<ManifestObject>;

const readService: Read = ({ object, at }, services) => {
  const { value: service, rejections } = parseService(object, { at });
  if (service === undefined) return { value: undefined, rejections };
  const { id } = service;
  const value: ManifestObject = {
    key: `Service ${id.namespace}/${id.name}`,
    apply: () => services.updateService(service),
    withdraw: () => services.deleteService(id),
  };
  return { value, rejections };
};

function endpointsReader(parse: (manifest: Manifest) => Parsed<EndpointSlice>): Read {
  return (manifest, services) => {
    const { value: slice, rejections } = parse(manifest);
    if (slice === undefined) return { value: undefined, rejections };
    const { service: id, name } = slice;
    const value: ManifestObject = {
      key: `Endpoints ${id.namespace}/${id.name} ${name}`,
      apply: () => services.updateEndpoints(slice),
      withdraw: () => services.deleteEndpoints(id, name),
    };
    return { value, rejections };
  };
}

/** Readers by API group and kind. The group matters because `serving.knative.dev` has a different kind `Service`. */
const READERS: ReadonlyMap<string, Read> = new Map([
  ['/Service', readService],
  ['/Endpoints', endpointsReader(({ object, at }) => parseEndpoints(object, { at }))],
  ['discovery.k8s.io/EndpointSlice', endpointsReader(({ object, at }) => parseEndpointSlice(object, { at }))],
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
 * Parses a Service, Endpoints or EndpointSlice. Counts rejections in the cache (I12). Returns `unusable` if it is invalid, and
 * `foreign` if it is of another kind.
 */
export function readManifestObject(
  manifest: Manifest,
  services: ServiceCache,
): ManifestObject | 'unusable' | 'foreign' {
  const { kind, apiVersion = IMPLIED_API_VERSIONS.get(kind) ?? 'v1' } = manifest.object;
  const read = typeof apiVersion === 'string' ? READERS.get(`${groupOf(apiVersion)}/${kind}`) : undefined;
  if (read !== undefined) {
    const { value, rejections } = read(manifest, services);
    for (const rejected of rejections) services.reject(rejected);
    return value ?? 'unusable';
  }
  const named = typeof apiVersion === 'string' && apiVersion !== 'v1' ? `${apiVersion} ${kind}` : kind;
  const why = 'must be Service, Endpoints or EndpointSlice';
  services.reject(rejection('unknown-kind', 'kind', named, why, manifest.at));
  return 'foreign';
}
