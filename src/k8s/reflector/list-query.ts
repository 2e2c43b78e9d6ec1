import { isObject } from '../../net/fields.ts';
import { ApiError } from '../client/api-error.ts';
import { resourcePath } from '../client/resource-path.ts';
import type { ResourceKind } from '../resource.ts';
import type { Anchor } from './known-objects.ts';
import type { ListSource } from './reflector-machine.ts';

/** Objects of one page (K 1): about 400 kB, some milliseconds of work. */
const PAGE_SIZE = 500;

/** No API server stores an object of more than 3 MB. */
export const LARGEST_OBJECT: number = 16 * 1024 * 1024;

type Query = Readonly<Record<string, string | undefined>>;

function path(kind: ResourceKind, query: Query, namespace?: string): string {
  const { labelSelector, fieldSelector } = kind;
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries({ labelSelector, fieldSelector, ...query }))
    if (value !== undefined) search.set(name, value);
  return `${resourcePath(kind, { namespace })}?${search}`;
}

/** All objects, or the page that a token continues with. */
export function listPath(
  kind: ResourceKind,
  from: ListSource,
  version: string,
  token?: string,
  pageSize: number = PAGE_SIZE,
): string {
  const limit = from === 'pages' ? String(pageSize) : undefined;
  if (token !== undefined) return path(kind, { limit, continue: token });
  // Not older than what was seen last; the first list may be as old as the server likes (K 1).
  if (from === 'cache') return path(kind, { resourceVersion: version === '' ? '0' : version });
  return path(kind, { limit });
}

/** All objects that there are, not older than what was seen last, as the beginning of a watch. */
export function streamPath(kind: ResourceKind, version: string, timeoutSeconds: number): string {
  return path(kind, {
    watch: 'true',
    sendInitialEvents: 'true',
    resourceVersionMatch: 'NotOlderThan',
    resourceVersion: version === '' ? undefined : version,
    allowWatchBookmarks: 'true', // else it does not say where its objects end
    timeoutSeconds: String(timeoutSeconds),
  });
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

/** A list as an object. Throws an {@link ApiError} for what is none. */
export function parseList(text: string): Readonly<Record<string, unknown>> {
  let list: unknown;
  try {
    list = JSON.parse(text);
  } catch {
    // refused below
  }
  if (isObject(list)) return list;
  throw new ApiError('garbled', `the answer is no list: ${text.slice(0, 100)}`);
}

/** Version and continue token of a list without its items. */
export function readListShell(text: string): {
  readonly version: string;
  readonly token: string | undefined;
} {
  const { metadata } = parseList(text);
  const fields = isObject(metadata) ? metadata : {};
  const { resourceVersion: version, continue: token } = fields;
  // A watch from version 0 would say everything, in no order: it could not be resumed.
  if (typeof version !== 'string' || version === '' || version === '0')
    throw new ApiError('garbled', 'the list has no resourceVersion');
  return { version, token: typeof token === 'string' && token !== '' ? token : undefined };
}
