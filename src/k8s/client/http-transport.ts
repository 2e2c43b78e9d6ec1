import type { Socket } from 'node:net';
import type { Readable } from 'node:stream';
import type { TLSSocket } from 'node:tls';
import { createGunzip } from 'node:zlib';
import { buildConnector, Pool } from 'undici';
import { messageOf } from '../../base/failure.ts';
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
      signal,
      headersTimeout: 0,
      bodyTimeout: 0,
    };
    const answer = await this.#pool.request(options).catch((error: unknown) => {
      throw asTransportError(error);
    });
    if (answer.statusCode === 401) credentials.refused();
    const isZipped = answer.headers['content-encoding'] === 'gzip';
    return {
      status: answer.statusCode,
      retryAfterMs: retryAfter(answer.headers['retry-after']),
      body: isZipped ? unzipped(answer.body) : answer.body,
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
      connector(named, (...[error, socket]) => (error === null ? resolve(socket) : reject(error)));
    });
  }
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
function unzipped(body: Readable): AsyncIterable<Uint8Array> {
  const gunzip = createGunzip({ chunkSize: UNZIPPED_PIECE });
  gunzip.on('error', () => {}); // who reads it learns of it; no one does where the answer was given up
  body.on('error', (error) => gunzip.destroy(error));
  gunzip.on('close', () => body.destroy());
  return body.pipe(gunzip);
}
