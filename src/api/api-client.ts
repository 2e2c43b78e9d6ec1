import { type IncomingMessage, request } from 'node:http';
import { messageOf } from '../base/failure.ts';
import type { ProblemDocument } from './problem.ts';

/** The agent is unreachable or answered with a problem. */
export class ApiError extends Error {
  /** The problem that the agent returned; `undefined` if it was unreachable. */
  readonly problem: ProblemDocument | undefined;

  constructor(message: string, problem?: ProblemDocument, cause?: unknown) {
    super(message, { cause });
    this.name = 'ApiError';
    this.problem = problem;
  }
}

/** Requests a path of the API and returns the answer: a document, or a list for JSON lines. */
export type Ask = (path: string, body?: unknown) => Promise<unknown>;

/** Sends requests to an agent over its unix socket. */
export class ApiClient {
  readonly #socket: string;
  readonly #signal: AbortSignal;

  constructor(socket: string, signal: AbortSignal) {
    this.#socket = socket;
    this.#signal = signal;
  }

  /** Returns the document at a path. Sends a POST if there is a body. Throws `ApiError`. */
  readonly ask: Ask = async (path, body) => {
    const answer = await this.#send(path, body);
    const document = await this.#document(answer);
    if (isGood(answer)) return document;
    throw refusal(answer, document);
  };

  /** Yields the lines of a stream as they arrive. Throws `ApiError`. */
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
    return parsed(this.#socket, answer.headers['content-type'], text);
  }

  #gone(cause: unknown): ApiError {
    return new ApiError(`${this.#socket}: the agent has stopped`, undefined, cause);
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
          agent: false, // a pooled connection could outlive the agent
          headers: content === undefined ? {} : { 'content-type': 'application/json' },
        },
        resolve,
      );
      asked.on('error', (cause) =>
        reject(new ApiError(unreachableText(this.#socket, cause), undefined, cause)),
      );
      asked.end(content);
    });
  }
}

function isGood({ statusCode = 0 }: IncomingMessage): boolean {
  return statusCode >= 200 && statusCode < 300;
}

function refusal({ statusCode }: IncomingMessage, document: unknown): ApiError {
  const problem = (document ?? {}) as ProblemDocument;
  return new ApiError(problem.detail ?? `unexpected status ${statusCode} of the agent`, problem);
}

/** The media type of JSON lines. */
export const NDJSON_TYPE = 'application/x-ndjson';

/** Parses an answer. JSON lines are returned as a list. Throws `SyntaxError`. */
export function parseAnswer(type: string | undefined, text: string): unknown {
  if (type?.startsWith(NDJSON_TYPE) !== true) return JSON.parse(text);
  const lines = text.split('\n').filter((line) => line !== '');
  return lines.map((line): unknown => JSON.parse(line));
}

function parsed(socket: string, type: string | undefined, text: string): unknown {
  try {
    return parseAnswer(type, text);
  } catch (cause) {
    throw new ApiError(`${socket}: not the socket of an agent: its answer is not JSON`, undefined, cause);
  }
}

function unreachableText(socket: string, cause: Error): string {
  const why =
    'code' in cause && (cause.code === 'ENOENT' || cause.code === 'ECONNREFUSED')
      ? 'no process listens on this socket'
      : messageOf(cause);
  return `${socket}: ${why}`;
}

/** Returns requests to an agent over TCP at an origin such as `https://node-b:8080`. They throw `ApiError`. */
export function askOrigin(origin: string, token: string | undefined, signal: AbortSignal): Ask {
  return async (path, body) => {
    const headers = {
      ...(token !== undefined && { authorization: `Bearer ${token}` }),
      ...(body !== undefined && { 'content-type': 'application/json' }),
    };
    const init = body === undefined ? {} : { method: 'POST', body: JSON.stringify(body) };
    let document: unknown;
    let status: number;
    try {
      // A redirect could send the token to another host.
      const answer = await fetch(new URL(path, origin), { headers, signal, redirect: 'error', ...init });
      status = answer.status;
      document = parseAnswer(answer.headers.get('content-type') ?? undefined, await answer.text());
    } catch (cause) {
      const why = cause instanceof Error && cause.cause instanceof Error ? cause.cause : cause;
      throw new ApiError(`${origin}: ${messageOf(why)}`, undefined, cause);
    }
    if (status >= 200 && status < 300) return document;
    const problem = (document ?? {}) as ProblemDocument;
    throw new ApiError(`${origin}: ${problem.detail ?? `unexpected status ${status}`}`, problem);
  };
}
