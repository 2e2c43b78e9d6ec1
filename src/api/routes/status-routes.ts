import { ServerResponse } from 'node:http';
import type { HttpBindings } from '@hono/node-server';
import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response';
import { createRoute, z } from '@hono/zod-openapi';
import { onAbort } from '../../base/follow-signal.ts';
import type { ApiApp, ApiContext, RouteContext } from '../api-context.ts';
import { ALL_TYPES, CHANGE_TYPES, type ChangeType } from '../change-types.ts';
import { CONFLICT_KINDS, ConflictScan } from '../conflicts.ts';
import { invalidParameter, ProblemError } from '../problem.ts';
import { healthProblems } from '../problems.ts';
import { CLUSTER_DETAIL, CLUSTERMESH, STATUS } from '../schemas/status-schemas.ts';
import { isLocal } from '../server/request-limits.ts';
import { answerJSON } from './answer.ts';
import { EVENT_STREAM_HEADERS, streamOf, writeEvents } from './event-stream.ts';
import { addHealthRoutes } from './health-routes.ts';
import { MonitorParts, monitorEvents } from './monitor-stream.ts';
import { answers, NAME } from './route-parts.ts';

const GET_STATUS = createRoute({
  method: 'get',
  path: '/v1/status',
  summary: 'Returns the status of the agent: clusters, counts and rejected items',
  responses: answers(STATUS, 'The status'),
});

const GET_CLUSTERMESH = createRoute({
  method: 'get',
  path: '/v1/clustermesh',
  summary: 'Returns the status of each cluster of the mesh',
  responses: answers(CLUSTERMESH, 'The clusters'),
});

const GET_CLUSTER = createRoute({
  method: 'get',
  path: '/v1/clustermesh/{cluster}',
  summary: 'Returns the status of a cluster, of each resource that is read from it, and its configuration',
  request: { params: z.object({ cluster: NAME }) },
  responses: answers(CLUSTER_DETAIL, 'The cluster'),
});

const CONFLICTS = createRoute({
  method: 'get',
  path: '/v1/conflicts',
  summary: 'Returns the conflicts between clusters, with both sides',
  responses: answers(
    z.object({
      counts: z.object({ 'pod-cidr': z.int(), prefix: z.int(), 'cluster-id': z.int() }),
      items: z
        .array(
          z.object({
            kind: z.enum(CONFLICT_KINDS),
            subject: z.string().openapi({ description: 'The prefix or id', example: '10.10.0.0/24' }),
            sides: z.array(z.object({ cluster: z.string(), claim: z.string() })).readonly(),
          }),
        )
        .readonly()
        .describe('At most 1,000 of each kind'),
    }),
    'The conflicts',
  ),
});

const REJECTIONS = createRoute({
  method: 'get',
  path: '/v1/rejections',
  summary: 'Returns the number of rejected items by reason, and the last of them',
  responses: answers(
    z.object({
      total: z.int(),
      byReason: z.record(z.string(), z.int()),
      recent: z.array(
        z.object({
          reason: z.string(),
          field: z.string(),
          value: z.string(),
          at: z.string().optional(),
          message: z.string(),
        }),
      ),
    }),
    'Rejections, oldest first',
  ),
});

const COUNTS = z.array(z.int());

const RATES = createRoute({
  method: 'get',
  path: '/v1/rates',
  summary: 'Returns the number of changes in each interval of the last hour',
  responses: answers(
    z.object({
      intervalMs: z.int(),
      from: z.string().describe('Start of the first interval'),
      counts: z
        .object({ ip: COUNTS, service: COUNTS, node: COUNTS })
        .describe('Changes in each complete interval, oldest first'),
    }),
    'The counts',
  ),
});

const MONITOR = createRoute({
  method: 'get',
  path: '/v1/monitor',
  summary:
    'Returns changes as server-sent events. If a key changes again before its event is sent, only the latest state is sent',
  request: {
    query: z.strictObject({
      types: z
        .string()
        .max(64)
        .optional()
        .describe('Only changes of these types: ip, service, node; separated by commas'),
      from: z
        .string()
        .max(64)
        .optional()
        .describe(
          'Start after this revision: the `revision` of a list, or the `id` of an event. Default: the current revision',
        ),
    }),
    headers: z.object({ 'last-event-id': z.string().max(64).optional() }),
  },
  responses: {
    200: {
      description:
        'Events `synced`, `change`, `resync` if changes were lost, and `heartbeat` after 5 s without another event',
      content: { 'text/event-stream': { schema: z.string() } },
    },
  },
});

