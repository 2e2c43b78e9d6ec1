import type { Clock } from '../../base/clock.ts';
import { parseJson } from '../../net/fields.ts';
import { isKubernetesObject } from '../reflector/known-objects.ts';
import { countRepeatedPages, listPath, MAX_OBJECT_BYTES, readListShell } from '../reflector/list-query.ts';
import { ListScanner } from '../reflector/list-scanner.ts';
import type { KubernetesObject, ResourceKind } from '../resource.ts';
import { ApiError, asApiError } from './api-error.ts';
import { type ApiTransport, textOf } from './api-transport.ts';
import { Exchange } from './exchange.ts';
import { type ObjectPlace, placeText } from './object-writer.ts';
import { resourceName, resourcePath, rightToGrant } from './resource-path.ts';

/** Reads current objects by quorum, not from the server's watch cache. Rejects with an ApiError. */
export interface ObjectReader {
  /** Resolves to `undefined` if the object does not exist. */
  get(place: ObjectPlace, signal: AbortSignal): Promise<KubernetesObject | undefined>;
  /**
   * Yields all objects of a kind in pages. If the kind is not served, throws an error with code `missing`; objects of
   * the kind may still exist.
   *
   * @param pageSize default 500
   */
  list(
    kind: ResourceKind,
    signal: AbortSignal,
    pageSize?: number,
  ): AsyncIterable<readonly KubernetesObject[]>;
}

/** Options of an {@link ObjectReader}. */
export interface ObjectReaderOptions {
  /** Timeout of a request. Default 60 s, because a page from etcd may start after several seconds. */
  readonly timeoutMs?: number | undefined;
}

const TIMEOUT_MS = 60_000;
const TOO_LARGE = `exceeds ${MAX_OBJECT_BYTES >> 20} MiB, the maximum that is read`;

/** Reads objects from an API server. */
export class ApiObjectReader implements ObjectReader {
  readonly #transport: ApiTransport;
  readonly #clock: Clock;
  readonly #timeoutMs: number;

  constructor(transport: ApiTransport, clock: Clock, { timeoutMs = TIMEOUT_MS }: ObjectReaderOptions = {}) {
    this.#transport = transport;
    this.#clock = clock;
    this.#timeoutMs = timeoutMs;
  }

  async get(place: ObjectPlace, signal: AbortSignal): Promise<KubernetesObject | undefined> {
    const { kind, namespace, name } = place;
    const read = async (body: AsyncIterable<Uint8Array>): Promise<KubernetesObject> => {
      const text = await textOf(body, MAX_OBJECT_BYTES + 1);
      if (text.length > MAX_OBJECT_BYTES) throw new ApiError('garbled', `${placeText(place)} ${TOO_LARGE}`);
      const object = parseJson(text);
      if (isKubernetesObject(object)) return object;
      throw new ApiError('garbled', `the response to get ${placeText(place)} is not an object`);
    };
    try {
      return await this.#read('get', kind, resourcePath(kind, { namespace, name }), read, signal);
    } catch (error) {
      if (error instanceof ApiError && error.code === 'missing') return undefined;
      throw error;
    }
  }

  async *list(
    kind: ResourceKind,
    signal: AbortSignal,
    pageSize?: number,
  ): AsyncGenerator<readonly KubernetesObject[], void, void> {
    const uids = new Set<string>();
    let token: string | undefined;
    for (let repeated = 0; ; ) {
      const path = listPath(kind, 'pages', '', token, pageSize);
      const read = (body: AsyncIterable<Uint8Array>, secret?: string): Promise<ObjectPage> =>
        readObjectPage(kind, token, body, secret);
      const page = await this.#read('list', kind, path, read, signal);
      yield page.objects;
      if (page.token === undefined) return;
      const { size } = uids;
      for (const { metadata } of page.objects) uids.add(metadata.uid);
      repeated = countRepeatedPages(repeated, uids.size > size);
      token = page.token;
    }
  }

  async #read<T>(
    verb: string,
    kind: ResourceKind,
    path: string,
    read: (body: AsyncIterable<Uint8Array>, secret?: string) => Promise<T>,
    signal: AbortSignal,
  ): Promise<T> {
    using exchange = new Exchange({ transport: this.#transport, clock: this.#clock, signal });
    exchange.allowTime(this.#timeoutMs);
    try {
      const answer = await exchange.open({ path, gzip: verb === 'list' });
      return await read(exchange.read(answer), answer.secret);
    } catch (thrown) {
      const error = asApiError(thrown);
      if (error.code !== 'forbidden') throw error;
      throw new ApiError(error.code, `${error.message}: ${rightToGrant(verb, kind)}`);
    }
  }
}

interface ObjectPage {
  readonly objects: readonly KubernetesObject[];
  readonly token: string | undefined;
}

async function readObjectPage(
  kind: ResourceKind,
  token: string | undefined,
  body: AsyncIterable<Uint8Array>,
  secret: string | undefined,
): Promise<ObjectPage> {
  const scanner = new ListScanner(MAX_OBJECT_BYTES);
  const objects: KubernetesObject[] = [];
  for await (const bytes of body) {
    for (const text of scanner.feed(bytes)) {
      const object = parseJson(text);
      // An invalid object is not skipped, because a collector would delete what only this object uses.
      if (!isKubernetesObject(object)) throw new ApiError('garbled', 'an object in the list has no name');
      objects.push(object);
    }
  }
  if (scanner.tooLarge > 0)
    throw new ApiError('garbled', `an object of the list of ${resourceName(kind)} ${TOO_LARGE}`);
  return { objects, token: readListShell(scanner.shell, token, secret).token };
}
