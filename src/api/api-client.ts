import http, { type IncomingMessage } from 'node:http';
import { errorCode, messageOf } from '../base/failure.ts';
import { sleep } from '../base/sleep.ts';
import { type Runtime, type RuntimeOptions, withRuntime } from '../base/system-clock.ts';
import { isObject } from '../net/fields.ts';
import { isUnknownPath, type ProblemDocument, problemMessage } from './problem.ts';

/** Thrown if the agent is unreachable or answers with a problem. */
export class AgentError extends Error {
  /** The problem returned by the agent, whose fields are not checked; `undefined` if it was unreachable. */
  readonly problem: Partial<ProblemDocument> | undefined;

  constructor(message: string, problem?: Partial<ProblemDocument>, cause?: unknown) {
    super(message, { cause });
    this.name = 'AgentError';
    this.problem = problem;
  }
}

/** Maximum length of an answer, or of one line of a stream. A service with 100,000 backends has some 40 MB. */
const MAX_ANSWER_MIB = 64;

/** Origin of the requests over a socket, whose server checks no host. */
const SOCKET_ORIGIN: ApiOrigin = { origin: 'http://localhost' };

/** Statuses of too many requests, and of a request that the agent did not receive completely in time. */
const RETRIED: ReadonlySet<number | undefined> = new Set([429, 408]);

/** Delay after a refusal without `Retry-After`. */
const RETRY_MS = 1_000;

/** Maximum total delay of the retries of a request. */
const MAX_RETRY_MS = 10_000;

/** Requests a path of the API and returns the answer: a document, or a list for JSON lines. */
export type Ask = (path: string, body?: unknown) => Promise<unknown>;

/** An agent over TCP. */
export interface ApiOrigin {
  /** `https://node-b:8080`, without path. */
  readonly origin: string;
  readonly token?: string | undefined;
  /** Certificates of the authorities that may sign the certificate of the agent, PEM. Default: those of Node.js. */
  readonly ca?: string | undefined;
}

/**
 * Sends requests to an agent over its unix socket, or over TCP. Follows no redirect, because the target of a redirect
 * would receive the token.
 */
export class ApiClient {
  readonly #target: ApiOrigin | undefined;
  /** The path of the socket, or the origin, for messages. */
  readonly #name: string;
  readonly #signal: AbortSignal;
  readonly #runtime: Runtime;

  constructor(target: string | ApiOrigin, signal: AbortSignal, runtime: RuntimeOptions = {}) {
    this.#runtime = withRuntime(runtime);
    this.#target = typeof target === 'string' ? undefined : target;
    this.#name = typeof target === 'string' ? target : target.origin;
    this.#signal = signal;
  }

  /**
   * Returns the document at a path. Sends a POST if there is a body. Retries a request refused with 429 or 408, which
   * the agent sends before it does any work: after `Retry-After`, with jitter. The delays of a request are at most 10 s
   * in total. Throws `AgentError`.
   */
  readonly ask: Ask = async (path, body) => {
    const { clock, random } = this.#runtime;
    for (let waitedMs = 0; ; ) {
      const answer = await this.#send(path, body);
      const document = await this.#readDocument(answer);
      if (isSuccess(answer)) return document;
      const retryAfterMs = Number(answer.headers['retry-after'] ?? 0) * 1000;
      const delayMs = (retryAfterMs > 0 ? retryAfterMs : RETRY_MS) * (1 + random());
      waitedMs += delayMs;
      if (!RETRIED.has(answer.statusCode) || waitedMs > MAX_RETRY_MS)
        throw this.#refusalError(answer, document);
      await sleep(clock, delayMs, this.#signal);
    }
  };

  /** Yields the lines of a stream as they arrive. Throws `AgentError`. */
  async *lines(path: string): AsyncGenerator<string, void, void> {
    const answer = await this.#send(path);
    if (!isSuccess(answer)) throw this.#refusalError(answer, await this.#readDocument(answer));
    let rest = '';
    answer.setEncoding('utf8');
    try {
      for await (const part of answer) {
        rest = this.#limited(rest + part);
        if (!part.includes('\n')) continue; // a split of each part of a long line would take quadratic time
        const lines = rest.split('\n');
        rest = lines.pop() ?? '';
        yield* lines;
      }
    } catch (cause) {
      throw this.#readError(cause);
    }
  }

  async #readDocument(answer: IncomingMessage): Promise<unknown> {
    let text = '';
    answer.setEncoding('utf8');
    try {
      for await (const part of answer) text = this.#limited(text + part);
    } catch (cause) {
      throw this.#readError(cause);
    }
    try {
      return parseAnswer(answer.headers['content-type'], text);
    } catch (cause) {
      const target = this.#target === undefined ? 'the socket of an agent' : 'an agent';
      throw new AgentError(`${this.#name}: not ${target}: its answer is not JSON`, undefined, cause);
    }
  }

