import { type Rejection, rejection } from '../base/rejection.ts';
import { parseEndpointSlice } from '../k8s/parse-endpoint-slice.ts';
import { parseEndpoints } from '../k8s/parse-endpoints.ts';
import { parseService } from '../k8s/parse-service.ts';
import type { ServiceCache } from '../servicecache/service-cache.ts';
import type { Manifest } from './manifests.ts';

/** Puts one kind of object into the cache; gives what was rejected of it. */
type Apply = (manifest: Manifest, services: ServiceCache) => readonly Rejection[];

const applyService: Apply = ({ object, at }, services) => {
  const { value, rejections } = parseService(object, { at });
  if (value !== undefined) services.updateService(value);
  return rejections;
};

const applyEndpoints: Apply = ({ object, at }, services) => {
  const { value, rejections } = parseEndpoints(object, { at });
  if (value !== undefined) services.updateEndpoints(value);
  return rejections;
};

const applyEndpointSlice: Apply = ({ object, at }, services) => {
  const { value, rejections } = parseEndpointSlice(object, { at });
  if (value !== undefined) services.updateEndpoints(value);
  return rejections;
};

/** By API group and kind: `serving.knative.dev` has a `Service` too, which is something else. */
const READERS: ReadonlyMap<string, Apply> = new Map([
  ['/Service', applyService],
  ['/Endpoints', applyEndpoints],
  ['discovery.k8s.io/EndpointSlice', applyEndpointSlice],
]);

function groupOf(apiVersion: string): string {
  const slash = apiVersion.indexOf('/');
  return slash < 0 ? '' : apiVersion.slice(0, slash);
}

/** What an object without `apiVersion` can only mean, for manifests that were written by hand. */
const IMPLIED_API_VERSIONS: ReadonlyMap<unknown, string> = new Map([
  ['EndpointSlice', 'discovery.k8s.io/v1'],
]);

/** Puts a Service, Endpoints or EndpointSlice into the cache; what is rejected is counted there (I12). */
export function applyManifest(manifest: Manifest, services: ServiceCache): void {
  const { kind, apiVersion = IMPLIED_API_VERSIONS.get(kind) ?? 'v1' } = manifest.object;
  const apply = typeof apiVersion === 'string' ? READERS.get(`${groupOf(apiVersion)}/${kind}`) : undefined;
  if (apply !== undefined) {
    for (const rejected of apply(manifest, services)) services.reject(rejected);
    return;
  }
  const named = typeof apiVersion === 'string' && apiVersion !== 'v1' ? `${apiVersion} ${kind}` : kind;
  const why = 'only Service, Endpoints and EndpointSlice are read';
  services.reject(rejection('unknown-kind', 'kind', named, why, manifest.at));
}
