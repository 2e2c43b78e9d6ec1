import type { Clock } from '../../base/clock.ts';
import { RateLimit } from '../../base/rate-limit.ts';
import { sleep } from '../../base/sleep.ts';
import { isKubernetesObject } from '../reflector/known-objects.ts';
import { LARGEST_OBJECT } from '../reflector/list-query.ts';
import type { KubernetesObject, ResourceKind } from '../resource.ts';
import { type ApiError, asApiError } from './api-error.ts';
import { type ApiRequest, type ApiTransport, textOf } from './api-transport.ts';
import { Exchange } from './exchange.ts';
import { resourceName, resourcePath, rightToGrant } from './resource-path.ts';

/** One object of a kind. */
export interface ObjectPlace {
  readonly kind: ResourceKind;
  /** Absent for what is in no namespace. */
  readonly namespace?: string | undefined;
  readonly name: string;
}

/** An operation of a JSON patch (RFC 6902). Names in a path are escaped by {@link pointer}. */
export type PatchOperation =
  | { readonly op: 'test' | 'add' | 'replace'; readonly path: string; readonly value: unknown }
  | { readonly op: 'remove'; readonly path: string };

/** A change of one object. */
export type ObjectWrite =
  | {
      readonly verb: 'create';
      readonly kind: ResourceKind;
      readonly namespace?: string | undefined;
      /** With `apiVersion`, `kind` and `metadata.name`. */
      readonly object: Readonly<Record<string, unknown>>;
    }
  /** Replaces the object, if it is still at the `resourceVersion` that `object` has. */
  | { readonly verb: 'update'; readonly place: ObjectPlace; readonly object: KubernetesObject }
  /** All operations or none; a `test` that does not hold is a conflict. */
  | {
      readonly verb: 'patch';
      readonly place: ObjectPlace;
      readonly part?: 'status' | undefined;
      readonly operations: readonly PatchOperation[];
    }
  /** Only this life of the object and, if it is said, only at this version. Dependents go in the background. */
  | {
      readonly verb: 'delete';
      readonly place: ObjectPlace;
      readonly uid: string;
      readonly resourceVersion?: string | undefined;
    };

/** What became of an {@link ObjectWrite}. Only `done` has changed something; of `failed` it is not known. */
export type WriteOutcome =
  /** The object as it is now; `undefined` when it was deleted. */
  | { readonly outcome: 'done'; readonly object: KubernetesObject | undefined }
  /** Somebody else was faster: it exists, is at another version, is another life, or fails a `test`. */
  | { readonly outcome: 'conflict'; readonly message: string }
  /** There is no such object, or no such kind. */
  | { readonly outcome: 'not-found'; readonly message: string }
  /** The message names the right that is to be granted. */
  | { readonly outcome: 'refused'; readonly message: string }
  /** The server does not take such an object. */
  | { readonly outcome: 'invalid'; readonly message: string }
  /** The writer's fence does not let it pass: another process may be the leader. */
  | { readonly outcome: 'not-leader' }
  /** It was printed. */
  | { readonly outcome: 'dry-run' }
  | { readonly outcome: 'failed'; readonly error: ApiError };

/** Writes objects, one request each, and repeats nothing: what to do about an outcome is the caller's. */
export interface ObjectWriter {
  /**
   * Never rejects: what fails is an outcome. A write whose signal fires has `failed`.
   *
   * @param why for a person who asks for the reason: a sentence without its end
   */
  write(write: ObjectWrite, why: string, signal: AbortSignal): Promise<WriteOutcome>;
}

/** Options of an {@link ApiObjectWriter}. */
export interface ObjectWriterOptions {
  /** Requests a second; as many at once as belong to one. Default: no limit. */
  readonly perSecond?: number | undefined;
  /** So long a request may take. Default 30 s. */
  readonly timeoutMs?: number | undefined;
  /** Asked right before each write is sent; where it says no, nothing is. Default: always. */
  readonly mayWrite?: (() => boolean) | undefined;
}

const TIMEOUT_MS = 30_000;
/** A server that asks so often to slow down has failed. */
const MOST_TRIES = 5;
const SHORTEST_WAIT_MS = 1000;

