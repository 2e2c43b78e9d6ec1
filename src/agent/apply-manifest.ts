import { rejection } from '../base/rejection.ts';
import { parseEndpointSlice } from '../k8s/parse-endpoint-slice.ts';
import { parseEndpoints } from '../k8s/parse-endpoints.ts';
import type { Parsed } from '../k8s/parse-object.ts';
import { parseService } from '../k8s/parse-service.ts';
import type { EndpointSlice } from '../servicecache/backend.ts';
import type { ServiceCache } from '../servicecache/service-cache.ts';
import type { Manifest } from './manifests.ts';

/** An object that is in the cache. */
export interface AppliedObject {
  /** What it is, so that an object that comes again is known: `Service shop/checkout`. */
  readonly key: string;
  /** Takes it out again. */
  readonly withdraw: () => void;
}

/** Puts one kind of object into the cache. */
type Apply = (manifest: Manifest, services: ServiceCache) => Parsed<AppliedObject>;

const applyService: Apply = ({ object, at }, services) => {
  const { value: service, rejections } = parseService(object, { at });
  if (service === undefined) return { value: undefined, rejections };
  services.updateService(service);
  const { id } = service;
  const key = `Service ${id.namespace}/${id.name}`;
  return { value: { key, withdraw: () => services.deleteService(id) }, rejections };
};

function endpointsApplied(parse: (manifest: Manifest) => Parsed<EndpointSlice>): Apply {
  return (manifest, services) => {
    const { value: slice, rejections } = parse(manifest);
    if (slice === undefined) return { value: undefined, rejections };
    services.updateEndpoints(slice);
    const { service: id, name } = slice;
    const key = `Endpoints ${id.namespace}/${id.name} ${name}`;
    return { value: { key, withdraw: () => services.deleteEndpoints(id, name) }, rejections };
  };
}

/** By API group and kind: `serving.knative.dev` has a `Service` too, which is something else. */
const READERS: ReadonlyMap<string, Apply> = new Map([
  ['/Service', applyService],
  ['/Endpoints', endpointsApplied(({ object, at }) => parseEndpoints(object, { at }))],
  [
    'discovery.k8s.io/EndpointSlice',
    endpointsApplied(({ object, at }) => parseEndpointSlice(object, { at })),
  ],
]);

function groupOf(apiVersion: string): string {
  const slash = apiVersion.indexOf('/');
  return slash < 0 ? '' : apiVersion.slice(0, slash);
}

/** What an object without `apiVersion` can only mean, for manifests that were written by hand. */
const IMPLIED_API_VERSIONS: ReadonlyMap<unknown, string> = new Map([
  ['EndpointSlice', 'discovery.k8s.io/v1'],
]);

/**
 * Puts a Service, Endpoints or EndpointSlice into the cache; what is rejected is counted there (I12). `unusable`: it is
 * one, and cannot be used; `foreign`: it is of another kind.
 */
export function applyManifest(
  manifest: Manifest,
  services: ServiceCache,
): AppliedObject | 'unusable' | 'foreign' {
  const { kind, apiVersion = IMPLIED_API_VERSIONS.get(kind) ?? 'v1' } = manifest.object;
  const apply = typeof apiVersion === 'string' ? READERS.get(`${groupOf(apiVersion)}/${kind}`) : undefined;
  if (apply !== undefined) {
    const { value, rejections } = apply(manifest, services);
    for (const rejected of rejections) services.reject(rejected);
    return value ?? 'unusable';
  }
  const named = typeof apiVersion === 'string' && apiVersion !== 'v1' ? `${apiVersion} ${kind}` : kind;
  const why = 'only Service, Endpoints and EndpointSlice are read';
  services.reject(rejection('unknown-kind', 'kind', named, why, manifest.at));
  return 'foreign';
}
