import { type IncomingMessage, request } from 'node:http';
import type { ProblemDocument } from './problem.ts';

/** The agent cannot be asked, or has said that something is wrong. */
export class ApiError extends Error {
  /** What the agent said; `undefined` when it was not reached. */
  readonly problem: ProblemDocument | undefined;

  constructor(message: string, problem?: ProblemDocument, cause?: unknown) {
    super(message, { cause });
    this.name = 'ApiError';
    this.problem = problem;
  }
}

/** Turns a path of the API into its answer. */
export type Ask = (path: string, body?: unknown) => Promise<unknown>;

/** Asks the agent behind a unix socket. */
export class ApiClient {
  readonly #socket: string;
  readonly #signal: AbortSignal;

  constructor(socket: string, signal: AbortSignal) {
    this.#socket = socket;
    this.#signal = signal;
  }

  /** The document at a path. With a body it is a POST. Throws `ApiError`. */
  readonly ask: Ask = async (path, body) => {
    const answer = await this.#send(path, body);
    const document = await this.#document(answer);
    if (isGood(answer)) return document;
    throw refusal(answer, document);
  };

  /** The lines of a stream, as they come. Throws `ApiError`. */
  async *lines(path: string): AsyncGenerator<string, void, void> {
    const answer = await this.#send(path);
    if (!isGood(answer)) throw refusal(answer, await this.#document(answer));
    let rest = '';
    answer.setEncoding('utf8');
    try {
      for await (const part of answer) {
        const lines = (rest + part).split('\n');
        rest = lines.pop() ?? '';
        yield* lines;
      }
    } catch (cause) {
      throw this.#gone(cause);
    }
  }

  async #document(answer: IncomingMessage): Promise<unknown> {
    let text = '';
    answer.setEncoding('utf8');
    try {
      for await (const part of answer) text += part;
    } catch (cause) {
      throw this.#gone(cause);
    }
    return parsed(this.#socket, text);
  }

  #gone(cause: unknown): ApiError {
    return new ApiError(`${this.#socket}: the agent has gone`, undefined, cause);
  }

  #send(path: string, body?: unknown): Promise<IncomingMessage> {
    const content = body === undefined ? undefined : JSON.stringify(body);
    return new Promise((resolve, reject) => {
      const asked = request(
        {
          socketPath: this.#socket,
          path,
          method: content === undefined ? 'GET' : 'POST',
          signal: this.#signal,
          agent: false, // a connection that is kept would outlive the agent
          headers: content === undefined ? {} : { 'content-type': 'application/json' },
        },
        resolve,
      );
      asked.on('error', (cause) => reject(new ApiError(unreached(this.#socket, cause), undefined, cause)));
      asked.end(content);
    });
  }
}

function isGood({ statusCode = 0 }: IncomingMessage): boolean {
  return statusCode >= 200 && statusCode < 300;
}

function refusal({ statusCode }: IncomingMessage, document: unknown): ApiError {
  const problem = (document ?? {}) as ProblemDocument;
  return new ApiError(problem.detail ?? `the agent has answered ${statusCode}`, problem);
}

function parsed(socket: string, text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new ApiError(
      `${socket}: what serves it is no agent: it has not answered with JSON`,
      undefined,
      cause,
    );
  }
}

function unreached(socket: string, cause: Error): string {
  const why =
    'code' in cause && (cause.code === 'ENOENT' || cause.code === 'ECONNREFUSED')
      ? 'no agent serves it'
      : cause.message;
  return `${socket}: ${why}`;
}
