import { checkArgument, FUNCTION, objectWith } from '../../base/arguments.ts';
import { EitherSignal } from '../../base/follow-signal.ts';
import { interruptible } from '../../base/supervisor.ts';
import { ApiError, retryAfter } from '../rest/api-error.ts';
import type { ApiAnswer, ApiRequest, ApiTransport } from '../rest/api-transport.ts';
import { chunksUntil } from '../rest/exchange.ts';
import type { MemoryApiServer } from './memory-api-server.ts';

/** A transport to a {@link MemoryApiServer} without a network. */
export class MemoryApiTransport implements ApiTransport, AsyncDisposable {
  /** Bearer token of each request. */
  token = '';
  readonly #server: Pick<MemoryApiServer, 'handle'>;
  #connections = new AbortController();

  constructor(server: Pick<MemoryApiServer, 'handle'>) {
    checkArgument('new MemoryApiTransport: server', server, objectWith({ handle: FUNCTION }));
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
    const closed = new EitherSignal(signal, this.#connections.signal); // disposed of at the end of the answer's body
    const request = { method, path, authorization, contentType, body: text, closed: closed.signal };
    try {
      const {
        status,
        headers,
        body: bytes,
      } = await interruptible(() => this.#server.handle(request), closed.signal);
      return { status, retryAfterMs: retryAfter(headers['retry-after']), body: until(bytes, closed) };
    } catch (cause) {
      closed[Symbol.dispose]();
      throw new ApiError('unreachable', 'the server is not running', { cause });
    }
  }

  reset(): void {
    this.#connections.abort(new ApiError('unreachable', 'the connections were closed'));
    this.#connections = new AbortController();
  }

  async close(): Promise<void> {
    this.#connections.abort();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}

/** Like {@link chunksUntil}, and then disposes of the signal. */
async function* until(
  body: AsyncIterable<Uint8Array>,
  closed: EitherSignal,
): AsyncGenerator<Uint8Array, void, void> {
  using either = closed;
  yield* chunksUntil(body, either.signal);
}
