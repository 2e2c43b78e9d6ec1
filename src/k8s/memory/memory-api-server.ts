import { BOOLEAN, checkArgument, ITERABLE, optional, optionsWith } from '../../base/arguments.ts';
import { onAbort } from '../../base/follow-signal.ts';
import { type Runtime, type RuntimeOptions, withRuntime } from '../../base/system-clock.ts';
import { LabelSelectorError } from '../../model/label-selector.ts';
import { parseJson } from '../../net/fields.ts';
import type { KubernetesObject } from '../resource.ts';
import { type ApiStatus, StatusError } from './api-status.ts';
import { ByteStream } from './byte-stream.ts';
import { ConnectionBroken, Faults, type ServedAnswer, type ServedRequest, textBody } from './faults.ts';
import {
  type ObjectList,
  ObjectLists,
  readVersion,
  type Selection,
  versionTooLarge,
} from './object-lists.ts';
import { ObjectStore, type ObjectStoreSnapshot } from './object-store.ts';
import { ObjectWatch } from './object-watch.ts';
import { type ObjectAddress, ObjectWrites, resourceKey } from './object-writes.ts';
import { CLUSTER_TYPES, type ResourceType, typeMeta } from './resource-types.ts';
import { fieldSelector, labelSelector } from './selectors.ts';
import { WatchCache } from './watch-cache.ts';

/** Options of {@link MemoryApiServer}. */
export interface MemoryApiServerOptions extends Pick<RuntimeOptions, 'clock'> {
  /** The served kinds. Default: those of a cluster with Cilium. */
  readonly types?: readonly ResourceType[] | undefined;
  /**
   * If true, watches of a kind without writes receive bookmarks with the resource versions of other kinds, as in
   * Kubernetes 1.34. Default: false.
   */
  readonly idleProgress?: boolean | undefined;
  /** If true, a watch may start with all objects (`sendInitialEvents`), as in Kubernetes 1.32. Default: false. */
  readonly streamingLists?: boolean | undefined;
}

const JSON_TYPE = { 'content-type': 'application/json' };
const ITEMS_PER_CHUNK = 200;
const ANY_USER = '*';
const HEALTH: ReadonlySet<string> = new Set(['/healthz', '/livez', '/readyz']);

const VERBS: Readonly<Record<string, string>> = {
  POST: 'create',
  PUT: 'update',
  PATCH: 'patch',
  DELETE: 'delete',
};

interface ApiRoute {
  readonly type: ResourceType;
  readonly namespace: string | undefined;
  readonly name: string | undefined;
  readonly subresource: 'status' | undefined;
}

/**
 * An API server in this process, for tests. Lists, pages, watches, bookmarks, conflicts and preconditions are like
 * those of a real server. Any clock can be used, and faults can be injected. It has no schemas, defaults, admission or
 * controllers: objects are stored unchanged, in any namespace.
 */
export class MemoryApiServer {
  /** The injected faults. */
  readonly faults: Faults = new Faults();
  /** The valid bearer tokens. If empty, every request is accepted. */
  readonly tokens: Set<string> = new Set();
  readonly #store = new ObjectStore();
  readonly #cache: WatchCache;
  readonly #lists: ObjectLists;
  readonly #writes: ObjectWrites;
  readonly #options: MemoryApiServerOptions & Runtime;
  readonly #types: Set<ResourceType>;
  readonly #streams = new Set<ByteStream>();
  readonly #denied = new Set<string>();
  #isDown = false;
  /** Resolves when the server is not paused. */
  #running: Promise<void> = Promise.resolve();
  #endPause: (() => void) | undefined;

  constructor(options: MemoryApiServerOptions = {}) {
    checkArgument('new MemoryApiServer: options', options, OPTIONS);
    this.#options = withRuntime(options);
    const { clock, types = CLUSTER_TYPES, idleProgress = false } = this.#options;
    this.#types = new Set(types);
    this.#cache = new WatchCache(this.#store, idleProgress);
    this.#lists = new ObjectLists(this.#store, this.#cache, clock);
    this.#writes = new ObjectWrites(this.#store, clock);
  }

