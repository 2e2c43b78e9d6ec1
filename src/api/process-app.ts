import { createRoute, z } from '@hono/zod-openapi';
import { processGate } from '../base/node/process-gate.ts';
import { isoTime } from '../base/system-clock.ts';
import type { ApiApp } from './api-context.ts';
import type { AppOptions } from './app.ts';
import { addDescription, type BaseAppOptions, createBaseApp } from './base-app.ts';
import type { ProcessMetrics } from './metrics/process-metrics.ts';
import { answerJSON } from './routes/answer.ts';
import { addHealthRoutes, type HealthContext } from './routes/health-routes.ts';
import { answers } from './routes/route-parts.ts';
import { addSettingsRoute } from './routes/settings-routes.ts';
import { addUIRoutes } from './routes/ui-routes.ts';

export interface ProcessAppOptions
  extends BaseAppOptions,
    Omit<HealthContext, 'gate'>,
    Pick<AppOptions, 'version' | 'page' | 'settings'> {
  readonly metrics: ProcessMetrics;
  /** Returns the status of the process as plain data. */
  readonly status: () => object;
}

const GET_STATUS = createRoute({
  method: 'get',
  path: '/v1/status',
  summary: 'Returns the status of the process',
  responses: answers(z.looseObject({}), 'The status'),
});

/** Returns a document with its wall times, the fields `at` and `…At`, as ISO 8601, as in the documents of an agent. */
function withISOTimes(document: object): object {
  const timeText = (field: string, value: unknown): unknown =>
    /^at$|At$/.test(field) && Number.isFinite(value) ? isoTime(Number(value)) : value;
  return JSON.parse(JSON.stringify(document, timeText));
}

/**
 * Creates the application of a process without engines. It serves health, metrics, status, settings and the page only.
 */
export function createProcessApp(options: ProcessAppOptions): ApiApp {
  const app = createBaseApp(options);
  addHealthRoutes(app, { ...options, gate: processGate(options.clock) });
  app.openapi(GET_STATUS, (c) => answerJSON(c, withISOTimes(options.status())));
  addSettingsRoute(app, options.settings);
  if (options.page !== undefined) addUIRoutes(app, options.page);
  addDescription(app, options.version, 'Status and settings of the process, read-only.');
  return app;
}
