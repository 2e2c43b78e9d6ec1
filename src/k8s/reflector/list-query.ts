import { resourcePath } from '../client/resource-path.ts';
import type { ResourceKind } from '../resource.ts';
import type { Anchor } from './known-objects.ts';
import type { ListSource } from './reflector-machine.ts';

/** Objects of one page (K 1): about 400 kB, some milliseconds of work. */
const PAGE_SIZE = 500;

type Query = Readonly<Record<string, string | undefined>>;

function path(kind: ResourceKind, query: Query, namespace?: string): string {
  const { labelSelector, fieldSelector } = kind;
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries({ labelSelector, fieldSelector, ...query }))
    if (value !== undefined) search.set(name, value);
  return `${resourcePath(kind, { namespace })}?${search}`;
}

/** All objects, or the page that a token continues with. */
export function listPath(kind: ResourceKind, from: ListSource, version: string, token?: string): string {
  const limit = from === 'pages' ? String(PAGE_SIZE) : undefined;
  if (token !== undefined) return path(kind, { limit, continue: token });
  // Not older than what was seen last; the first list may be as old as the server likes (K 1).
  if (from === 'cache') return path(kind, { resourceVersion: version === '' ? '0' : version });
  return path(kind, { limit });
}

/** What happens after a version. */
export function watchPath(kind: ResourceKind, version: string, timeoutSeconds: number): string {
  return path(kind, {
    watch: 'true',
    allowWatchBookmarks: 'true',
    resourceVersion: version,
    timeoutSeconds: String(timeoutSeconds),
  });
}

/** One object as the server has it now; as a list, which needs no right that following does not need. */
export function anchorPath(kind: ResourceKind, { name, namespace }: Anchor): string {
  const byName = `metadata.name=${name}`;
  const fieldSelector = kind.fieldSelector === undefined ? byName : `${kind.fieldSelector},${byName}`;
  return path(kind, { fieldSelector }, namespace);
}
