import type { Context, MiddlewareHandler } from 'hono';
import { bodyLimit } from 'hono/body-limit';
import type { ApiEnv } from '../api-context.ts';
import { ProblemError } from '../problem.ts';

/** Maximum size of a request body in bytes. 10,000 addresses of 64 characters fit. */
const MAX_BODY_BYTES: number = 1 << 20;

/**
 * Maximum number of concurrent requests with a body over TCP. The unix socket has the same maximum, so all bodies take
 * at most 64 MiB.
 */
const MAX_BODIES = 32;

/** Methods whose requests have no body. If one has a body, Node.js discards it. */
const WITHOUT_BODY: ReadonlySet<string> = new Set(['GET', 'HEAD']);

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
 * Returns a function that runs work, at most `max` at a time. If more is requested, it rejects with `too-many`, whose
 * message contains `what`.
 */
export function limitConcurrency(max: number, what: string): <T>(work: () => Promise<T>) => Promise<T> {
  let running = 0;
  return async (work) => {
    if (running >= max)
      throw new ProblemError('too-many', `More than ${max} concurrent ${what}: try again later.`);
    running++;
    try {
      return await work();
    } finally {
      running--;
    }
  };
}

/**
 * Middleware that limits the size of a body and the number of concurrent requests with a body. A body that is too large
 * is refused before anything is read if its length is declared, else after {@link MAX_BODY_BYTES} (`body-too-large`).
 * If there are too many requests, a request is refused before anything is read (`too-many`). Requests over TCP and over
 * the unix socket are counted separately.
 */
export function limitBodies(): MiddlewareHandler<ApiEnv> {
  const local = limitConcurrency(MAX_BODIES, 'requests with a body');
  const tcp = limitConcurrency(MAX_BODIES, 'requests with a body');
  const limitSize = bodyLimit({
    maxSize: MAX_BODY_BYTES,
    onError: () => {
      throw new ProblemError('body-too-large', `The body is larger than ${MAX_BODY_BYTES} bytes.`);
    },
  });
  return async (c, next) => {
    if (WITHOUT_BODY.has(c.req.method)) return next();
    const limited = isLocal(c) ? local : tcp;
    return limited(async () => limitSize(c, next));
  };
}
