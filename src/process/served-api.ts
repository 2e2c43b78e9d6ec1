import { AgentError, type Ask, parseAnswer } from '../api/api-client.ts';
import type { ApiApp } from '../api/api-context.ts';
import type { ProcessMetrics } from '../api/metrics/process-metrics.ts';
import { type ProblemDocument, problemMessage } from '../api/problem.ts';
import { type UIFile, uiPath } from '../api/routes/ui-routes.ts';
import { ApiServer, type TCPCredentials, type TCPOptions } from '../api/server/api-server.ts';
import type { Clock } from '../base/clock.ts';
import { errorCode, messageOf } from '../base/failure.ts';
import type { FaultReport } from './fault-report.ts';
import { followCredentials } from './followed-credentials.ts';
import { InputError } from './input-error.ts';
import type { Logger } from './log.ts';

/** Addresses of the API of a process. */
export interface ServeOptions {
  readonly socket?: string | undefined;
  /** True if the socket is the default one. If its folder cannot be used, the process runs without a socket. */
  readonly socketIsDefault?: boolean | undefined;
  readonly tcp?: TCPOptions | undefined;
  /**
   * Reads the credentials of `tcp` again. Changed credentials replace those in use. If undefined, credentials are never
   * replaced.
   */
  readonly credentials?: (() => Promise<TCPCredentials>) | undefined;
  /** The files of the page, which is served over TCP. */
  readonly page?: readonly UIFile[] | undefined;
}

export interface ServedApiContext {
  readonly log: Logger;
  readonly clock: Clock;
  readonly metrics: Pick<ProcessMetrics, 'countCredentialFailure' | 'countRefused'>;
  /** Logs the requests that failed because of a bug. */
  readonly faults: Pick<FaultReport, 'flush'>;
  readonly page?: readonly UIFile[] | undefined;
}

/** The API of a process, for requests within the process and from clients. */
export class ServedApi {
  readonly #app: ApiApp;
  readonly #context: ServedApiContext;
  readonly #stopped = new AbortController();
  #server: ApiServer | undefined;
  #socket: string | undefined;

  constructor(app: ApiApp, context: ServedApiContext) {
    this.#app = app;
    this.#context = context;
  }

  /** Sends a request without a connection. Throws `AgentError`. */
  readonly ask: Ask = async (path, body) => {
    const answer =
      body === undefined
        ? await this.#app.request(path)
        : await this.#app.request(path, {
            method: 'POST',
            body: JSON.stringify(body),
            headers: { 'content-type': 'application/json' },
          });
    const document = parseAnswer(answer.headers.get('content-type') ?? undefined, await answer.text());
    if (answer.ok) return document;
    const problem = document as ProblemDocument;
    throw new AgentError(problemMessage(problem), problem);
  };

  /**
   * Starts to serve. Throws `InputError` if an address or the socket cannot be used. If the folder of a default socket
   * may not be written, serves without a socket.
   */
  async serve({ socket, socketIsDefault = false, tcp, credentials }: ServeOptions): Promise<void> {
    try {
      await this.#listen({ socket, tcp, credentials });
    } catch (error) {
      const remedy = isAddressError(error) ? '; set another address with --listen' : '';
      const reason = `cannot serve the API: ${messageOf(error)}${remedy}`;
      if (!socketIsDefault || socket === undefined || !isForbidden(error))
        throw new InputError(reason, { cause: error });
      this.#context.log.warn(`${reason}; set another socket with --socket, or none with --no-socket`);
      await this.serve({ tcp, credentials });
    }
  }

  get hasPage(): boolean {
    return this.#context.page !== undefined;
  }

  /** Path of the unix socket; undefined if there is none. */
  get socket(): string | undefined {
    return this.#socket;
  }

  /** URL over TCP; undefined if there is none. */
  get url(): string | undefined {
    return this.#server?.url;
  }

  async #listen({
    socket,
    tcp,
    credentials,
  }: Pick<ServeOptions, 'socket' | 'tcp' | 'credentials'>): Promise<void> {
    const { log, clock, metrics, page } = this.#context;
    const server = new ApiServer({
      app: this.#app,
      socket,
      tcp,
      pathsWithoutToken: new Set(page?.map(uiPath)),
      onRefused: (reason) => metrics.countRefused(reason),
    });
    this.#server = server;
    await server.start();
    this.#socket = socket;
    if (tcp === undefined || credentials === undefined) return;
    void followCredentials(tcp, {
      read: credentials,
      renew: (read) => server.renew(read),
      onFailure: () => metrics.countCredentialFailure(),
      log,
      clock,
      signal: this.#stopped.signal,
    });
  }

  /** Stops the server and closes all connections. */
  async stop(): Promise<void> {
    this.#stopped.abort();
    await this.#server?.stop();
    this.#context.faults.flush();
  }
}

/** Returns true if a TCP address cannot be used. */
function isAddressError(error: unknown): boolean {
  return error instanceof Error && 'port' in error && 'code' in error;
}

/** Returns true if the folder of the socket may not be written. Returns false for a port that may not be used. */
function isForbidden(error: unknown): boolean {
  if (isAddressError(error)) return false;
  const code = errorCode(error);
  return code === 'EACCES' || code === 'EPERM' || code === 'EROFS';
}
