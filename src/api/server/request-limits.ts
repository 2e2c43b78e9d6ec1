import type { IncomingMessage } from 'node:http';
import type { Context, MiddlewareHandler } from 'hono';
import { skipString } from '../../base/json-pieces.ts';
import type { ApiEnv } from '../api-context.ts';
import { ProblemError } from '../problem.ts';

/** Maximum size of a request body in bytes. 10,000 addresses of 64 characters fit. */
const MAX_BODY_BYTES: number = 1 << 20;

/** Maximum depth of the JSON of a body. `JSON.parse` takes 0.1 s for a million brackets. */
const MAX_BODY_DEPTH = 128;

/** Maximum number of concurrent requests with a body over TCP, and as many over the unix socket: 64 MiB in total. */
const MAX_BODIES = 32;

/** Methods whose requests need no body. If one has a body, Node.js discards it after the answer. */
const WITHOUT_BODY: ReadonlySet<string | undefined> = new Set(['GET', 'HEAD']);

/** Returns true if a request of {@link WITHOUT_BODY} has a chunked or large body, which takes long to discard. */
export function hasLargeUnusedBody({ method, headers }: IncomingMessage): boolean {
  const { 'transfer-encoding': coding, 'content-length': length = 0 } = headers;
  return WITHOUT_BODY.has(method) && (coding !== undefined || Number(length) > MAX_BODY_BYTES);
}

/** Middleware that rejects requests over TCP before their bodies are read. */
export const socketOnly: MiddlewareHandler<ApiEnv> = (c, next) => {
  if (!isLocal(c))
    throw new ProblemError('forbidden', 'Forbidden over TCP: use the unix socket of the agent.');
  return next();
};

/**
 * Returns true if a request is from the unix socket or this process. A user who can open the socket has the rights of
 * the agent, while every user of the machine can reach a TCP port. Does not depend on the address of the client,
 * because a TCP connection that was reset has none.
 */
export function isLocal(c: Context<ApiEnv>): boolean {
  return c.env?.incoming === undefined || c.env.isUnixSocket === true;
}

/**
 * Returns a function that runs the work of a request: at most `max` at a time for requests over TCP, and as many for
 * those over the unix socket. If more is requested, it rejects with `too-many`, whose message contains `what`.
 */
export function limitConcurrency(
  max: number,
  what: string,
): <T>(c: Context<ApiEnv>, work: () => Promise<T>) => Promise<T> {
  const running = { local: 0, tcp: 0 };
  return async (c, work) => {
    const transport = isLocal(c) ? 'local' : 'tcp';
    if (running[transport] >= max)
      throw new ProblemError('too-many', `More than ${max} concurrent ${what}: try again later.`);
    running[transport]++;
    try {
      return await work();
    } finally {
      running[transport]--;
    }
  };
}

/** Returns true if the containers of a JSON text are nested deeper than {@link MAX_BODY_DEPTH}. */
function isTooDeep(text: string): boolean {
  let depth = 0;
  for (let at = 0; at < text.length; at++) {
    const character = text[at];
    if (character === '"') at = skipString(text, at) - 1;
    else if (character === '[' || character === '{') depth++;
    else if (character === ']' || character === '}') depth--;
    if (depth > MAX_BODY_DEPTH) return true;
  }
  return false;
}

/**
 * Middleware that limits the size of a body and the number of concurrent requests with a body. Refuses a body unread if
 * it is too large (`body-too-large`), if its length is not declared (`length-required`), if it is compressed
 * (`unsupported-media-type`), and if too many requests have one (`too-many`). Chunks are refused because a body in
 * chunks of one byte would take 0.1 s in each turn.
 */
export function limitBodies(): MiddlewareHandler<ApiEnv> {
  const limitRequests = limitConcurrency(MAX_BODIES, 'requests with a body');
  return async (c, next) => {
    if (WITHOUT_BODY.has(c.req.method)) return next();
    const encoding = c.req.header('content-encoding') ?? '';
    // A list of codings, whose empty elements are ignored (RFC 9110, section 5.6.1).
    if (!encoding.split(',').every((coding) => ['', 'identity'].includes(coding.trim().toLowerCase())))
      throw new ProblemError('unsupported-media-type', 'The body must not be compressed.', {
        field: 'Content-Encoding',
        value: encoding,
      });
    if (c.req.header('transfer-encoding') !== undefined)
      throw new ProblemError(
        'length-required',
        'The body must have a Content-Length and must not be chunked.',
      );
    if (Number(c.req.header('content-length') ?? 0) > MAX_BODY_BYTES)
      throw new ProblemError('body-too-large', `The body is larger than ${MAX_BODY_BYTES} bytes.`);
    return limitRequests(c, async () => {
      if (isTooDeep(await c.req.text()))
        throw new ProblemError(
          'invalid-parameter',
          `The body is nested deeper than ${MAX_BODY_DEPTH} levels.`,
        );
      return next();
    });
  };
}
