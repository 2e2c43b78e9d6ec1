import { createHash, timingSafeEqual } from 'node:crypto';
import { createServer, type Server, type ServerOptions, STATUS_CODES } from 'node:http';
import { createServer as createTLSServer } from 'node:https';
import { isIP } from 'node:net';
import type { Duplex } from 'node:stream';
import { getRequestListener, type Http2Bindings, type HttpBindings, RequestError } from '@hono/node-server';
import type { ApiApp } from './api-context.ts';
import { listen } from './listen.ts';
import { PROBLEM_TYPE, type ProblemDocument, problem, problemResponse } from './problem.ts';
import { listenOnSocket } from './unix-socket.ts';

/** How the API is reached over TCP. */
export interface TCPOptions {
  /** A name or an address. */
  readonly host: string;
  /** 0: any that is free. */
  readonly port: number;
  /** What a client must show as `Authorization: Bearer`. Needed beyond loopback, where there is no `tls` with client certificates. */
  readonly token?: string | undefined;
  readonly tls?:
    | {
        readonly cert: string;
        readonly key: string;
        /** Only clients with a certificate of this authority are served. */
        readonly clientCA?: string | undefined;
      }
    | undefined;
}

/** What is served, and where. */
export interface ApiServerOptions {
  readonly app: ApiApp;
  /** A unix socket: who may open it may ask everything. */
  readonly socket?: string | undefined;
  readonly tcp?: TCPOptions | undefined;
  /** Paths that need no token: those of the page, which asks a person for it. They say nothing of what the agent knows. */
  readonly open?: ReadonlySet<string> | undefined;
}

const LIMITS: ServerOptions = {
  maxHeaderSize: 16_384,
  headersTimeout: 10_000,
  requestTimeout: 30_000,
  keepAliveTimeout: 30_000,
  connectionsCheckingInterval: 5_000,
};

/** So many connections are served at a time. */
const CONNECTIONS = 1_024;

/** Requests of a connection that wait for their answers. Hardly a client sends more than one, and an answer may be large. */
const PIPELINED = 16;

/** How many requests of a connection wait for their answers. */
const answering = new WeakMap<Duplex, number>();

/** Names of this machine for itself. */
const LOOPBACK = new Set(['localhost', '127.0.0.1', '[::1]', '::1']);

/** Whether only this machine can reach an address. */
export function isLoopback(host: string): boolean {
  return LOOPBACK.has(hostName(host)) || (isIP(host) === 4 && host.startsWith('127.'));
}

/** The servers of the API. */
export class ApiServer {
  readonly #options: ApiServerOptions;
  readonly #servers: Server[] = [];
  #stopped = false;

  constructor(options: ApiServerOptions) {
    this.#options = options;
  }

  /** Resolves when everything listens. Rejects, and listens nowhere, when something is in the way. */
  async start(): Promise<void> {
    const { app, socket, tcp, open = new Set() } = this.#options;
    try {
      if (socket !== undefined) {
        const server = createServer(LIMITS, listener(app.fetch));
        await this.#add(server, listenOnSocket(server, socket));
      }
      if (tcp !== undefined) {
        const server = tcpServer(app, tcp, open);
        await this.#add(server, listen(server, { host: tcp.host, port: tcp.port }));
      }
    } catch (error) {
      await this.stop();
      throw error;
    }
    if (this.#stopped) await this.stop();
  }

  /** `http://127.0.0.1:8080`, once it listens on TCP. */
  get url(): string | undefined {
    const { tcp } = this.#options;
    const address = this.#servers.at(-1)?.address();
    if (tcp === undefined || address === null || address === undefined || typeof address === 'string')
      return undefined;
    const host = address.family === 'IPv6' ? `[${address.address}]` : address.address;
    return `${tcp.tls === undefined ? 'http' : 'https'}://${host}:${address.port}`;
  }

  /** Ends every connection, also while it starts. The socket's file goes. For good. */
  async stop(): Promise<void> {
    this.#stopped = true;
    const servers = this.#servers.splice(0);
    await Promise.all(
      servers.map(
        (server) =>
          new Promise<void>((resolve) => {
            server.close(() => resolve());
            server.closeAllConnections();
          }),
      ),
    );
  }

  async #add(server: Server, listening: Promise<void>): Promise<void> {
    server.maxConnections = CONNECTIONS;
    answerMalformed(server);
    await listening;
    this.#servers.push(server);
  }
}

