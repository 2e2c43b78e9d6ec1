import { createHash, timingSafeEqual } from 'node:crypto';
import {
  createServer,
  IncomingMessage,
  type Server,
  type ServerOptions,
  ServerResponse,
  STATUS_CODES,
} from 'node:http';
import { createServer as createTLSServer } from 'node:https';
import { isIP, Socket } from 'node:net';
import {
  createSecureContext,
  type SecureContextOptions,
  Server as TLSServer,
  type TlsOptions,
} from 'node:tls';
import { getRequestListener, type Http2Bindings, type HttpBindings, RequestError } from '@hono/node-server';
import { withoutBrackets } from '../../net/url-host.ts';
import type { ApiApp } from '../api-context.ts';
import type { RefusalReason } from '../metrics/process-metrics.ts';
import { PROBLEM_TYPE, type ProblemDocument, problem, problemResponse } from '../problem.ts';
import { ConnectionLimit } from './connection-limit.ts';
import { listen } from './listen.ts';
import { openAnswers, trackAnswer } from './open-answers.ts';
import { hasLargeUnusedBody } from './request-limits.ts';
import { listenOnSocket } from './unix-socket.ts';

/** Credentials that authenticate the server to clients and clients to the server. */
export interface TCPCredentials {
  /** Token of the header `Authorization: Bearer`. Required beyond loopback unless `tls` has a `clientCA`. */
  readonly token?: string | undefined;
  readonly tls?:
    | {
        readonly cert: string;
        readonly key: string;
        /** If set, clients need a certificate of this authority. */
        readonly clientCA?: string | undefined;
      }
    | undefined;
}

/** Address and credentials of the API over TCP. */
export interface TCPOptions extends TCPCredentials {
  /** Host name or address to listen on. */
  readonly host: string;
  /** Port to listen on; 0 selects a free port. */
  readonly port: number;
  /** Additional names that clients may send as `Host`. */
  readonly names?: readonly string[] | undefined;
}

export interface ApiServerOptions {
  readonly app: ApiApp;
  /** Path of a unix socket. Whoever can open it may send any request. */
  readonly socket?: string | undefined;
  readonly tcp?: TCPOptions | undefined;
  /**
   * Paths that need no token: the files of the page, which asks the user for the token. The files contain no data of
   * the agent.
   */
  readonly pathsWithoutToken?: ReadonlySet<string> | undefined;
  /** Time in ms after which a client that reads nothing of an answer or of events is disconnected. Default: 60 s. */
  readonly unreadMs?: number | undefined;
  /** Called for each refused request or connection. */
  readonly onRefused?: ((reason: RefusalReason) => void) | undefined;
}

/** Default of `unreadMs`. A slow client reads something within this time. */
const UNREAD_MS = 60_000;

const LIMITS: ServerOptions = {
  maxHeaderSize: 16_384,
  headersTimeout: 10_000,
  requestTimeout: 30_000,
  keepAliveTimeout: 30_000,
  connectionsCheckingInterval: 5_000,
};

/** Code of the error of a request that was not received within `headersTimeout` or `requestTimeout`. */
const REQUEST_TIMEOUT = 'ERR_HTTP_REQUEST_TIMEOUT';

/** Time limit of a TLS handshake. */
const HANDSHAKE_MS = 10_000;

/**
 * Maximum number of unanswered requests of a connection. Clients rarely pipeline requests, and an answer may be large.
 */
const MAX_UNANSWERED = 16;

const LOOPBACK = new Set(['localhost', '127.0.0.1', '[::1]', '::1']);

/** Returns true if only this machine can reach an address. */
export function isLoopback(host: string): boolean {
  return LOOPBACK.has(hostName(host)) || (isIP(host) === 4 && host.startsWith('127.'));
}

/** Serves an application on a unix socket, over TCP, or both. */
export class ApiServer {
  readonly #options: ApiServerOptions;
  /** The limits of the listening servers. */
  readonly #servers = new Map<Server, ConnectionLimit>();
  #credentials: TCPCredentials;
  #tcp: Server | undefined;
  #stopped = false;

  constructor(options: ApiServerOptions) {
    this.#options = options;
    this.#credentials = options.tcp ?? {};
  }

