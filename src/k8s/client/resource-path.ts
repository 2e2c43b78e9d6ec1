import type { ResourceKind } from '../resource.ts';

/** Of an object of a kind, or of all. */
export interface ResourcePlace {
  readonly namespace?: string | undefined;
  readonly name?: string | undefined;
  /** A part of an object that is written apart from the rest. */
  readonly part?: 'status' | undefined;
}

/** Where a group and version are: `/api/v1`, `/apis/cilium.io/v2`. */
export function groupPath({ group, version }: Pick<ResourceKind, 'group' | 'version'>): string {
  const path = group === '' ? ['api', version] : ['apis', group, version];
  return `/${path.map(encodeURIComponent).join('/')}`;
}

/** Where the objects of a kind are. */
export function resourcePath(kind: ResourceKind, { namespace, name, part }: ResourcePlace = {}): string {
  const scope = namespace === undefined ? '' : `/namespaces/${encodeURIComponent(namespace)}`;
  const object = name === undefined ? '' : `/${encodeURIComponent(name)}`;
  const rest = part === undefined ? '' : `/${part}`;
  return `${groupPath(kind)}${scope}/${encodeURIComponent(kind.plural)}${object}${rest}`;
}

/** A kind as people write it: `ciliumendpoints.cilium.io/v2`, `pods/v1`. */
export function resourceName({ plural, group, version }: ResourceKind): string {
  return `${group === '' ? plural : `${plural}.${group}`}/${version}`;
}

/** What an administrator is to do where a server refuses. */
export function rightToGrant(verb: string, { plural, group }: ResourceKind, part?: 'status'): string {
  const resource = part === undefined ? plural : `${plural}/${part}`;
  return `grant the verb "${verb}" on the resource "${resource}" of the API group "${group}"`;
}