/** Requests to answers, those to addresses that are none too. */
function listener(
  answer: (request: Request, connection: HttpBindings | Http2Bindings) => Response | Promise<Response>,
): ReturnType<typeof getRequestListener> {
  const listen = getRequestListener(answer, {
    errorHandler: (error) => {
      if (!(error instanceof RequestError)) throw error;
      return problemResponse(
        problem('bad-request', `The Host or the address is not valid: ${error.message}.`),
      );
    },
  });
  return async (incoming, outgoing) => {
    // What is in its answers waits here for a client that may not read them.
    if ((answering.get(incoming.socket) ?? 0) >= PIPELINED) outgoing.destroy();
    else await listen(incoming, outgoing);
  };
}

/** Answers what is no HTTP, or too much of it, with a problem; then it hangs up. */
function answerMalformed(server: Server): void {
  const count = (socket: Duplex, by: number): void => {
    answering.set(socket, (answering.get(socket) ?? 0) + by);
  };
  server.on('request', ({ socket }, answer) => {
    count(socket, 1);
    answer.once('close', () => count(socket, -1));
  });
  server.on('clientError', (error: NodeJS.ErrnoException, socket) => {
    // Into the middle of another answer it would be written as a part of that.
    if (!socket.writable || (answering.get(socket) ?? 0) > 0) socket.destroy();
    else socket.end(answerText(malformed(error)), () => socket.destroy());
  });
}

function malformed({ code }: NodeJS.ErrnoException): ProblemDocument {
  if (code === 'HPE_HEADER_OVERFLOW')
    return problem(
      'headers-too-large',
      `The address and the headers have more than ${LIMITS.maxHeaderSize} bytes.`,
    );
  if (code === 'ERR_HTTP_REQUEST_TIMEOUT')
    return problem('request-timeout', 'The request has not been sent in time.');
  return problem('bad-request', 'What was sent is not HTTP.');
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

function tcpServer(app: ApiApp, tcp: TCPOptions, open: ReadonlySet<string>): Server {
  const guarded = listener(
    (request, connection) => objection(request, tcp, open) ?? app.fetch(request, connection),
  );
  if (tcp.tls === undefined) return createServer(LIMITS, guarded);
  const { cert, key, clientCA } = tcp.tls;
  const client = clientCA === undefined ? {} : { ca: clientCA, requestCert: true, rejectUnauthorized: true };
  return createTLSServer({ ...LIMITS, cert, key, ...client }, guarded);
}

/**
 * Why a request is not answered, if so. A page of another site must not reach the API through the browser of a user who
 * may (DNS rebinding): its `Host` is not ours, and its `Origin` is not what it asks.
 */
function objection(
  request: Request,
  { host, token }: TCPOptions,
  open: ReadonlySet<string>,
): Response | undefined {
  const asked = new URL(request.url);
  const named = hostName(asked.hostname);
  const isOurs = LOOPBACK.has(named)
    ? isLoopback(host) || isAnyAddress(host)
    : named === hostName(host) || isAddress(named);
  if (!isOurs)
    return problemResponse(
      problem('forbidden', 'The Host is not one of this agent.', {
        field: 'Host',
        value: named.slice(0, 120),
      }),
    );
  const origin = request.headers.get('origin');
  if (origin !== null && !isSameOrigin(origin, asked))
    return problemResponse(
      problem('forbidden', 'The Origin is another one.', { field: 'Origin', value: origin.slice(0, 120) }),
    );
  const isOpen = open.has(asked.pathname);
  if (token !== undefined && !isOpen && !isToken(request.headers.get('authorization'), token))
    return problemResponse(
      problem('unauthorized', 'Send Authorization: Bearer with the token of the agent.'),
      {
        'www-authenticate': 'Bearer',
      },
    );
  return undefined;
}

/** Names do not differ in case, nor in the dot at the end of one that is complete. */
function hostName(name: string): string {
  return name.toLowerCase().replace(/\.$/, '');
}

function isSameOrigin(origin: string, asked: URL): boolean {
  return URL.canParse(origin) && new URL(origin).host === asked.host;
}

function isAnyAddress(host: string): boolean {
  return host === '0.0.0.0' || host === '::';
}

/** Addresses cannot be rebound: only names are resolved. */
function isAddress(host: string): boolean {
  return isIP(host.replace(/^\[|\]$/g, '')) !== 0;
}

/** In a time that does not depend on where they differ. */
function isToken(header: string | null, token: string): boolean {
  const shown = header?.startsWith('Bearer ') === true ? header.slice('Bearer '.length) : '';
  const digest = (text: string): Buffer => createHash('sha256').update(text).digest();
  return timingSafeEqual(digest(shown), digest(token));
}