  /** Resolves when all servers listen. If one cannot, stops all and rejects. */
  async start(): Promise<void> {
    const { socket, tcp } = this.#options;
    try {
      if (socket !== undefined) {
        const server = createServer(LIMITS);
        await this.#serve(server, true, () => 'accepted', listenOnSocket(server, socket));
      }
      if (tcp !== undefined) {
        const server = tcpServer(tcp);
        this.#tcp = server;
        const { host, port } = tcp;
        const check = (request: Request): AccessVerdict => this.#check(request, tcp);
        await this.#serve(server, false, check, listen(server, { host, port }));
      }
    } catch (error) {
      await this.stop();
      throw error;
    }
    if (this.#stopped) await this.stop();
  }

  /** URL of the TCP server, such as `http://127.0.0.1:8080`; undefined until it listens. */
  get url(): string | undefined {
    const address = this.#tcp?.address();
    if (address === null || address === undefined || typeof address === 'string') return undefined;
    const host = address.family === 'IPv6' ? `[${address.address}]` : address.address;
    return `${this.#credentials.tls === undefined ? 'http' : 'https'}://${host}:${address.port}`;
  }

  /**
   * Replaces the token and the certificates. If the token or the client authority changes, all TCP connections are
   * closed, because they were accepted with the former one. If a certificate is invalid or does not match its key,
   * throws and replaces nothing.
   */
  renew(credentials: TCPCredentials): void {
    const { token, tls } = credentials;
    const previous = this.#credentials;
    const server = this.#tcp;
    if (tls !== undefined) {
      createSecureContext(secureOptions(tls));
      if (server instanceof TLSServer) server.setSecureContext(secureOptions(tls));
    }
    this.#credentials = credentials;
    const hasOtherAccess = token !== previous.token || tls?.clientCA !== previous.tls?.clientCA;
    if (hasOtherAccess && server !== undefined) this.#servers.get(server)?.closeAll();
  }

  /** Closes all servers and connections and removes the socket file. May be called during the start. Final. */
  async stop(): Promise<void> {
    this.#stopped = true;
    const servers = [...this.#servers];
    this.#servers.clear();
    await Promise.all(
      servers.map(
        ([server, limit]) =>
          new Promise<void>((resolve) => {
            server.close(() => resolve());
            limit.closeAll();
          }),
      ),
    );
  }

  /** Makes a server answer the requests that `check` accepts. Adds the server when it listens. */
  async #serve(
    server: Server,
    isUnixSocket: boolean,
    check: (request: Request) => AccessVerdict,
    listening: Promise<void>,
  ): Promise<void> {
    const { app, unreadMs = UNREAD_MS, onRefused = () => {} } = this.#options;
    const limit = new ConnectionLimit(server, () => onRefused('limit'));
    const answer = listener((request, connection) => {
      const verdict = check(request);
      if (verdict instanceof Response) {
        onRefused(verdict.status === 401 ? 'unauthorized' : 'forbidden');
        return verdict;
      }
      const { socket } = connection.incoming;
      if (verdict === 'accepted' && socket instanceof Socket) limit.verify(socket);
      return app.fetch(request, { ...connection, isUnixSocket });
    });
    server.on('request', answer);
    // By default, Node.js ignores the headers after the first 1,000 to 2,000, such as an Origin. Their size is limited.
    server.maxHeadersCount = 0;
    server.setTimeout(unreadMs, closeUnread);
    answerMalformed(server);
    server.on('tlsClientError', () => onRefused('handshake'));
    // Expectations other than 100-continue are ignored (RFC 9110, 10.1.1). By default, Node.js answers 417.
    server.on('checkExpectation', answer);
    await listening;
    this.#servers.set(server, limit);
  }

  /**
   * Checks the access of a request over TCP. A page of another site must not reach the API through the browser of an
   * authorized user (DNS rebinding). The request of such a page has a foreign `Host`, or an `Origin` that differs from
   * the requested host. If a request has the token, any `Host` is accepted, because a foreign page does not know the
   * token. A client certificate proves less, because browsers send it automatically.
   */
  #check(request: Request, { host, names = [] }: TCPOptions): AccessVerdict {
    const { token } = this.#credentials;
    const requested = new URL(request.url);
    const value = hostName(requested.hostname);
    const hasToken = token !== undefined && isToken(request.headers.get('authorization'), token);
    if (!hasToken && !isServedName(value, host, names)) {
      const detail = 'Unknown Host: add it with --listen-name.';
      return problemResponse(problem('forbidden', detail, { field: 'Host', value }));
    }
    const origin = request.headers.get('origin');
    if (origin !== null && !isSameOrigin(origin, requested)) {
      const detail = 'The Origin differs from the requested host.';
      return problemResponse(problem('forbidden', detail, { field: 'Origin', value: origin }));
    }
    if (token === undefined || hasToken) return 'accepted';
    if (this.#options.pathsWithoutToken?.has(requested.pathname)) return 'open';
    const detail = 'No valid token: send Authorization: Bearer with the token of --listen-token.';
    return problemResponse(problem('unauthorized', detail), { 'www-authenticate': 'Bearer' });
  }
}

function tcpServer({ tls }: TCPOptions): Server {
  if (tls === undefined) return createServer(LIMITS);
  const access: TlsOptions =
    tls.clientCA === undefined ? {} : { requestCert: true, rejectUnauthorized: true };
  return createTLSServer({ ...LIMITS, handshakeTimeout: HANDSHAKE_MS, ...secureOptions(tls), ...access });
}

function secureOptions({ cert, key, clientCA }: NonNullable<TCPCredentials['tls']>): SecureContextOptions {
  return { cert, key, ...(clientCA !== undefined && { ca: clientCA }) };
}

/** Returns a request listener. It answers requests with an invalid URL or Host with a problem. */
function listener(
  answer: (request: Request, connection: HttpBindings | Http2Bindings) => Response | Promise<Response>,
): ReturnType<typeof getRequestListener> {
  const handle = getRequestListener(answer, {
    errorHandler: (error) => {
      if (!(error instanceof RequestError)) throw error;
      return problemResponse(problem('bad-request', `Invalid Host header or URL: ${error.message}.`));
    },
  });
  return async (incoming, outgoing) => {
    if (!(incoming instanceof IncomingMessage) || !(outgoing instanceof ServerResponse)) return;
    if (incoming.socket.destroyed) {
      // Node.js parses the rest of a chunk, and creates an error with a stack for each request that is not destroyed.
      incoming.destroy();
      return;
    }
    trackAnswer(incoming, outgoing);
    // Unread answers accumulate in memory. Close the connection, because a pipelined request cannot be answered before
    // the earlier ones.
    if (openAnswers(incoming.socket) > MAX_UNANSWERED) incoming.socket.destroy();
    else if (hostCount(incoming) > 1)
      refuse(outgoing, problem('bad-request', 'The request has several Host headers: send one.'));
    else if (hasLargeUnusedBody(incoming))
      refuse(outgoing, problem('bad-request', 'A GET request must have no body.'));
    else await handle(incoming, outgoing);
  };
}

/**
 * Returns the number of Host headers. More than one is invalid (RFC 9112, 3.2), because a proxy may use a different
 * one.
 */
function hostCount({ rawHeaders }: IncomingMessage): number {
  return rawHeaders.filter((name, at) => at % 2 === 0 && name.toLowerCase() === 'host').length;
}

function refuse(outgoing: ServerResponse, document: ProblemDocument): void {
  outgoing.writeHead(document.status, { 'content-type': PROBLEM_TYPE, connection: 'close' });
  outgoing.end(JSON.stringify(document));
}

/**
 * Called when a connection had no traffic for some time. Closes it if it is idle, or if bytes of an answer wait for its
 * client. Node.js stops reading requests from such a client, so the limit of unanswered requests does not detect it. An
 * answer that is not ready, or a monitor without events, has no waiting bytes and stays open.
 */
function closeUnread(socket: Socket): void {
  if (openAnswers(socket) === 0 || socket.writableLength > 0) socket.destroy();
}

/**
 * Answers malformed HTTP, oversized headers and slow requests with a problem, and closes the connection. Closes it
 * without an answer if its TLS handshake failed or was not complete in time, because the answer would never be sent.
 */
function answerMalformed(server: Server): void {
  server.on('clientError', (error: NodeJS.ErrnoException, socket) => {
    const isHTTP = error.code?.startsWith('HPE_') === true || error.code === REQUEST_TIMEOUT;
    // If another answer is incomplete, the client would read the problem as a part of it.
    if (!isHTTP || !socket.writable || openAnswers(socket) > 0) socket.destroy();
    else socket.end(answerText(malformed(error)), () => socket.destroy());
  });
}

function malformed({ code }: NodeJS.ErrnoException): ProblemDocument {
  if (code === 'HPE_HEADER_OVERFLOW')
    return problem(
      'headers-too-large',
      `The URL and the headers have more than ${LIMITS.maxHeaderSize} bytes.`,
    );
  if (code === REQUEST_TIMEOUT) return problem('request-timeout', 'The request was not received in time.');
  return problem('bad-request', 'The request is not valid HTTP.');
}

function answerText(document: ProblemDocument): string {
  const body = JSON.stringify(document);
  const head = [
    `HTTP/1.1 ${document.status} ${STATUS_CODES[document.status]}`,
    `content-type: ${PROBLEM_TYPE}`,
    `content-length: ${Buffer.byteLength(body)}`,
    'connection: close',
  ];
  return `${head.join('\r\n')}\r\n\r\n${body}`;
}

/** Result of an access check. `open`: a path that needs no token. A response: the refusal. */
type AccessVerdict = 'accepted' | 'open' | Response;

/**
 * Returns true if a server that listens on `host`, and has the additional `names`, serves a requested name. Loopback
 * names are served only if it listens on loopback or on all addresses. Other addresses are always served.
 */
function isServedName(requested: string, host: string, names: readonly string[]): boolean {
  if (names.some((name) => hostName(name) === requested)) return true;
  if (LOOPBACK.has(requested)) return isLoopback(host) || isAnyAddress(host);
  return requested === hostName(host) || isAddress(requested);
}

/** Returns a host name in lower case without the final dot of a fully qualified name. */
function hostName(name: string): string {
  return name.toLowerCase().replace(/\.$/, '');
}

function isSameOrigin(origin: string, requested: URL): boolean {
  return URL.canParse(origin) && new URL(origin).host === requested.host;
}

function isAnyAddress(host: string): boolean {
  return host === '0.0.0.0' || host === '::';
}

/** Returns true if a host is an address. DNS rebinding is impossible with addresses: only names are resolved. */
function isAddress(host: string): boolean {
  return isIP(withoutBrackets(host)) !== 0;
}

/** Returns true if the header has the token. Compares in constant time. */
function isToken(header: string | null, token: string): boolean {
  const shown = header?.startsWith('Bearer ') === true ? header.slice('Bearer '.length) : '';
  const digest = (text: string): Buffer => createHash('sha256').update(text).digest();
  return timingSafeEqual(digest(shown), digest(token));
}