  /** Returns the text of an answer. Throws if it is too long. */
  #limited(text: string): string {
    if (text.length <= MAX_ANSWER_MIB << 20) return text;
    throw new AgentError(`${this.#name}: the answer has more than ${MAX_ANSWER_MIB} MiB`);
  }

  #readError(cause: unknown): AgentError {
    if (cause instanceof AgentError) return cause;
    return new AgentError(`${this.#name}: the agent has stopped`, undefined, cause);
  }

  async #send(path: string, body?: unknown): Promise<IncomingMessage> {
    const content = body === undefined ? undefined : JSON.stringify(body);
    const { origin, token, ca } = this.#target ?? SOCKET_ORIGIN;
    const url = new URL(path, origin);
    const { request } = url.protocol === 'https:' ? await import('node:https') : http;
    const options = {
      method: content === undefined ? 'GET' : 'POST',
      headers: {
        ...(content !== undefined && { 'content-type': 'application/json' }),
        ...(token !== undefined && { authorization: `Bearer ${token}` }),
      },
      signal: this.#signal,
      agent: false, // no pool of connections, because a pooled connection could outlive the server
      socketPath: this.#target === undefined ? this.#name : undefined,
      ca,
    };
    return new Promise((resolve, reject) => {
      const sent = request(url, options, resolve);
      sent.on('error', (cause) =>
        reject(new AgentError(unreachableText(this.#name, cause), undefined, cause)),
      );
      sent.end(content);
    });
  }

  #refusalError({ statusCode }: IncomingMessage, document: unknown): AgentError {
    // Each error of the API is a problem document. Another server may have answered instead of an agent.
    const problem = isObject(document) ? (document as Partial<ProblemDocument>) : {};
    const { detail } = problem;
    // An operator or a kvstoremesh has answered, or an agent of an earlier version.
    if (isUnknownPath(problem))
      return new AgentError(
        `${this.#name}: not an agent, or an agent of another version: use the dpcache version of that process, or ask another one`,
        problem,
      );
    const message =
      typeof detail === 'string'
        ? problemMessage({ detail })
        : `unexpected status ${statusCode} of the agent`;
    return new AgentError(this.#target === undefined ? message : `${this.#name}: ${message}`, problem);
  }
}

function isSuccess({ statusCode = 0 }: IncomingMessage): boolean {
  return statusCode >= 200 && statusCode < 300;
}

/** The media type of JSON lines. */
export const NDJSON_TYPE = 'application/x-ndjson';

/** Parses an answer. JSON lines are returned as a list. Throws `SyntaxError`. */
export function parseAnswer(type: string | undefined, text: string): unknown {
  if (type?.startsWith(NDJSON_TYPE) !== true) return JSON.parse(text);
  const lines = text.split('\n').filter((line) => line !== '');
  return lines.map((line): unknown => JSON.parse(line));
}

/** Returns true if a request to a socket failed with `cause` because no process listens on it. */
export function isUnservedSocket(cause: unknown): boolean {
  const code = errorCode(cause);
  return code === 'ENOENT' || code === 'ECONNREFUSED';
}

function unreachableText(name: string, cause: Error): string {
  if (!name.includes('://') && isUnservedSocket(cause)) return `${name}: no process listens on this socket`;
  if (errorCode(cause) === 'ECONNRESET') return `${name}: the agent closed the connection before it answered`;
  return `${name}: ${messageOf(cause)}`;
}
