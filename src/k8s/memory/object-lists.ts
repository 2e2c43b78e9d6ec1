import { Buffer } from 'node:buffer';
import type { Clock } from '../../base/clock.ts';
import { sleep } from '../../base/sleep.ts';
import { isObject } from '../../net/fields.ts';
import type { KubernetesObject } from '../resource.ts';
import { StatusError } from './api-status.ts';
import type { ObjectStore } from './object-store.ts';
import { resourceKey } from './object-writes.ts';
import type { ResourceType } from './resource-types.ts';
import type { Selects } from './selectors.ts';
import type { WatchCache } from './watch-cache.ts';

/** The objects of a list or watch. */
export interface Selection {
  readonly type: ResourceType;
  /** Undefined for all namespaces. */
  readonly namespace: string | undefined;
  readonly selects: Selects;
  /** True if there is a selector. Lists then have no `remainingItemCount`. */
  readonly isNarrow: boolean;
}

/** A list, or a page of a list. */
export interface ObjectList {
  readonly version: number;
  readonly objects: readonly KubernetesObject[];
  /** The continue token; undefined if the list is complete. */
  readonly token: string | undefined;
  /** Number of objects after this page, if it is known. */
  readonly remaining: number | undefined;
}

interface Token {
  /** {@link LATEST} for an inconsistent list, which continues at the current version. */
  readonly version: number;
  /** The page starts after this key. */
  readonly after: string;
}

/** The version of the token in the response to an expired token. */
const LATEST = -1;

/** Time for which a request waits if its version is ahead of the watch cache. */
const VERSION_WAIT_MS = 3000;

function tokenText(token: Token): string {
  return Buffer.from(JSON.stringify({ v: 'meta.k8s.io/v1', rv: token.version, start: token.after })).toString(
    'base64url',
  );
}

function readToken(text: string): Token {
  try {
    const token: unknown = JSON.parse(Buffer.from(text, 'base64url').toString());
    const { rv, start } = isObject(token) ? token : {};
    if (typeof rv === 'number' && typeof start === 'string') return { version: rv, after: start };
  } catch {
    // rejected below
  }
  throw new StatusError('BadRequest', 'continue key is not valid');
}

/** Returns the number of a resourceVersion; `undefined` if it is absent. */
export function readVersion(text: string | null): number | undefined {
  if (text === null || text === '') return undefined;
  if (/^\d{1,15}$/.test(text)) return Number(text);
  throw new StatusError('BadRequest', `Invalid value: "${text}": resourceVersion is invalid`);
}

/** Lists objects as the Kubernetes API defines: from the watch cache or from etcd, in pages. */
export class ObjectLists {
  readonly #store: ObjectStore;
  readonly #cache: WatchCache;
  readonly #clock: Clock;

  constructor(store: ObjectStore, cache: WatchCache, clock: Clock) {
    this.#store = store;
    this.#cache = cache;
    this.#clock = clock;
  }

  async list(selection: Selection, query: URLSearchParams): Promise<ObjectList> {
    const limit = Number(query.get('limit') ?? 0);
    const token = query.get('continue');
    if (token !== null && token !== '') return this.#continue(selection, readToken(token), limit);
    const version = readVersion(query.get('resourceVersion'));
    if (version === undefined) return this.#page(selection, this.#store.version, '', limit);
    const resource = resourceKey(selection.type);
    if (version > this.#cache.versionOf(resource)) await sleep(this.#clock, VERSION_WAIT_MS);
    const known = this.#cache.versionOf(resource);
    if (version > known) throw versionTooLarge(version, known);
    return this.#page(selection, Math.max(known, this.#store.compacted), '', 0);
  }

  #continue(selection: Selection, { version, after }: Token, limit: number): ObjectList {
    if (version === LATEST) return this.#page(selection, this.#store.version, after, limit);
    if (version >= this.#store.compacted) return this.#page(selection, version, after, limit);
    throw new StatusError(
      'Expired',
      'The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.',
      { token: tokenText({ version: LATEST, after }) },
    );
  }

  #page(selection: Selection, version: number, after: string, limit: number): ObjectList {
    const { type, namespace, selects, isNarrow } = selection;
    const all = this.#store
      .list(resourceKey(type), version)
      .filter(([key, object]) => key > after && inNamespace(object, namespace) && selects(object));
    const page = limit > 0 ? all.slice(0, limit) : all;
    const remaining = all.length - page.length;
    const last = page.at(-1)?.[0] ?? '';
    return {
      version,
      objects: page.map(([, object]) => object),
      token: remaining > 0 ? tokenText({ version, after: last }) : undefined,
      remaining: remaining > 0 && !isNarrow ? remaining : undefined,
    };
  }
}

/** Returns true if an object is in the namespace; `undefined` matches all. */
export function inNamespace(object: KubernetesObject, namespace: string | undefined): boolean {
  return namespace === undefined || object.metadata.namespace === namespace;
}

/** Returns the error for a version ahead of the watch cache. */
export function versionTooLarge(version: number, known: number): StatusError {
  const message = `Too large resource version: ${version}, current: ${known}`;
  const causes = [{ reason: 'ResourceVersionTooLarge', message: 'Too large resource version' }];
  return new StatusError('Timeout', `Timeout: ${message}`, { details: { causes, retryAfterSeconds: 1 } });
}
