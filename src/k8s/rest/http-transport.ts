import { Buffer } from 'node:buffer';
import { Agent, type ClientRequest, type IncomingMessage, request } from 'node:http';
import { connect as connectPlain, isIP, Socket } from 'node:net';
import { type Duplex, pipeline, Readable } from 'node:stream';
import { connect as connectTLS } from 'node:tls';
import { createGunzip } from 'node:zlib';
import { messageOf } from '../../base/failure.ts';
import { onAbort } from '../../base/follow-signal.ts';
import { withoutBrackets } from '../../net/url-host.ts';
import { AnswerBody } from './answer-body.ts';
import { ApiError, retryAfter } from './api-error.ts';
import type { ApiAnswer, ApiRequest, ApiTransport } from './api-transport.ts';
import { type ClientCertificate, type ClusterAccess, type Pem, pemBytes } from './cluster-access.ts';

/** Maximum time to establish a connection. */
const CONNECT_MS = 10_000;
/** Time after which idle connections are closed, because a dead connection is detected only when it is used. */
const IDLE_MS = 4_000;
const SOCKET_OPTIONS = { noDelay: true, keepAlive: true, keepAliveInitialDelay: 60_000 } as const;
/** Size of decompressed chunks. Each chunk costs a turn of a thread and of the event loop. */
const UNZIPPED_CHUNK_BYTES = 64 * 1024;

/**
 * HTTP/1.1 to one API server with one connection pool. Each watch has a separate connection, so that no request waits
 * for a stream, and a slow reader does not block others. Certificates and authorities are read for each new connection,
 * tokens for each request.
 */
export class HttpTransport implements ApiTransport {
  readonly #access: ClusterAccess;
  readonly #server: URL;
  readonly #pending = new Set<PendingRequest>();
  /** The client certificates of connections. */
  readonly #certificates = new WeakMap<Socket, ClientCertificate>();
  #pool: Pool;

  constructor(access: ClusterAccess) {
    this.#access = access;
    this.#server = new URL(access.server);
    this.#pool = new Pool(() => this.#connect());
  }

  async send({ method = 'GET', path, body, contentType, gzip, signal }: ApiRequest): Promise<ApiAnswer> {
    const { credentials, disableCompression = false } = this.#access;
    const authorization = await credentials.authorization();
    const { host, pathname } = this.#server;
    const headers: Record<string, string> = {
      host,
      accept: 'application/json',
      'user-agent': 'datapath-cache',
    };
    if (authorization !== undefined) headers['authorization'] = authorization;
    if (gzip === true && !disableCompression) headers['accept-encoding'] = 'gzip';
    const text = body === undefined ? '' : JSON.stringify(body);
    if (body !== undefined) {
      headers['content-type'] = contentType ?? 'application/json';
      headers['content-length'] = String(Buffer.byteLength(text));
    }
    if (signal.aborted) throw asError(signal.reason);
    const sent = request({ agent: this.#pool, method, path: pathname.replace(/\/$/, '') + path, headers });
    const answer = await this.#start(new PendingRequest(sent), signal, text);
    const { statusCode: status = 0, headers: rawHeaders } = answer.head;
    if (status === 401) credentials.refused(authorization, this.#certificates.get(answer.head.socket));
    const { 'content-encoding': encoding, 'content-length': length } = rawHeaders;
    // An empty body is never compressed, even if the header claims it.
    const isEmpty = status === 204 || length === '0';
    return {
      status,
      retryAfterMs: retryAfter(rawHeaders['retry-after']),
      secret: authorization?.replace(/^\S+ /, ''),
      body: encoding === 'gzip' && !isEmpty ? unzipped(answer.body) : answer.body,
    };
  }

  reset(): void {
    const pool = this.#pool;
    this.#pool = new Pool(() => this.#connect());
    this.#closeAll(
      pool,
      new ApiError('unreachable', 'connection closed, because the server does not answer'),
    );
  }

  async close(): Promise<void> {
    this.#closeAll(this.#pool, new ApiError('broken', 'closed'));
  }

  #closeAll(pool: Pool, reason: ApiError): void {
    for (const pending of this.#pending) pending.abort(reason);
    pool.destroy();
  }

  /** Sends a request and resolves with the head of the response. */
  async #start(pending: PendingRequest, signal: AbortSignal, text: string): Promise<HttpAnswer> {
    const leaveSignal = onAbort(signal, () => pending.abort(asError(signal.reason)));
    this.#pending.add(pending);
    pending.onEnd = () => {
      leaveSignal();
      this.#pending.delete(pending);
    };
    return pending.send(text);
  }

  async #connect(): Promise<Socket> {
    const certificate = await this.#access.credentials.certificate();
    const socket = await this.#openSocket(certificate);
    if (certificate !== undefined) this.#certificates.set(socket, certificate);
    return socket;
  }

