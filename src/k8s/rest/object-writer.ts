import { checkArgument, listOf, requireArgument, TEXT } from '../../base/arguments.ts';
import type { Clock } from '../../base/clock.ts';
import { RateLimit } from '../../base/rate-limit.ts';
import { sleep } from '../../base/sleep.ts';
import { isObject, parseJson } from '../../net/fields.ts';
import { isKubernetesObject } from '../reflector/known-objects.ts';
import { MAX_OBJECT_BYTES } from '../reflector/list-query.ts';
import type { KubernetesObject, ResourceKind } from '../resource.ts';
import { ApiError, asApiError } from './api-error.ts';
import type { ApiRequest, ApiTransport } from './api-transport.ts';
import { Exchange } from './exchange.ts';
import { resourceName, resourcePath, rightToGrant } from './resource-path.ts';

/** Identifies an object of the API server. */
export interface ObjectPlace {
  readonly kind: ResourceKind;
  /** Absent for cluster-scoped objects. */
  readonly namespace?: string | undefined;
  readonly name: string;
}

/** An operation of a JSON patch (RFC 6902). {@link pointer} escapes the names of a path. */
export type PatchOperation =
  | { readonly op: 'test' | 'add' | 'replace'; readonly path: string; readonly value: unknown }
  | { readonly op: 'remove'; readonly path: string };

/** A write of one object. */
export type ObjectWrite =
  | {
      readonly verb: 'create';
      readonly kind: ResourceKind;
      readonly namespace?: string | undefined;
      /** With `apiVersion`, `kind` and `metadata.name`. */
      readonly object: Readonly<Record<string, unknown>>;
    }
  /** Replaces the object if its `resourceVersion` is that of `object`. */
  | { readonly verb: 'update'; readonly place: ObjectPlace; readonly object: KubernetesObject }
  /** Applies all operations or none. A failed `test` is a conflict. */
  | {
      readonly verb: 'patch';
      readonly place: ObjectPlace;
      readonly subresource?: 'status' | undefined;
      readonly operations: readonly PatchOperation[];
    }
  /** Deletes the object if its UID and, if given, its version match. Dependents are deleted in the background. */
  | {
      readonly verb: 'delete';
      readonly place: ObjectPlace;
      readonly uid: string;
      readonly resourceVersion?: string | undefined;
    };

/** The outcome of an {@link ObjectWrite}. Only `done` changed the object; after `failed` the effect is unknown. */
export type WriteOutcome =
  /** The new object; `undefined` if it was deleted. */
  | { readonly outcome: 'done'; readonly object: KubernetesObject | undefined }
  /** Another client was first: the object exists, has another version or UID, or a `test` failed. */
  | { readonly outcome: 'conflict'; readonly message: string }
  /** The object or the kind does not exist. */
  | { readonly outcome: 'not-found'; readonly message: string }
  /** Forbidden. The message names the right to grant. */
  | { readonly outcome: 'refused'; readonly message: string }
  /** The server rejected the object. */
  | { readonly outcome: 'invalid'; readonly message: string }
  /** The fence blocked the write, because another process may be the leader. */
  | { readonly outcome: 'not-leader' }
  /** The write was printed only. */
  | { readonly outcome: 'dry-run' }
  | { readonly outcome: 'failed'; readonly error: ApiError };

/** Writes objects with one request each. It retries only throttled requests; the caller handles all outcomes. */
export interface ObjectWriter {
  /**
   * Never rejects; a failure is an outcome. An aborted write has outcome `failed`.
   * @param why the reason for logs and dry runs, without a final period
   */
  write(write: ObjectWrite, why: string, signal: AbortSignal): Promise<WriteOutcome>;
}

/** Options of an {@link ObjectWriter}. */
export interface ObjectWriterOptions {
  /** Requests per second. Default: no limit. */
  readonly perSecond?: number | undefined;
  /**
   * Maximum number of requests without delay after a pause. With 1, no second has more than `perSecond` requests.
   * Default `perSecond`.
   */
  readonly burst?: number | undefined;
  /** The field manager of written objects. Default: the server derives it from the user agent. */
  readonly fieldManager?: string | undefined;
  /** Timeout of a request. Default 30 s. */
  readonly timeoutMs?: number | undefined;
  /** Maximum number of attempts if the server throttles requests: at least 1, default 5. */
  readonly maxTries?: number | undefined;
  /** Called before each write. If it returns false, nothing is sent. Default: always true. */
  readonly mayWrite?: (() => boolean) | undefined;
}

const TIMEOUT_MS = 30_000;
const MAX_TRIES = 5;
/** Minimum delay after a throttled request. */
const MIN_WAIT_MS = 1000;

const NAMES = listOf(TEXT);

/** Returns the JSON pointer of these names: `['status', 'nodes', 'a/b']` is `/status/nodes/a~1b`. */
export function pointer(...names: readonly string[]): string {
  checkArgument('pointer: names', names, NAMES);
  return names.map((name) => `/${name.replaceAll('~', '~0').replaceAll('/', '~1')}`).join('');
}

/** Returns the object that a write creates, changes or deletes. */
export function placeOf(write: ObjectWrite): ObjectPlace {
  if (write.verb !== 'create') return write.place;
  const metadata = write.object['metadata'];
  const name = isObject(metadata) ? String(metadata['name'] ?? '') : '';
  return { kind: write.kind, namespace: write.namespace, name };
}

