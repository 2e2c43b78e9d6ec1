import { OpenAPIHono, type z } from '@hono/zod-openapi';
import { HTTPException } from 'hono/http-exception';
import { routePath } from 'hono/route';
import type { Clock } from '../base/clock.ts';
import { errorCode } from '../base/failure.ts';
import type { ApiApp } from './api-context.ts';
import type { ProcessMetrics } from './metrics/process-metrics.ts';
import { MAX_VALUE_LENGTH, type ProblemDocument, ProblemError, problem, problemResponse } from './problem.ts';
import { limitBodies, socketOnly } from './server/request-limits.ts';

export interface BaseAppOptions {
  readonly clock: Clock;
  readonly metrics: Pick<ProcessMetrics, 'countRequest'>;
  /** Receives the error of a request if it failed because of a bug. */
  readonly onFault: (error: unknown) => void;
  /** Paths refused over TCP. */
  readonly socketOnly?: readonly string[] | undefined;
}

/** The methods of routes. A route for GET also serves HEAD. */
const SERVED_METHODS: readonly string[] = ['GET', 'HEAD', 'POST'];

/** Maximum length of a message of zod. */
const MAX_MESSAGE_LENGTH = 240;

/**
 * Creates an application without routes. It measures and limits every request, and answers an error with a problem
 * document (RFC 9457).
 */
export function createBaseApp(options: BaseAppOptions): ApiApp {
  const app: ApiApp = new OpenAPIHono({
    defaultHook: (result, c) => {
      if (result.success) return;
      throw fieldProblem(result.error.issues, (field) => c.req.query(field) ?? c.req.param(field));
    },
  });
  app.onError((error) => problemResponse(problemOf(error, options.onFault)));
  app.notFound((c) => {
    const { method, path } = c.req;
    const served = SERVED_METHODS.filter((other) => serves(app, other, path));
    if (served.length === 0 && SERVED_METHODS.includes(method))
      return problemResponse(
        problem('unknown-path', `Unknown path ${path.slice(0, MAX_VALUE_LENGTH)}: see /openapi.json.`),
      );
    const allow = served.length === 0 ? 'GET, HEAD' : served.join(', ');
    return problemResponse(problem('method-not-allowed', `${method} is not allowed for this path.`), {
      allow,
    });
  });
  app.use(async (c, next) => {
    const startedAt = options.clock.now();
    await next();
    const durationMs = options.clock.now() - startedAt;
    options.metrics.countRequest(routePath(c, -1), c.res.status, durationMs / 1000);
  });
  for (const path of options.socketOnly ?? []) app.use(path, socketOnly);
  app.use(limitBodies());
  return app;
}

/** Adds `/openapi.json`, the description of all routes. */
export function addDescription(app: ApiApp, version: string, description: string): void {
  app.doc31('/openapi.json', {
    openapi: '3.1.0',
    info: { title: 'datapath-cache', version, description },
  });
}

/** Returns true if a route serves the path. Middleware for all paths is no route. */
function serves(app: ApiApp, method: string, path: string): boolean {
  const registered = method === 'HEAD' ? 'GET' : method;
  const [handlers] = app.router.match(registered, path);
  return handlers.some(([[, route]]) => route.method === registered);
}

/** Returns the problem of the first invalid field. */
function fieldProblem(
  [issue]: readonly z.core.$ZodIssue[],
  sentValue: (field: string) => string | undefined,
): ProblemError {
  const unknown = issue?.code === 'unrecognized_keys' ? issue.keys : [];
  const field =
    [...(issue?.path ?? []), ...unknown].map(String).join('.').slice(0, MAX_VALUE_LENGTH) || 'body';
  const value = sentValue(field);
  return new ProblemError('invalid-parameter', `${field} ${issueText(issue)}.`, {
    field,
    ...(value !== undefined && { value }),
  });
}

/** Unit of a limit, by the kind of the value. */
const UNITS: Readonly<Record<string, string>> = { string: ' characters', array: ' items' };

/** Names of types in messages. */
const TYPES: Readonly<Record<string, string>> = {
  int: 'an integer',
  number: 'a number',
  string: 'a string',
  array: 'a list',
  object: 'an object',
};

/** Returns what is wrong with a field. The messages of zod do not name the allowed values. */
function issueText(issue: z.core.$ZodIssue | undefined): string {
  switch (issue?.code) {
    case 'unrecognized_keys':
      return 'is unknown: see /openapi.json';
    case 'invalid_type':
      return `must be ${TYPES[issue.expected] ?? issue.expected}`;
    case 'too_big':
      return limitText('at most', issue.maximum, issue.origin);
    case 'too_small':
      return limitText('at least', issue.minimum, issue.origin);
    default:
      return issue?.message.slice(0, MAX_MESSAGE_LENGTH) ?? 'is invalid';
  }
}

/** Returns the text of a limit. `origin`: the kind of the limited value, such as `array`. */
function limitText(words: 'at most' | 'at least', limit: number | bigint, origin: string): string {
  const unit = UNITS[origin];
  return unit === undefined ? `must be ${words} ${limit}` : `must have ${words} ${limit}${unit}`;
}

function problemOf(error: unknown, onFault: (error: unknown) => void): ProblemDocument {
  if (error instanceof ProblemError) return error.document;
  if (error instanceof HTTPException) {
    if (error.status === 415)
      return problem('unsupported-media-type', 'The content type of the body must be application/json.');
    if (error.status < 500) return problem('invalid-parameter', error.message);
  }
  if (isHungUp(error)) return problem('bad-request', 'The connection was closed before the end of the body.');
  onFault(error);
  return problem('internal', 'Internal error; see the log of the process.');
}

/** Returns true if the client closed the connection before the end of the body. */
function isHungUp(error: unknown): boolean {
  const code = errorCode(error);
  return code === 'ECONNRESET' || code === 'ERR_STREAM_PREMATURE_CLOSE';
}
