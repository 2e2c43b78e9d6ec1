import { bodyLimit } from 'hono/body-limit';
import { TurnGate } from '../base/turn-gate.ts';
import type { ApiApp, ApiContext } from './api-context.ts';
import { createBaseApp, describe } from './base-app.ts';
import { addDatapathRoutes } from './datapath-routes.ts';
import { addEngineRoutes } from './engine-routes.ts';
import { addIPRoutes } from './ip-routes.ts';
import { addPageRoutes, type PageFile } from './page-routes.ts';
import { ProblemError } from './problem.ts';
import { addStatusRoutes } from './status-routes.ts';

/** 10,000 addresses of 64 characters. */
const BODY_LIMIT = 1 << 20;

/** So many of them are read and answered at a time. */
const LOOKUPS = 32;

/** What the app needs beside what its routes do. */
export interface AppOptions extends ApiContext {
  /** Of the package, for the description of the API. */
  readonly version: string;
  /** The page, where it is served. */
  readonly page?: readonly PageFile[] | undefined;
}

/** The API as an application that turns a request into an answer: over a socket, or called directly. */
export function createApp(options: AppOptions): ApiApp {
  const app = createBaseApp(options);
  let lookups = 0;
  app.use('/v1/lookup', async (_c, next) => {
    if (lookups >= LOOKUPS)
      throw new ProblemError('too-many', `No more than ${LOOKUPS} look-ups are served at a time.`);
    lookups++;
    try {
      await next();
    } finally {
      lookups--;
    }
  });
  app.use(
    '/v1/lookup',
    bodyLimit({
      maxSize: BODY_LIMIT,
      onError: () => {
        throw new ProblemError('body-too-large', `The body is larger than ${BODY_LIMIT} bytes.`);
      },
    }),
  );
  const gate = new TurnGate({ clock: options.clock, nextTurn: setImmediate });
  addIPRoutes(app, { ...options, gate });
  addEngineRoutes(app, { ...options, gate });
  addStatusRoutes(app, options);
  addDatapathRoutes(app, options);
  if (options.page !== undefined) addPageRoutes(app, options.page);
  describe(app, options.version, 'What is where.');
  return app;
}
