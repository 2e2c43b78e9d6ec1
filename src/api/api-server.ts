import { createHash, timingSafeEqual } from 'node:crypto';
import { createServer, type Server, type ServerOptions } from 'node:http';
import { createServer as createTLSServer } from 'node:https';
import { isIP } from 'node:net';
import { getRequestListener } from '@hono/node-server';
import type { ApiApp } from './api-context.ts';
import { listen } from './listen.ts';
import { problem, problemResponse } from './problem.ts';
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

/** Names of this machine for itself. */
const LOOPBACK = new Set(['localhost', '127.0.0.1', '[::1]', '::1']);

/** Whether only this machine can reach an address. */
export function isLoopback(host: string): boolean {
  return LOOPBACK.has(host) || (isIP(host) === 4 && host.startsWith('127.'));
}

/** The servers of the API. */
export class ApiServer {
  readonly #options: ApiServerOptions;
  readonly #servers: Server[] = [];

  constructor(options: ApiServerOptions) {
    this.#options = options;
  }

  /** Resolves when everything listens. Rejects, and listens nowhere, when something is in the way. */
  async start(): Promise<void> {
    const { app, socket, tcp } = this.#options;
    try {
      if (socket !== undefined) {
        const server = createServer(
          LIMITS,
          getRequestListener((request) => app.fetch(request)),
        );
        await this.#add(server, listenOnSocket(server, socket));
      }
      if (tcp !== undefined) {
        const server = tcpServer(app, tcp);
        await this.#add(server, listen(server, { host: tcp.host, port: tcp.port }));
      }
    } catch (error) {
      await this.stop();
      throw error;
    }
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

  /** Ends every connection. The socket's file goes. */
  async stop(): Promise<void> {
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
    await listening;
    this.#servers.push(server);
  }
}

function tcpServer(app: ApiApp, tcp: TCPOptions): Server {
  const guarded = getRequestListener((request) => objection(request, tcp) ?? app.fetch(request));
  if (tcp.tls === undefined) return createServer(LIMITS, guarded);
  const { cert, key, clientCA } = tcp.tls;
  const client = clientCA === undefined ? {} : { ca: clientCA, requestCert: true, rejectUnauthorized: true };
  return createTLSServer({ ...LIMITS, cert, key, ...client }, guarded);
}

/**
 * Why a request is not answered, if so. A page of another site must not reach the API through the browser of a user who
 * may (DNS rebinding): its `Host` is not ours, and its `Origin` is not what it asks.
 */
function objection(request: Request, { host, token }: TCPOptions): Response | undefined {
  const asked = new URL(request.url);
  const named = asked.hostname;
  const isOurs = LOOPBACK.has(named)
    ? isLoopback(host) || isAnyAddress(host)
    : named === host || isAddress(named);
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
  if (token !== undefined && !isToken(request.headers.get('authorization'), token))
    return problemResponse(
      problem('unauthorized', 'Send Authorization: Bearer with the token of the agent.'),
      {
        'www-authenticate': 'Bearer',
      },
    );
  return undefined;
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