/** Maximum number of concurrent monitors over TCP. The unix socket has the same maximum. */
const MAX_MONITORS = 256;

/** Adds the routes of the status, problems, clusters, conflicts, rejections, rates and the monitor. */
export function addStatusRoutes(app: ApiApp, context: RouteContext): void {
  const { model, metrics, gate, clock, feed, blockers } = context;
  const conflicts = new ConflictScan(model, gate, clock);
  metrics.conflicts = () => conflicts.counts();
  app.openapi(CONFLICTS, async (c) => answerJSON(c, await conflicts.scan()));
  metrics.problems = (status) => healthProblems(status, blockers(), clock.wallTime());
  addHealthRoutes(app, { ...context, problems: () => metrics.problems(model.status()) ?? [] });
  app.openapi(GET_STATUS, (c) => answerJSON(c, model.status()));
  app.openapi(GET_CLUSTERMESH, (c) => {
    const { cluster, clusterID, clusters, configProblems, steps } = model.status();
    return answerJSON(c, { cluster, clusterID, clusters, configProblems, steps });
  });
  app.openapi(GET_CLUSTER, (c) => {
    const { cluster } = c.req.valid('param');
    const document = model.cluster(cluster);
    if (document !== undefined) return answerJSON(c, document);
    throw new ProblemError('not-found', 'No such cluster.', { field: 'cluster', value: cluster });
  });
  app.openapi(REJECTIONS, (c) => {
    const { total, byReason, recent } = model.rejections();
    return answerJSON(c, { total, byReason, recent });
  });
  app.openapi(RATES, (c) => answerJSON(c, feed.rates()));
  addMonitorRoute(app, context);
}

function addMonitorRoute(app: ApiApp, context: RouteContext): void {
  const { metrics, onFault } = context;
  const parts = new MonitorParts(context);
  const monitors = { local: 0, tcp: 0 };
  metrics.monitors = () => monitors.local + monitors.tcp;
  app.openapi(MONITOR, (c) => {
    const { types, from } = c.req.valid('query');
    const request = {
      types: typesParameter(types),
      from: fromParameter(context, c.req.valid('header')['last-event-id'] ?? from),
    };
    // A stream would never end, because the body of a HEAD request has no reader.
    if (c.req.method === 'HEAD') return new Response(null, { headers: EVENT_STREAM_HEADERS });
    const transport = isLocal(c) ? 'local' : 'tcp';
    if (monitors[transport] >= MAX_MONITORS)
      throw new ProblemError('too-many', `More than ${MAX_MONITORS} concurrent monitors: try again later.`);
    monitors[transport]++;
    const ended = new AbortController();
    onAbort(ended.signal, () => monitors[transport]--);
    const events = monitorEvents(context, parts, request, ended.signal);
    const { outgoing }: Partial<HttpBindings> = c.env ?? {}; // undefined for requests within the process
    if (!(outgoing instanceof ServerResponse))
      return new Response(
        streamOf(events, () => ended.abort()),
        { headers: EVENT_STREAM_HEADERS },
      );
    outgoing.once('close', () => ended.abort());
    writeEvents(events, outgoing).catch(onFault);
    // The server recognizes by a header that a Response of Node.js is already sent. It replaces the global `Response`
    // by a class for which it does not read this header. If the constant was created after that, it is of this class,
    // and the server would send a second head. A clone is always a Response of Node.js.
    return RESPONSE_ALREADY_SENT.clone();
  });
}

function typesParameter(text: string | undefined): ReadonlySet<ChangeType> {
  if (text === undefined) return ALL_TYPES;
  const isType = (word: string): word is ChangeType => CHANGE_TYPES.some((type) => type === word);
  const names = text.split(',');
  const types = names.filter(isType);
  if (types.length === names.length) return new Set(types);
  throw invalidParameter('types', text, 'contains an unknown type', CHANGE_TYPES.join(', '));
}

/**
 * Parses a revision or an event id. Returns -1, which causes a resync, if the id belongs to another run of the agent.
 */
function fromParameter({ instance, feed }: ApiContext, text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  const [, run, revision] = /^(?:([0-9a-f-]{1,40})\.)?(\d{1,15})$/.exec(text) ?? [];
  const allowed = `a number, such as the revision of a list (now ${feed.revision})`;
  if (revision === undefined)
    throw invalidParameter('from', text, 'is not a revision or an event id', allowed);
  return run === undefined || run === instance ? Number(revision) : -1;
}
