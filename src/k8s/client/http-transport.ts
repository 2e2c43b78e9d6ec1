import type { Socket } from 'node:net';
import { pipeline, Readable } from 'node:stream';
import type { TLSSocket } from 'node:tls';
import { createGunzip } from 'node:zlib';
import { buildConnector, type Dispatcher, Pool } from 'undici';
import { messageOf } from '../../base/failure.ts';
import { AnswerBody, type Flow } from './answer-body.ts';
import { ApiError, retryAfter } from './api-error.ts';
import type { ApiAnswer, ApiRequest, ApiTransport } from './api-transport.ts';
import { type ClusterAccess, type Pem, readPem } from './cluster-access.ts';

const CONNECT_MS = 10_000;
/** Of what is unpacked: each piece is a turn of a thread and of the loop. */
const UNZIPPED_PIECE = 64 * 1024;
/** Errors after which the connection was there; all others say that none was made. */
const CONNECTED: ReadonlySet<unknown> = new Set(['UND_ERR_SOCKET', 'ECONNRESET', 'EPIPE']);

/**
 * HTTP/1.1 to one API server: one pool of connections for all who ask. A watch takes a connection for itself, so there
 * is no limit of streams in which others would wait silently, and no slow reader who holds up the rest. Certificates and
 * authorities are read for each new connection, tokens for each request.
 */
export class HttpTransport implements ApiTransport {
  readonly #access: ClusterAccess;
  readonly #base: string;
  /** What answers come from whose end has not come. */
  readonly #flows = new Set<Flow>();
  #pool: Pool;

  constructor(access: ClusterAccess) {
    this.#access = access;
    this.#base = new URL(access.server).pathname.replace(/\/$/, '');
    this.#pool = this.#open();
  }

  async send({ method = 'GET', path, body, contentType, gzip, signal }: ApiRequest): Promise<ApiAnswer> {
    const { credentials, disableCompression = false } = this.#access;
    const authorization = await credentials.authorization();
    const headers: Record<string, string> = { accept: 'application/json', 'user-agent': 'datapath-cache' };
    if (authorization !== undefined) headers['authorization'] = authorization;
    if (gzip === true && !disableCompression) headers['accept-encoding'] = 'gzip';
    if (body !== undefined) headers['content-type'] = contentType ?? 'application/json';
    const text = body === undefined ? null : JSON.stringify(body);
    const options = {
      method,
      path: `${this.#base}${path}`,
      headers,
      body: text,
      headersTimeout: 0,
      bodyTimeout: 0,
    };
    const answer = await exchanged({ pool: this.#pool, flows: this.#flows, options, signal });
    if (answer.status === 401) credentials.refused();
    const { 'content-encoding': encoding, 'content-length': length } = answer.headers;
    // Of nothing there is no compressed form, whatever the head says.
    const isEmpty = answer.status === 204 || length === '0';
    return {
      status: answer.status,
      retryAfterMs: retryAfter(answer.headers['retry-after']),
      body: encoding === 'gzip' && !isEmpty ? unzipped(answer.body) : answer.body,
    };
  }

  reset(): void {
    const pool = this.#pool;
    this.#pool = this.#open();
    pool
      .destroy(new ApiError('broken', 'all connections were closed, as the server seems to be dead'))
      .catch(() => {});
  }

  async close(): Promise<void> {
    await this.#pool.destroy();
  }

  #open(): Pool {
    const connect = (options: buildConnector.Options, callback: buildConnector.Callback): void => {
      this.#connect(options).then(
        (socket) => callback(null, socket),
        (error: Error) => callback(error, null),
      );
    };
    return new Pool(new URL(this.#access.server).origin, { connections: null, pipelining: 1, connect });
  }

  async #connect(options: buildConnector.Options): Promise<Socket | TLSSocket> {
    const { ca, serverName, insecureSkipVerify, credentials } = this.#access;
    const shown = await credentials.certificate();
    const connector = buildConnector({
      timeout: CONNECT_MS,
      maxCachedSessions: 0,
      rejectUnauthorized: !insecureSkipVerify,
      ...(ca === undefined ? {} : { ca: await pemText(ca) }),
      ...(shown === undefined
        ? {}
        : { cert: await pemText(shown.certificate), key: await pemText(shown.key) }),
    });
    const named = serverName === undefined ? options : { ...options, servername: serverName };
    return new Promise((resolve, reject) => {
      // Where there is an error, the socket is null or undefined.
      connector(named, (...[error, socket]) =>
        error === null ? resolve(this.#kept(socket)) : reject(error),
      );
    });
  }

  /**
   * undici 7 ends the process where a connection ends while its answer is held up (nodejs/undici#5360). Our listeners
   * come before its own: at the end nothing is held up, and for a reset it looks for no end of the answer.
   */
  #kept<T extends Socket>(socket: T): T {
    socket.on('end', () => {
      for (const flow of this.#flows) flow.resume();
    });
    socket.on('error', (error: NodeJS.ErrnoException) => {
      if (error.code === 'ECONNRESET') error.code = 'EPIPE';
    });
    return socket;
  }
}

interface Exchanged {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly body: AnswerBody;
}

interface Sending {
  readonly pool: Pool;
  /** Has that of the answer until the answer ends. */
  readonly flows: Set<Flow>;
  readonly options: Dispatcher.DispatchOptions;
  readonly signal: AbortSignal;
}

/** Resolves with the head of the answer. */
function exchanged({ pool, flows, options, signal }: Sending): Promise<Exchanged> {
  return new Promise((resolve, reject) => {
    let body: AnswerBody | undefined;
    let connection: Dispatcher.DispatchController | undefined;
    const over = (): void => {
      signal.removeEventListener('abort', giveUp);
      if (connection !== undefined) flows.delete(connection);
    };
    const fail = (error: Error): void => {
      over();
      if (body === undefined) reject(asTransportError(error));
      else body.end(error);
    };
    const giveUp = (): void => {
      const reason = asError(signal.reason);
      fail(reason);
      connection?.abort(reason);
    };
    if (signal.aborted) return giveUp();
    signal.addEventListener('abort', giveUp);
    pool.dispatch(options, {
      onRequestStart: (controller) => {
        connection = controller;
        if (signal.aborted) controller.abort(asError(signal.reason));
      },
      onResponseStart: (controller, status, headers) => {
        if (status < 200) return; // another one follows
        flows.add(controller);
        body = new AnswerBody(controller);
        resolve({ status, headers, body });
      },
      onResponseData: (_controller, bytes) => body?.push(bytes),
      onResponseEnd: () => {
        over();
        body?.end(null);
      },
      onResponseError: (_controller, error) => fail(error),
    });
  });
}

function asError(reason: unknown): Error {
  return reason instanceof Error ? reason : new ApiError('broken', messageOf(reason));
}

async function pemText(pem: Pem): Promise<string> {
  return new TextDecoder().decode(await readPem(pem));
}

function asTransportError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  const code = error instanceof Error && 'code' in error ? error.code : undefined;
  return new ApiError(CONNECTED.has(code) ? 'broken' : 'unreachable', messageOf(error), { cause: error });
}

/** Errors of either end both. */
function unzipped(body: AnswerBody): AsyncIterable<Uint8Array> {
  const gunzip = createGunzip({ chunkSize: UNZIPPED_PIECE });
  // Who reads it learns of an error; no one does where the answer was given up.
  return pipeline(Readable.from(body), gunzip, () => {});
}
