import type { ResourceKind } from '../resource.ts';

/** The place of an object, of all objects of a namespace, or of all objects of all namespaces. */
export interface ResourcePlace {
  readonly namespace?: string | undefined;
  readonly name?: string | undefined;
  readonly subresource?: 'status' | undefined;
}

/** Returns the path of a group and version: `/api/v1`, `/apis/cilium.io/v2`. */
export function groupPath({ group, version }: Pick<ResourceKind, 'group' | 'version'>): string {
  const path = group === '' ? ['api', version] : ['apis', group, version];
  return `/${path.map(encodeURIComponent).join('/')}`;
}

/** Returns the path of a place. */
export function resourcePath(
  kind: ResourceKind,
  { namespace, name, subresource }: ResourcePlace = {},
): string {
  const scope = namespace === undefined ? '' : `/namespaces/${encodeURIComponent(namespace)}`;
  const object = name === undefined ? '' : `/${encodeURIComponent(name)}`;
  const rest = subresource === undefined ? '' : `/${subresource}`;
  return `${groupPath(kind)}${scope}/${encodeURIComponent(kind.plural)}${object}${rest}`;
}

/** Returns a kind as text: `ciliumendpoints.cilium.io/v2`, `pods/v1`. */
export function resourceName({ plural, group, version }: ResourceKind): string {
  return `${group === '' ? plural : `${plural}.${group}`}/${version}`;
}

/** Returns the remedy of a missing right. */
export function rightToGrant(verb: string, { plural, group }: ResourceKind, subresource?: 'status'): string {
  const resource = subresource === undefined ? plural : `${plural}/${subresource}`;
  return `grant the verb "${verb}" on the resource "${resource}" of the API group "${group}"`;
}
