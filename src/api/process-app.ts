import { createRoute, z } from '@hono/zod-openapi';
import { answerJSON } from './answer.ts';
import type { ApiApp } from './api-context.ts';
import { type BaseAppOptions, createBaseApp, describe } from './base-app.ts';
import { addHealthRoutes, type HealthContext } from './health-routes.ts';
import type { ProcessMetrics } from './metrics/process-metrics.ts';
import { answers } from './route-parts.ts';

/** What the API of a process without engines needs. */
export interface ProcessAppOptions extends BaseAppOptions, HealthContext {
  readonly metrics: ProcessMetrics;
  /** How it stands, as plain data. */
  readonly status: () => object;
  /** Of the package, for the description of the API. */
  readonly version: string;
}

const GET_STATUS = createRoute({
  method: 'get',
  path: '/v1/status',
  summary: 'How the process stands',
  responses: answers(z.looseObject({}), 'The status'),
});

/** The API of a process without engines: how it stands, and nothing to look up. */
export function createProcessApp(options: ProcessAppOptions): ApiApp {
  const app = createBaseApp(options);
  addHealthRoutes(app, options);
  app.openapi(GET_STATUS, (c) => answerJSON(c, options.status()));
  describe(app, options.version, 'How the process stands: read-only.');
  return app;
}
