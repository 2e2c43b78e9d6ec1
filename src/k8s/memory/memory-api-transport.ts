import { interruptible } from '../../base/supervisor.ts';
import { ApiError, retryAfter } from '../client/api-error.ts';
import type { ApiAnswer, ApiRequest, ApiTransport } from '../client/api-transport.ts';
import type { MemoryApiServer } from './memory-api-server.ts';

/** The way to a {@link MemoryApiServer} without a network. */
export class MemoryApiTransport implements ApiTransport {
  /** Shown with each request. */
  token = '';
  readonly #server: Pick<MemoryApiServer, 'handle'>;
  #connections = new AbortController();

  constructor(server: Pick<MemoryApiServer, 'handle'>) {
    this.#server = server;
  }

  async send({
    method = 'GET',
    path,
    body,
    contentType = 'application/json',
    signal,
  }: ApiRequest): Promise<ApiAnswer> {
    const authorization = this.token === '' ? '' : `Bearer ${this.token}`;
    const text = body === undefined ? '' : JSON.stringify(body);
    const gone = AbortSignal.any([signal, this.#connections.signal]);
    const request = { method, path, authorization, contentType, body: text, gone };
    try {
      const { status, headers, body: bytes } = await interruptible(() => this.#server.handle(request), gone);
      return { status, retryAfterMs: retryAfter(headers['retry-after']), body: until(bytes, gone) };
    } catch (cause) {
      throw new ApiError('unreachable', 'there is no server', { cause });
    }
  }

  reset(): void {
    this.#connections.abort();
    this.#connections = new AbortController();
  }

  async close(): Promise<void> {
    this.#connections.abort();
  }
}

/** A body that breaks as soon as the signal fires, whatever its server does. */
async function* until(
  body: AsyncIterable<Uint8Array>,
  signal: AbortSignal,
): AsyncGenerator<Uint8Array, void, void> {
  const chunks = body[Symbol.asyncIterator]();
  for (;;) {
    const { done, value } = await interruptible(() => chunks.next(), signal);
    if (done === true) return;
    yield value;
  }
}