/** Returns a place as text: `ciliumendpoints.cilium.io/v2 shop/web-0`. */
export function placeText({ kind, namespace, name }: ObjectPlace, suffix: string = ''): string {
  return `${resourceName(kind)}${suffix} ${namespace === undefined ? '' : `${namespace}/`}${name}`;
}

/** Returns a write as text: `delete ciliumendpoints.cilium.io/v2 shop/web-0`. */
export function writeText(write: ObjectWrite): string {
  const suffix = write.verb === 'patch' && write.subresource !== undefined ? `/${write.subresource}` : '';
  return `${write.verb} ${placeText(placeOf(write), suffix)}`;
}

/** Returns the request of a write. */
function requestOf(write: ObjectWrite): Omit<ApiRequest, 'signal'> {
  const { kind, namespace, name } = placeOf(write);
  switch (write.verb) {
    case 'create':
      return { method: 'POST', path: resourcePath(kind, { namespace }), body: write.object };
    case 'update':
      return { method: 'PUT', path: resourcePath(kind, { namespace, name }), body: write.object };
    case 'patch': {
      const path = resourcePath(kind, { namespace, name, subresource: write.subresource });
      return { method: 'PATCH', path, body: write.operations, contentType: 'application/json-patch+json' };
    }
    case 'delete': {
      const { uid, resourceVersion } = write;
      const preconditions = { uid, ...(resourceVersion === undefined ? {} : { resourceVersion }) };
      const options = { kind: 'DeleteOptions', apiVersion: 'v1', preconditions };
      return {
        method: 'DELETE',
        path: resourcePath(kind, { namespace, name }),
        body: { ...options, propagationPolicy: 'Background' },
      };
    }
  }
}

/** Writes objects to an API server. */
export class ApiObjectWriter implements ObjectWriter {
  readonly #transport: ApiTransport;
  readonly #clock: Clock;
  readonly #options: ObjectWriterOptions;
  readonly #maxTries: number;
  readonly #rate: RateLimit | undefined;

  constructor(transport: ApiTransport, clock: Clock, options: ObjectWriterOptions = {}) {
    const { perSecond, burst, maxTries = MAX_TRIES } = options;
    requireArgument(maxTries >= 1, `new ObjectWriter: options.maxTries must be at least 1, not ${maxTries}`);
    this.#transport = transport;
    this.#clock = clock;
    this.#options = options;
    this.#maxTries = maxTries;
    this.#rate =
      perSecond === undefined
        ? undefined
        : new RateLimit({ qps: perSecond, maxInflight: Number.POSITIVE_INFINITY, burst }, clock);
  }

  async write(write: ObjectWrite, _why: string, signal: AbortSignal): Promise<WriteOutcome> {
    const { mayWrite } = this.#options;
    for (let tries = 1; ; tries++) {
      try {
        await this.#rate?.turn(signal);
        if (signal.aborted) throw signal.reason;
        if (mayWrite?.() === false) return { outcome: 'not-leader' };
        return { outcome: 'done', object: await this.#send(write, signal) };
      } catch (thrown) {
        const error = asApiError(thrown);
        if (error.code !== 'throttled' || tries >= this.#maxTries) return outcomeOf(write, error);
        await sleep(this.#clock, Math.max(error.retryAfterMs, MIN_WAIT_MS), signal);
      }
    }
  }

  async #send(write: ObjectWrite, signal: AbortSignal): Promise<KubernetesObject | undefined> {
    const { fieldManager, timeoutMs = TIMEOUT_MS } = this.#options;
    using exchange = new Exchange({ transport: this.#transport, clock: this.#clock, signal });
    exchange.allowTime(timeoutMs);
    const request = requestOf(write);
    const query =
      fieldManager === undefined || write.verb === 'delete'
        ? ''
        : `?fieldManager=${encodeURIComponent(fieldManager)}`;
    const text = await exchange.text({ ...request, path: request.path + query }, MAX_OBJECT_BYTES);
    if (write.verb === 'delete') return undefined;
    const object = parseJson(text);
    if (isKubernetesObject(object)) return object;
    throw new ApiError('garbled', `the response to ${writeText(write)} is not an object`);
  }
}

function outcomeOf(write: ObjectWrite, error: ApiError): WriteOutcome {
  const { message } = error;
  switch (error.code) {
    case 'conflict':
      return { outcome: 'conflict', message };
    case 'missing':
      return { outcome: 'not-found', message };
    case 'forbidden': {
      const subresource = write.verb === 'patch' ? write.subresource : undefined;
      // The server also refuses writes for other reasons, such as a quota or a namespace that is being terminated.
      const hasRight = /is forbidden: (?!User )/.test(message);
      const remedy = hasRight ? '' : `: ${rightToGrant(write.verb, placeOf(write).kind, subresource)}`;
      return { outcome: 'refused', message: `${message}${remedy}` };
    }
    case 'invalid':
      // If a `test` of a patch fails, the server answers `Invalid` without causes.
      return { outcome: write.verb === 'patch' && !error.hasCauses ? 'conflict' : 'invalid', message };
    case 'rejected':
      return { outcome: 'invalid', message };
    default:
      return { outcome: 'failed', error };
  }
}

/** Prints each write and its reason instead of sending it. */
export class DryRunWriter implements ObjectWriter {
  readonly #print: (line: string) => void;

  constructor(print: (line: string) => void) {
    this.#print = print;
  }

  write(write: ObjectWrite, why: string): Promise<WriteOutcome> {
    this.#print(`${writeText(write)}: ${why}`);
    return Promise.resolve({ outcome: 'dry-run' });
  }
}