  /** Number of open watches. */
  get watches(): number {
    return this.#streams.size;
  }

  // ── State of the server ────────────────────────────────────────────────────────────────────────────────

  /** Serves a kind, like the installation of a CRD. */
  serve(type: ResourceType): void {
    this.#types.add(type);
  }

  /** Stops serving a kind. Its objects are kept. */
  stopServing(type: ResourceType): void {
    this.#types.delete(type);
  }

  /** Denies a verb on a resource, like RBAC, to requests with this token; default: to all requests. */
  deny(verb: string, plural: string, token: string = ANY_USER): void {
    this.#denied.add(`${token} ${verb} ${plural}`);
  }

  allow(verb: string, plural: string, token: string = ANY_USER): void {
    this.#denied.delete(`${token} ${verb} ${plural}`);
  }

  /**
   * Compacts the history: continue tokens expire, and new watches must start at the current version. Open watches
   * continue.
   */
  compact(): void {
    this.#store.compact(Math.min(this.#store.version, this.#cache.version));
  }

  /** Stops updates of the watch cache until it is released. Only reads from etcd return newer writes. */
  holdCache(): void {
    this.#cache.hold();
  }

  releaseCache(): void {
    this.#cache.release();
  }

  /** Breaks all connections. */
  cut(): void {
    for (const stream of [...this.#streams]) stream.break(new ConnectionBroken());
  }

  /** Ends all watches cleanly. */
  endWatches(): void {
    for (const stream of [...this.#streams]) stream.end();
  }

  /** Stops the server like kill -9. After {@link MemoryApiServer.up} it has only the content of its etcd. */
  down(): void {
    this.#isDown = true;
    this.cut();
  }

  up(): void {
    if (!this.#isDown) return;
    this.#isDown = false;
    this.#cache.reset();
    this.#store.compact(); // a new process has no history for watches of earlier versions
  }

  /** Pauses the server like SIGSTOP: connections stay open without data. */
  pause(): void {
    if (this.#endPause !== undefined) return;
    this.#running = new Promise((resolve) => {
      this.#endPause = resolve;
    });
  }

  resume(): void {
    this.#endPause?.();
    this.#endPause = undefined;
  }

  backup(): ObjectStoreSnapshot {
    return this.#store.snapshot();
  }

  /** Restores its etcd from a backup and restarts. */
  restore(backup: ObjectStoreSnapshot): void {
    this.down();
    this.#store.restore(backup);
    this.up();
  }

  // ── Requests ───────────────────────────────────────────────────────────────────────────────────────────

  /** Serves a request. Throws an error if the connection breaks before the response. */
  async handle(request: ServedRequest): Promise<ServedAnswer> {
    await this.#running;
    if (this.#isDown) throw new ConnectionBroken();
    return this.faults.serve(request, () => this.#answer(request));
  }

  /**
   * Serves a request like a second API server with the same etcd, which the state and faults of this server do not
   * affect.
   */
  handleElsewhere(request: ServedRequest): Promise<ServedAnswer> {
    return this.#answer(request);
  }

  async #answer(request: ServedRequest): Promise<ServedAnswer> {
    try {
      return await this.#serve(request);
    } catch (error) {
      return answer(...statusOf(error));
    }
  }

  async #serve(request: ServedRequest): Promise<ServedAnswer> {
    const { pathname, searchParams } = new URL(request.path, 'http://server');
    if (HEALTH.has(pathname)) return { status: 200, headers: {}, body: textBody('ok'), isStream: false };
    const token = this.#authenticate(request.authorization);
    const parts = pathname.split('/').slice(1).map(decodeURIComponent);
    if (pathname === '/version') return answer(200, { major: '1', minor: '20', gitVersion: 'v1.20.2' });
    const [group, version, rest] =
      parts[0] === 'api' ? ['', parts[1], parts.slice(2)] : [parts[1], parts[2], parts.slice(3)];
    const types = [...this.#types].filter((type) => type.group === group && type.version === version);
    if (types.length === 0 || version === undefined) throw notFound();
    if (rest.length === 0)
      return answer(200, resourceList(group === '' ? version : `${group}/${version}`, types));
    const route = routeOf(types, rest);
    const verb = verbOf(request.method, route, searchParams);
    if ([ANY_USER, token].some((who) => this.#denied.has(`${who} ${verb} ${route.type.plural}`)))
      throw new StatusError(
        'Forbidden',
        `${route.type.plural} is forbidden: User "agent" cannot ${verb} resource "${route.type.plural}" in API group "${route.type.group}" at the cluster scope`,
      );
    if (verb === 'watch') return this.#watch(selectionOf(route, searchParams), searchParams, request.closed);
    if (verb === 'list')
      return listAnswer(route.type, await this.#lists.list(selectionOf(route, searchParams), searchParams));
    return this.#object(request, verb, route, searchParams.get('fieldManager') ?? undefined);
  }

  #authenticate(authorization: string): string {
    const token = authorization.replace(/^Bearer /, '');
    if (this.tokens.size === 0 || this.tokens.has(token)) return token;
    throw new StatusError('Unauthorized', 'Unauthorized');
  }

  #watch(selection: Selection, query: URLSearchParams, closed: AbortSignal): ServedAnswer {
    const mayStream = this.#options.streamingLists === true;
    if (!mayStream && (query.has('sendInitialEvents') || query.has('resourceVersionMatch')))
      throw new StatusError('Invalid', 'resourceVersionMatch is forbidden for watch');
    const known = this.#cache.versionOf(resourceKey(selection.type));
    const from = readVersion(query.get('resourceVersion')) ?? 0;
    if (query.get('sendInitialEvents') === 'true' && from > known) throw versionTooLarge(from, known);
    const stream: ByteStream = new ByteStream(
      () => this.#running,
      () => {
        this.#streams.delete(stream);
        watch.close();
      },
    );
    this.#streams.add(stream);
    onAbort(closed, () => stream.break(new ConnectionBroken()));
    const source = { store: this.#store, cache: this.#cache, clock: this.#options.clock };
    const watch = new ObjectWatch(source, selection, query, stream);
    return { status: 200, headers: JSON_TYPE, body: stream, isStream: true };
  }

  #object(
    { body, contentType }: ServedRequest,
    verb: string,
    { type, namespace, name, subresource }: ApiRoute,
    manager: string | undefined,
  ): ServedAnswer {
    const content = body === '' ? undefined : parseBody(body);
    if (verb === 'create')
      return objectAnswer(201, type, this.#writes.create(type, namespace, content, manager));
    if (name === undefined)
      throw new StatusError(
        'MethodNotAllowed',
        'the server does not allow this method on the requested resource',
      );
    const address: ObjectAddress = { type, namespace, name, subresource };
    switch (verb) {
      case 'update':
        return objectAnswer(200, type, this.#writes.replace(address, content, manager));
      case 'patch':
        return objectAnswer(200, type, this.#writes.patch(address, contentType, content, manager));
      case 'delete':
        return objectAnswer(200, type, this.#writes.delete(address, content));
      default:
        return objectAnswer(200, type, this.#writes.get(address));
    }
  }
}

const OPTIONS = optionsWith({
  types: optional(ITERABLE),
  idleProgress: optional(BOOLEAN),
  streamingLists: optional(BOOLEAN),
});

function notFound(): StatusError {
  return new StatusError('NotFound', 'the server could not find the requested resource');
}

function parseBody(body: string): unknown {
  const document = parseJson(body);
  if (document === undefined) throw new StatusError('BadRequest', 'the body of the request is not JSON');
  return document;
}

function statusOf(error: unknown): readonly [number, ApiStatus] {
  if (error instanceof StatusError) return [error.status.code, error.status];
  if (error instanceof LabelSelectorError) return statusOf(new StatusError('BadRequest', error.message));
  throw error;
}

function answer(status: number, document: unknown): ServedAnswer {
  const headers = status === 504 ? { ...JSON_TYPE, 'retry-after': '1' } : JSON_TYPE;
  return { status, headers, body: textBody(`${JSON.stringify(document)}\n`), isStream: false };
}

function objectAnswer(status: number, type: ResourceType, object: KubernetesObject): ServedAnswer {
  return answer(status, { ...object, ...typeMeta(type) });
}

/**
 * Returns a list response that is serialized while it is read, so that a list of 100,000 objects is never one string.
 */
function listAnswer(type: ResourceType, list: ObjectList): ServedAnswer {
  const { apiVersion, kind } = typeMeta(type);
  const metadata = {
    resourceVersion: String(list.version),
    ...(list.token === undefined ? {} : { continue: list.token }),
    ...(list.remaining === undefined ? {} : { remainingItemCount: list.remaining }),
  };
  const head = JSON.stringify({ kind: `${kind}List`, apiVersion, metadata }).slice(0, -1);
  const encoder = new TextEncoder();
  const body = async function* (): AsyncGenerator<Uint8Array, void, void> {
    yield encoder.encode(`${head},"items":[`);
    for (let from = 0; from < list.objects.length; from += ITEMS_PER_CHUNK) {
      const some = list.objects.slice(from, from + ITEMS_PER_CHUNK);
      const texts = some.map((object) => JSON.stringify({ ...object, apiVersion, kind }));
      yield encoder.encode(`${from === 0 ? '' : ','}${texts.join(',')}`);
    }
    yield encoder.encode(']}\n');
  };
  return { status: 200, headers: JSON_TYPE, body: body(), isStream: false };
}

function resourceList(groupVersion: string, types: readonly ResourceType[]): unknown {
  const verbs = ['create', 'delete', 'get', 'list', 'patch', 'update', 'watch'];
  const resources = types.flatMap(({ plural: name, namespaced, kind, hasStatus }) => {
    const status = { name: `${name}/status`, namespaced, kind, verbs: ['get', 'patch', 'update'] };
    return [{ name, singularName: '', namespaced, kind, verbs }, ...(hasStatus === true ? [status] : [])];
  });
  return { kind: 'APIResourceList', apiVersion: 'v1', groupVersion, resources };
}

/** Parses `[namespaces/NS/]PLURAL[/NAME[/status]]`. */
function routeOf(types: readonly ResourceType[], parts: readonly string[]): ApiRoute {
  const isNamespaced = parts[0] === 'namespaces' && parts.length >= 3 && parts[2] !== 'status';
  const [plural, name, subresource] = isNamespaced ? parts.slice(2) : parts;
  const type = types.find((candidate) => candidate.plural === plural);
  if (type === undefined || (isNamespaced && !type.namespaced)) throw notFound();
  if (subresource !== undefined && (subresource !== 'status' || type.hasStatus !== true)) throw notFound();
  return {
    type,
    namespace: isNamespaced ? parts[1] : undefined,
    name,
    subresource: subresource === 'status' ? subresource : undefined,
  };
}

function verbOf(method: string, { name }: ApiRoute, query: URLSearchParams): string {
  if (method !== 'GET') return VERBS[method] ?? method;
  if (name !== undefined) return 'get';
  return query.get('watch') === 'true' || query.get('watch') === '1' ? 'watch' : 'list';
}

function selectionOf({ type, namespace }: ApiRoute, query: URLSearchParams): Selection {
  const labels = labelSelector(query.get('labelSelector'));
  const fields = fieldSelector(query.get('fieldSelector'));
  const isNarrow = query.has('labelSelector') || query.has('fieldSelector');
  return { type, namespace, selects: (object) => labels(object) && fields(object), isNarrow };
}
