import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import type { AddressInfo, Socket } from 'node:net';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createGzip } from 'node:zlib';
import { checkArgument, FUNCTION, OBJECT, objectWith } from '../../base/arguments.ts';
import type { MemoryApiServer } from './memory-api-server.ts';

/** Options of {@link ApiHttpServer}. */
export interface ApiHttpServerOptions {
  /** Certificate and key, PEM. If set, the server uses TLS. */
  readonly tls?: { readonly cert: string; readonly key: string } | undefined;
}

/** The address of an {@link ApiHttpServer}: a local address, or a unix socket. */
export type ListenAddress = { readonly host: string; readonly port: number } | { readonly path: string };

/** Maximum size of a request body in bytes. */
const MAX_BODY_BYTES = 16 * 1024 * 1024;

/** Serves a {@link MemoryApiServer} over HTTP on a port or a socket. */
export class ApiHttpServer implements AsyncDisposable {
  readonly #api: MemoryApiServer;
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();

  constructor(api: MemoryApiServer, options: ApiHttpServerOptions = {}) {
    checkArgument('new ApiHttpServer: api', api, objectWith({ handle: FUNCTION }));
    checkArgument('new ApiHttpServer: options', options, OBJECT);
    const { tls } = options;
    this.#api = api;
    const serve = (request: IncomingMessage, response: ServerResponse): void => {
      this.#serve(request, response).catch(() => response.destroy());
    };
    this.#server = tls === undefined ? createServer(serve) : createTlsServer(tls, serve);
    this.#server.on('connection', (socket: Socket) => {
      this.#sockets.add(socket);
      socket.on('close', () => this.#sockets.delete(socket));
    });
  }

  /** Number of open connections. */
  get connections(): number {
    return this.#sockets.size;
  }

  /** Resolves to the address: `127.0.0.1:33001`, or the path of the socket. Default: a free loopback port. */
  listen(address: ListenAddress = { host: '127.0.0.1', port: 0 }): Promise<string> {
    return new Promise((resolve, reject) => {
      this.#server.once('error', reject);
      this.#server.listen(address, () => {
        this.#server.off('error', reject);
        const at: AddressInfo | string | null = this.#server.address();
        resolve(at === null || typeof at === 'string' ? (at ?? '') : `${at.address}:${at.port}`);
      });
    });
  }

  /** Closes all connections and the listener. */
  close(): Promise<void> {
    const closed = new Promise<void>((resolve) => this.#server.close(() => resolve()));
    for (const socket of this.#sockets) socket.destroy();
    return closed;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const closed = new AbortController();
    response.on('close', () => closed.abort());
    const { method = 'GET', url: path = '/', headers } = request;
    const body = await bodyText(request);
    const { authorization = '' } = headers;
    const contentType = headers['content-type'] ?? '';
    const answer = await this.#api.handle({
      method,
      path,
      authorization,
      contentType,
      body,
      closed: closed.signal,
    });
    const isZipped = !answer.isStream && /\bgzip\b/.test(headers['accept-encoding']?.toString() ?? '');
    response.writeHead(
      answer.status,
      isZipped ? { ...answer.headers, 'content-encoding': 'gzip' } : answer.headers,
    );
    response.flushHeaders();
    const sent = Readable.from(answer.body, { objectMode: false });
    // If the body throws, the connection is destroyed.
    await (isZipped ? pipeline(sent, createGzip(), response) : pipeline(sent, response));
  }
}

async function bodyText(request: IncomingMessage): Promise<string> {
  let text = '';
  request.setEncoding('utf8');
  for await (const part of request) {
    text += String(part);
    if (text.length > MAX_BODY_BYTES) throw new Error('the request body is too long');
  }
  return text;
}
