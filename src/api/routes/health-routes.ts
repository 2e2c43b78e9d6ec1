import { createRoute, z } from '@hono/zod-openapi';
import type { TurnGate } from '../../base/turn-gate.ts';
import type { ApiApp } from '../api-context.ts';
import type { ProcessMetrics } from '../metrics/process-metrics.ts';
import type { HealthProblem } from '../problems.ts';
import { PROBLEMS } from '../schemas/status-schemas.ts';
import { answerJSON } from './answer.ts';
import { answers } from './route-parts.ts';

/** Sources of the health, readiness and metrics routes. */
export interface HealthContext {
  readonly metrics: Pick<ProcessMetrics, 'text' | 'contentType'>;
  readonly gate: TurnGate;
  /** Returns the reasons why the process is not ready, one sentence each. Empty if it is ready. */
  readonly blockers: () => readonly string[];
  /** Returns the current problems, the worst first. */
  readonly problems: () => readonly HealthProblem[];
}

const HEALTH = createRoute({
  method: 'get',
  path: '/healthz',
  summary: 'Returns 200 if the process answers',
  responses: answers(z.object({ status: z.literal('ok'), pid: z.int() }), 'The process answers'),
});

const READINESS = z.object({ ready: z.boolean(), blockers: z.array(z.string()) });

const READY = createRoute({
  method: 'get',
  path: '/readyz',
  summary: 'Returns 200 if the process is ready, or 503 with the reasons why it is not',
  responses: {
    200: { description: 'The process is ready', content: { 'application/json': { schema: READINESS } } },
    503: { description: 'The process is not ready', content: { 'application/json': { schema: READINESS } } },
  },
});

const GET_PROBLEMS = createRoute({
  method: 'get',
  path: '/v1/problems',
  summary: 'Returns the current problems of the process, the worst first; at least one while it is not ready',
  responses: answers(PROBLEMS, 'The problems'),
});

const METRICS = createRoute({
  method: 'get',
  path: '/metrics',
  summary: 'Returns the metrics for Prometheus',
  responses: {
    200: { description: 'Prometheus text format', content: { 'text/plain': { schema: z.string() } } },
  },
});

/** Adds `/healthz`, `/readyz`, `/v1/problems` and `/metrics`. */
export function addHealthRoutes(app: ApiApp, { metrics, gate, blockers, problems }: HealthContext): void {
  app.openapi(HEALTH, (c) => c.json({ status: 'ok' as const, pid: process.pid }, 200));
  app.openapi(READY, (c) => {
    const reasons = [...blockers()];
    return reasons.length === 0
      ? c.json({ ready: true, blockers: reasons }, 200)
      : c.json({ ready: false, blockers: reasons }, 503);
  });
  app.openapi(GET_PROBLEMS, (c) => answerJSON(c, { ready: blockers().length === 0, items: problems() }));
  app.openapi(METRICS, async (c) =>
    c.text(await metrics.text(gate), 200, { 'content-type': metrics.contentType }),
  );
}
