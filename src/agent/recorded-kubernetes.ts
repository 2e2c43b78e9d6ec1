import type { Clock } from '../base/clock.ts';
import { type Rejection, rejection } from '../base/rejection.ts';
import type { ApiTransport } from '../k8s/client/api-transport.ts';
import { MemoryApiServer } from '../k8s/memory/memory-api-server.ts';
import { MemoryApiTransport } from '../k8s/memory/memory-api-transport.ts';
import { CLUSTER_TYPES, type ResourceType } from '../k8s/memory/resource-types.ts';
import { isObject } from '../net/fields.ts';
import { readManifests } from './manifests.ts';

/** An object of Kubernetes, as a manifest has it. */
export type RecordedObject = Readonly<Record<string, unknown>>;

/** Where an object is: its kind, and the path of its collection. */
interface Place {
  readonly type: ResourceType;
  readonly collection: string;
  readonly name: string;
}

const CONFLICT = 409;

function placeOf(object: RecordedObject): Place | string {
  const { apiVersion, kind, metadata } = object;
  const versionOf = ({ group, version }: ResourceType): string =>
    group === '' ? version : `${group}/${version}`;
  const type = CLUSTER_TYPES.find((one) => one.kind === kind && versionOf(one) === apiVersion);
  if (type === undefined) return `${String(apiVersion)} ${String(kind)} is not served`;
  const { name, namespace = 'default' } = isObject(metadata) ? metadata : {};
  if (typeof name !== 'string' || typeof namespace !== 'string') return 'it has no name';
  const root = type.group === '' ? '/api/' : '/apis/';
  const within = type.namespaced ? `/namespaces/${encodeURIComponent(namespace)}` : '';
  const collection = `${root}${versionOf(type)}${within}/${type.plural}`;
  return { type, collection, name: encodeURIComponent(name) };
}

/** A Kubernetes in this process: an API server that was filled with recorded objects, and that a script can change. */
export class RecordedKubernetes {
  readonly #server: MemoryApiServer;

  constructor(clock: Clock) {
    this.#server = new MemoryApiServer({ clock });
  }

  /** The way to its API server. */
  get transport(): ApiTransport {
    return new MemoryApiTransport(this.#server);
  }

  /**
   * Reads the objects of a file or folder. One that cannot be stored goes to `onReject`, and the rest goes on. Throws
   * `InputError` when it cannot be read.
   */
  async load(path: string, onReject: (rejection: Rejection) => void, onProgress: () => void): Promise<void> {
    for await (const { object, at } of readManifests(path, onReject, '--k8s-load')) {
      const why = await this.apply(object);
      if (why !== undefined) onReject(rejection('unusable-object', 'object', object, why, at));
      onProgress();
    }
  }

  /** Makes or replaces an object, its status too; gives the reason when that is not possible. */
  async apply(object: RecordedObject): Promise<string | undefined> {
    const place = placeOf(object);
    if (typeof place === 'string') return place;
    const { type, collection, name } = place;
    const created = await this.#send('POST', collection, object);
    const written = created === CONFLICT ? await this.#send('PUT', `${collection}/${name}`, object) : created;
    const isComplete = type.hasStatus !== true || object['status'] === undefined || written >= 300;
    const status = isComplete ? written : await this.#send('PUT', `${collection}/${name}/status`, object);
    return refusal(status);
  }

  /** Deletes an object, of which apiVersion, kind and name are enough. */
  async delete(object: RecordedObject): Promise<string | undefined> {
    const place = placeOf(object);
    if (typeof place === 'string') return place;
    return refusal(await this.#send('DELETE', `${place.collection}/${place.name}`, {}));
  }

  async #send(method: 'POST' | 'PUT' | 'DELETE', path: string, object: RecordedObject): Promise<number> {
    const request = { method, path, authorization: '', contentType: 'application/json' };
    const body = method === 'DELETE' ? '' : JSON.stringify(object);
    const gone = new AbortController().signal;
    const { status } = await this.#server.handle({ ...request, body, gone });
    return status;
  }
}

function refusal(status: number): string | undefined {
  return status < 300 ? undefined : `the API server answers ${status}`;
}
