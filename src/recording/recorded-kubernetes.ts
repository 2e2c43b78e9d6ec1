import type { Clock } from '../base/clock.ts';
import { type Rejection, rejection } from '../base/rejection.ts';
import { showValue } from '../base/show-value.ts';
import { MemoryApiServer } from '../k8s/memory/memory-api-server.ts';
import { MemoryApiTransport } from '../k8s/memory/memory-api-transport.ts';
import { CLUSTER_TYPES, type ResourceType, typeMeta } from '../k8s/memory/resource-types.ts';
import type { ApiTransport } from '../k8s/rest/api-transport.ts';
import { isObject } from '../net/fields.ts';
import { type Manifest, readManifests } from './manifests.ts';

/** A Kubernetes object, as in a manifest. */
export type RecordedObject = Readonly<Record<string, unknown>>;

/** The type, namespace and path of an object in the API. */
interface RequestPlace {
  readonly type: ResourceType;
  /** Undefined if the object is cluster-scoped. */
  readonly namespace: string | undefined;
  /** Path of the objects of the type, in the namespace. */
  readonly collection: string;
  /** Escaped for a path. */
  readonly name: string;
}

const CONFLICT = 409;

/** Maximum nesting of lists and objects. The stack of each Node.js release suffices for several thousand. */
const MAX_DEPTH = 1_000;

function textOf(value: unknown): string {
  return typeof value === 'string' ? value : showValue(value);
}

/** Returns the place of an object, or the reason why it has none. */
function placeOf(object: RecordedObject): RequestPlace | string {
  const { apiVersion, kind, metadata } = object;
  const type = CLUSTER_TYPES.find((one) => one.kind === kind && typeMeta(one).apiVersion === apiVersion);
  if (type === undefined) return `${textOf(apiVersion)} ${textOf(kind)} is not supported`;
  const { name, namespace = 'default' } = isObject(metadata) ? metadata : {};
  if (typeof name !== 'string' || typeof namespace !== 'string') return 'the object has no name';
  if (/\p{Surrogate}/u.test(name + namespace)) return 'the name or namespace is not valid Unicode';
  const root = type.group === '' ? '/api/' : '/apis/';
  const within = type.namespaced ? `/namespaces/${encodeURIComponent(namespace)}` : '';
  const collection = `${root}${typeMeta(type).apiVersion}${within}/${type.plural}`;
  const scope = type.namespaced ? namespace : undefined;
  return { type, namespace: scope, collection, name: encodeURIComponent(name) };
}

/** A Kubernetes API server in this process. It contains recorded objects, and scripts can change them. */
export class RecordedKubernetes {
  readonly #server: MemoryApiServer;
  /** The namespaces of stored objects. */
  readonly #namespaces = new Set<string>();

  constructor(clock: Clock) {
    this.#server = new MemoryApiServer({ clock });
  }

  get transport(): ApiTransport {
    return new MemoryApiTransport(this.#server);
  }

  /**
   * Stores the objects of a file or folder. An object that cannot be stored is passed to `onReject`, and the others are
   * still stored. Throws `InputError` if the path cannot be read.
   */
  async load(path: string, onReject: (rejection: Rejection) => void, onProgress: () => void): Promise<void> {
    await this.store(readManifests(path, onReject, '--k8s-load'), onReject, onProgress);
  }

  /** Stores objects; see {@link RecordedKubernetes.load}. Rejects if `objects` throws. */
  async store(
    objects: AsyncIterable<Manifest>,
    onReject: (rejection: Rejection) => void,
    onProgress: () => void,
  ): Promise<void> {
    for await (const { object, at } of objects) {
      const reason = await this.apply(object);
      if (reason !== undefined) onReject(rejection('unusable-object', 'object', object, reason, at));
      onProgress();
    }
  }

  /**
   * Creates each namespace of a stored object if its Namespace was not recorded, because in an API server an object
   * exists only in an existing namespace.
   */
  async addNamespaces(): Promise<void> {
    for (const namespace of this.#namespaces) {
      const object = { apiVersion: 'v1', kind: 'Namespace', metadata: { name: namespace } };
      await this.#send('POST', '/api/v1/namespaces', JSON.stringify(object));
    }
  }

  /** Creates or replaces an object and its status. Returns the reason if that failed. */
  async apply(object: RecordedObject): Promise<string | undefined> {
    const place = placeOf(object);
    if (typeof place === 'string') return place;
    const { type, namespace, collection, name } = place;
    const body = bodyOf(object);
    if (body === undefined) return 'is nested too deeply';
    let status = await this.#send('POST', collection, body);
    if (status === CONFLICT) status = await this.#send('PUT', `${collection}/${name}`, body);
    if (status >= 300) return refusal(status);
    if (namespace !== undefined) this.#namespaces.add(namespace);
    const hasStatus = type.hasStatus === true && object['status'] !== undefined;
    return hasStatus ? refusal(await this.#send('PUT', `${collection}/${name}/status`, body)) : undefined;
  }

  /** Deletes an object. Its apiVersion, kind and name are sufficient. Returns the reason if that failed. */
  async delete(object: RecordedObject): Promise<string | undefined> {
    const place = placeOf(object);
    if (typeof place === 'string') return place;
    return refusal(await this.#send('DELETE', `${place.collection}/${place.name}`, ''));
  }

  /** Sends a request and returns the HTTP status. */
  async #send(method: 'POST' | 'PUT' | 'DELETE', path: string, body: string): Promise<number> {
    const request = { method, path, authorization: '', contentType: 'application/json' };
    const closed = new AbortController().signal;
    const { status } = await this.#server.handle({ ...request, body, closed });
    return status;
  }
}

/** Returns the JSON of an object; undefined if it is nested more deeply than {@link MAX_DEPTH}. */
function bodyOf(object: RecordedObject): string | undefined {
  try {
    const body = JSON.stringify(object);
    // Each level of nesting takes at least two characters, so a short body needs no check.
    return body.length > 2 * MAX_DEPTH && isTooDeep(object) ? undefined : body;
  } catch {
    return undefined; // JSON.stringify exceeds the stack
  }
}

function isTooDeep(object: RecordedObject): boolean {
  let level: readonly unknown[] = [object];
  for (let depth = 0; level.length > 0; depth++) {
    if (depth > MAX_DEPTH) return true;
    level = level.flatMap((value) =>
      typeof value === 'object' && value !== null ? Object.values(value) : [],
    );
  }
  return false;
}

/** Returns the reason if a status is an error. */
function refusal(status: number): string | undefined {
  return status < 300 ? undefined : `the API server returned status ${status}`;
}
