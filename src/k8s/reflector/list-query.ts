import { cutText } from '../../base/show-value.ts';
import { isObject, parseJson } from '../../net/fields.ts';
import type { ResourceKind } from '../resource.ts';
import { ApiError, withoutSecret } from '../rest/api-error.ts';
import { resourcePath } from '../rest/resource-path.ts';
import type { LastPut } from './known-objects.ts';
import type { ListSource } from './reflector-machine.ts';

/** Objects per page (KUBERNETES 1): about 400 kB, a few milliseconds of work. */
const PAGE_SIZE = 500;

/** Maximum size of an object. An API server stores at most 3 MB. */
export const MAX_OBJECT_BYTES: number = 16 * 1024 * 1024;

/** Maximum number of consecutive pages without a new object. */
const MAX_REPEATED_PAGES = 100;

type Query = Readonly<Record<string, string | undefined>>;

/** Returns the path of a kind with its selectors and a query. */
function pathOf(kind: ResourceKind, query: Query, namespace?: string): string {
  const { labelSelector, fieldSelector } = kind;
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries({ labelSelector, fieldSelector, ...query }))
    if (value !== undefined) search.set(name, value);
  return `${resourcePath(kind, { namespace })}?${search}`;
}

/** Returns the path for all objects, or for the page of a continue token. */
export function listPath(
  kind: ResourceKind,
  from: ListSource,
  version: string,
  token?: string,
  pageSize: number = PAGE_SIZE,
): string {
  const limit = from === 'pages' ? String(pageSize) : undefined;
  if (token !== undefined) return pathOf(kind, { limit, continue: token });
  // With a version, the response is not older than this version. The first list may have any age (KUBERNETES 1).
  if (from === 'cache') return pathOf(kind, { resourceVersion: version === '' ? '0' : version });
  return pathOf(kind, { limit });
}

/** Returns the path of a watch that begins with all objects, not older than the last known version. */
export function streamPath(kind: ResourceKind, version: string, timeoutSeconds: number): string {
  return pathOf(kind, {
    watch: 'true',
    sendInitialEvents: 'true',
    resourceVersionMatch: 'NotOlderThan',
    resourceVersion: version === '' ? undefined : version,
    allowWatchBookmarks: 'true', // a bookmark marks the end of the objects
    timeoutSeconds: String(timeoutSeconds),
  });
}

/** Returns the path of a watch that starts after `version`. */
export function watchPath(kind: ResourceKind, version: string, timeoutSeconds: number): string {
  return pathOf(kind, {
    watch: 'true',
    allowWatchBookmarks: 'true',
    resourceVersion: version,
    timeoutSeconds: String(timeoutSeconds),
  });
}

/**
 * Returns the path that reads the current version of an object, as a list, for which a reflector has the right.
 */
export function lastPutPath(kind: ResourceKind, { name, namespace }: LastPut): string {
  const byName = `metadata.name=${name}`;
  const fieldSelector = kind.fieldSelector === undefined ? byName : `${kind.fieldSelector},${byName}`;
  return pathOf(kind, { fieldSelector }, namespace);
}

/**
 * Returns a list as an object. Throws an {@link ApiError} if the text is not an object. `secret` is the credential of
 * the request.
 */
export function parseList(text: string, secret?: string): Readonly<Record<string, unknown>> {
  const list = parseJson(text);
  if (isObject(list)) return list;
  throw new ApiError('garbled', `the response is not a list: ${withoutSecret(text, secret).slice(0, 100)}`);
}

/**
 * Returns the version and the continue token of a list without its items. A token equal to `requestedToken`, that of
 * the request, is an error, because the list would never end. `secret` is the credential of the request.
 */
export function readListShell(
  text: string,
  requestedToken?: string,
  secret?: string,
): {
  readonly version: string;
  readonly token: string | undefined;
} {
  const { metadata, items } = parseList(text, secret);
  const fields = isObject(metadata) ? metadata : {};
  const { resourceVersion: version, continue: token } = fields;
  // Version 0 is rejected, because a watch from version 0 sends all objects in any order and cannot be resumed.
  if (typeof version !== 'string' || version === '' || version === '0')
    throw new ApiError('garbled', 'the list has no resourceVersion');
  // Another response must not count as an empty list, which deletes all objects. Go may encode an empty list as null.
  if (items !== null && !Array.isArray(items)) throw new ApiError('garbled', 'the list has no items');
  if (token !== undefined && token === requestedToken)
    throw new ApiError('garbled', `the list repeats its continue token ${cutText(requestedToken, 100)}`);
  return { version, token: typeof token === 'string' && token !== '' ? token : undefined };
}

/**
 * Returns the number of consecutive pages without a new object, including this page. Throws an {@link ApiError} after
 * {@link MAX_REPEATED_PAGES}, because the list may never end.
 */
export function countRepeatedPages(before: number, hasNewObject: boolean): number {
  const repeated = hasNewObject ? 0 : before + 1;
  if (repeated <= MAX_REPEATED_PAGES) return repeated;
  throw new ApiError('garbled', `the list has no new object in ${repeated} pages`);
}