  async #openSocket(certificate: ClientCertificate | undefined): Promise<Socket> {
    const { ca, serverName, insecureSkipVerify } = this.#access;
    const { protocol, hostname, port } = this.#server;
    const host = withoutBrackets(hostname);
    if (protocol === 'http:')
      return connected(connectPlain({ host, port: Number(port || 80), ...SOCKET_OPTIONS }), 'connect');
    const servername = serverName ?? (isIP(host) === 0 ? host : undefined);
    const socket = connectTLS({
      host,
      port: Number(port || 443),
      ...SOCKET_OPTIONS,
      rejectUnauthorized: !insecureSkipVerify,
      ...(servername === undefined ? {} : { servername }),
      ...(ca === undefined ? {} : { ca: await pemText(ca) }),
      ...(certificate === undefined
        ? {}
        : { cert: await pemText(certificate.certificate), key: await pemText(certificate.key) }),
    });
    return connected(socket, 'secureConnect');
  }
}

/** Resolves when the socket is connected. Rejects with an ApiError if the connection fails. */
function connected(socket: Socket, event: 'connect' | 'secureConnect'): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const timeout = setTimeout(() => {
      socket.destroy(new Error(`no connection after ${CONNECT_MS / 1000} s`));
    }, CONNECT_MS);
    socket.once(event, () => {
      clearTimeout(timeout);
      resolve(socket);
    });
    socket.on('error', (cause) => {
      clearTimeout(timeout);
      reject(new ApiError('unreachable', messageOf(cause), { cause }));
    });
  });
}

/** Pool of open connections and connection attempts. */
class Pool extends Agent {
  readonly #connect: () => Promise<Socket>;

  constructor(connect: () => Promise<Socket>) {
    super({ keepAlive: true, timeout: IDLE_MS });
    this.#connect = connect;
  }

  override createConnection(
    _options: object,
    callback?: (error: Error | null, socket: Duplex) => void,
  ): undefined {
    this.#connect().then(
      (socket) => callback?.(null, socket), // the agent closes it if its request has ended
      (error: Error) => callback?.(error, new Socket()), // the socket is ignored on errors
    );
  }
}

/** Replacements of unclear messages of Node.js. */
const CLEARER_MESSAGES: ReadonlyMap<string, string> = new Map([
  ['socket hang up', 'the server closed the connection without a response'],
  ['aborted', 'the server closed the connection during the response'],
]);

interface HttpAnswer {
  readonly head: IncomingMessage;
  readonly body: AnswerBody;
}

/** A request until its response has ended or it was cancelled. */
class PendingRequest {
  readonly #request: ClientRequest;
  #body: AnswerBody | undefined;
  #reject: (error: Error) => void = () => {};
  /** Called when the response has ended, or when the request has failed. */
  onEnd: () => void = () => {};

  constructor(request: ClientRequest) {
    this.#request = request;
  }

  send(text: string): Promise<HttpAnswer> {
    return new Promise((resolve, reject) => {
      this.#reject = reject;
      this.#request.on('error', (error) => this.#fail(error));
      this.#request.on('response', (head) => {
        // The connection has the client certificate that was rejected. The next one reads the renewed certificate.
        if (head.statusCode === 401) this.#request.shouldKeepAlive = false;
        resolve({ head, body: this.#receive(head) });
      });
      // Without a listener, Node.js closes the connection and reports no error.
      this.#request.on('upgrade', () =>
        this.abort(new ApiError('garbled', 'the server switched to another protocol')),
      );
      this.#request.end(text);
    });
  }

  abort(reason: Error): void {
    this.#fail(reason);
    this.#request.destroy();
  }

  #receive(head: IncomingMessage): AnswerBody {
    const body = new AnswerBody({
      pause: () => head.pause(),
      resume: () => head.resume(),
      abort: (reason) => this.abort(reason),
    });
    this.#body = body;
    head.on('data', (bytes: Uint8Array) => body.push(bytes));
    head.on('end', () => {
      this.onEnd();
      body.end(null);
    });
    head.on('error', (error) => this.#fail(error));
    return body;
  }

  #fail(error: Error): void {
    this.onEnd();
    const failure =
      error instanceof ApiError
        ? error
        : new ApiError('broken', CLEARER_MESSAGES.get(error.message) ?? messageOf(error), { cause: error });
    this.#body?.end(failure);
    this.#reject(failure);
  }
}

function asError(reason: unknown): Error {
  return reason instanceof Error ? reason : new ApiError('broken', messageOf(reason));
}

async function pemText(pem: Pem): Promise<string> {
  return new TextDecoder().decode(await pemBytes(pem));
}

/** Returns the decompressed body. An error of either stream ends both. */
function unzipped(body: AnswerBody): AsyncIterable<Uint8Array> {
  const gunzip = createGunzip({ chunkSize: UNZIPPED_CHUNK_BYTES });
  // The reader receives the error. If the response was cancelled, there is no reader.
  return pipeline(Readable.from(copied(body)), gunzip, () => {});
}

/**
 * Yields copies of the chunks, because a stream reads ahead, and a chunk is valid only until the next chunk is
 * requested.
 */
async function* copied(body: AnswerBody): AsyncGenerator<Uint8Array, void, void> {
  for await (const bytes of body) yield Uint8Array.from(bytes);
}
