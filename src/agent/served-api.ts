import { ApiError, type Ask } from '../api/api-client.ts';
import type { ApiApp } from '../api/api-context.ts';
import { ApiServer, type TCPOptions } from '../api/api-server.ts';
import { type PageFile, pagePath } from '../api/page-routes.ts';
import type { ProblemDocument } from '../api/problem.ts';
import { messageOf } from '../base/failure.ts';
import { InputError } from './input-error.ts';
import type { Logger } from './log.ts';

/** Where an agent's API is served. */
export interface ServeOptions {
  readonly socket?: string | undefined;
  /** The socket is the default one: where its folder cannot be had, the agent goes on without. */
  readonly socketIsDefault?: boolean | undefined;
  readonly tcp?: TCPOptions | undefined;
  /** The page that is served with it, over TCP. */
  readonly page?: readonly PageFile[] | undefined;
}

/** The API of a process: asked in this process, and served to others. */
export class ServedApi {
  readonly #app: ApiApp;
  readonly #log: Logger;
  readonly #page: readonly PageFile[] | undefined;
  #server: ApiServer | undefined;
  #socket: string | undefined;

  constructor(app: ApiApp, log: Logger, page?: readonly PageFile[]) {
    this.#app = app;
    this.#log = log;
    this.#page = page;
  }

  /** Asks without a connection. */
  readonly ask: Ask = async (path, body) => {
    const answer =
      body === undefined
        ? await this.#app.request(path)
        : await this.#app.request(path, {
            method: 'POST',
            body: JSON.stringify(body),
            headers: { 'content-type': 'application/json' },
          });
    const document: unknown = await answer.json();
    if (answer.ok) return document;
    const problem = document as ProblemDocument;
    throw new ApiError(problem.detail, problem);
  };

  /** Begins to serve. Throws `InputError` when the address or the socket cannot be had. */
  async serve({ socket, socketIsDefault = false, tcp }: ServeOptions): Promise<void> {
    try {
      await this.#listen({ socket, tcp });
    } catch (error) {
      const why = `the API cannot be served: ${messageOf(error)}`;
      if (!socketIsDefault || socket === undefined || !isForbidden(error))
        throw new InputError(why, { cause: error });
      this.#log.warn(`${why}; name another socket with --socket, or none with --no-socket`);
      await this.serve({ tcp });
    }
  }

  /** Whether the page is served. */
  get hasPage(): boolean {
    return this.#page !== undefined;
  }

  /** Its unix socket, if it has one. */
  get socket(): string | undefined {
    return this.#socket;
  }

  /** Its address over TCP, if it has one. */
  get url(): string | undefined {
    return this.#server?.url;
  }

  async #listen(where: Pick<ServeOptions, 'socket' | 'tcp'>): Promise<void> {
    const server = new ApiServer({ app: this.#app, ...where, open: new Set(this.#page?.map(pagePath)) });
    this.#server = server;
    await server.start();
    this.#socket = where.socket;
  }

  /** Ends every connection. */
  async stop(): Promise<void> {
    await this.#server?.stop();
  }
}

/** A folder of the system's, and we are not its owner; not a port that we may not have. */
function isForbidden(error: unknown): boolean {
  if (error instanceof Error && 'port' in error) return false;
  const code = error instanceof Error && 'code' in error ? error.code : undefined;
  return code === 'EACCES' || code === 'EPERM' || code === 'EROFS';
}