/** A JSON pointer to these names: `['status', 'nodes', 'a/b']` is `/status/nodes/a~1b`. */
export function pointer(...names: readonly string[]): string {
  return names.map((name) => `/${name.replaceAll('~', '~0').replaceAll('/', '~1')}`).join('');
}

/** Where a write goes to. */
function placeOf(write: ObjectWrite): ObjectPlace {
  if (write.verb !== 'create') return write.place;
  const metadata = write.object['metadata'];
  const name = typeof metadata === 'object' && metadata !== null && 'name' in metadata ? metadata.name : '';
  return { kind: write.kind, namespace: write.namespace, name: String(name) };
}

/** `ciliumendpoints.cilium.io/v2 shop/web-0`. */
export function placeText({ kind, namespace, name }: ObjectPlace, part: string = ''): string {
  return `${resourceName(kind)}${part} ${namespace === undefined ? '' : `${namespace}/`}${name}`;
}

/** `delete ciliumendpoints.cilium.io/v2 shop/web-0`. */
export function writeText(write: ObjectWrite): string {
  const part = write.verb === 'patch' && write.part !== undefined ? `/${write.part}` : '';
  return `${write.verb} ${placeText(placeOf(write), part)}`;
}

function requestOf(write: ObjectWrite): Omit<ApiRequest, 'signal'> {
  const { kind, namespace, name } = placeOf(write);
  switch (write.verb) {
    case 'create':
      return { method: 'POST', path: resourcePath(kind, { namespace }), body: write.object };
    case 'update':
      return { method: 'PUT', path: resourcePath(kind, { namespace, name }), body: write.object };
    case 'patch': {
      const path = resourcePath(kind, { namespace, name, part: write.part });
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

/** The {@link ObjectWriter} of an API server. */
export class ApiObjectWriter implements ObjectWriter {
  readonly #transport: ApiTransport;
  readonly #clock: Clock;
  readonly #options: ObjectWriterOptions;
  readonly #rate: RateLimit | undefined;

  constructor(transport: ApiTransport, clock: Clock, options: ObjectWriterOptions = {}) {
    const { perSecond } = options;
    this.#transport = transport;
    this.#clock = clock;
    this.#options = options;
    this.#rate =
      perSecond === undefined
        ? undefined
        : new RateLimit({ qps: perSecond, maxInflight: Number.POSITIVE_INFINITY }, clock);
  }

  async write(write: ObjectWrite, _why: string, signal: AbortSignal): Promise<WriteOutcome> {
    for (let tries = 1; ; tries++) {
      try {
        await this.#rate?.turn(signal);
        if (signal.aborted) throw signal.reason;
        if (this.#options.mayWrite?.() === false) return { outcome: 'not-leader' };
        return { outcome: 'done', object: await this.#send(write, signal) };
      } catch (thrown) {
        const error = asApiError(thrown);
        if (error.code !== 'throttled' || tries === MOST_TRIES) return outcomeOf(write, error);
        await sleep(this.#clock, Math.max(error.retryAfterMs, SHORTEST_WAIT_MS), signal);
      }
    }
  }

  async #send(write: ObjectWrite, signal: AbortSignal): Promise<KubernetesObject | undefined> {
    const exchange = new Exchange({ transport: this.#transport, clock: this.#clock, signal });
    exchange.allowTime(this.#options.timeoutMs ?? TIMEOUT_MS);
    try {
      const answer = await exchange.open(requestOf(write));
      const text = await textOf(exchange.read(answer), LARGEST_OBJECT);
      return write.verb === 'delete' ? undefined : parseObject(text);
    } finally {
      exchange.close();
    }
  }
}

/** An object that was read or written; `undefined` if the answer is none, or too large to look at. */
function parseObject(text: string): KubernetesObject | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return isKubernetesObject(value) ? value : undefined;
  } catch {
    return undefined;
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
      const part = write.verb === 'patch' ? write.part : undefined;
      const right = rightToGrant(write.verb, placeOf(write).kind, part);
      return { outcome: 'refused', message: `${right}: ${message}` };
    }
    case 'invalid':
      return { outcome: write.verb === 'patch' ? 'conflict' : 'invalid', message };
    case 'rejected':
      return { outcome: 'invalid', message };
    default:
      return { outcome: 'failed', error };
  }
}

/** Prints what would be written, and why, instead of writing it. */
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
