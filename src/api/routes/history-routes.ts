import { createRoute, z } from '@hono/zod-openapi';
import type { Context } from 'hono';
import { backendCount, type CauseGroup, CauseGroups } from '../../history/causes.ts';
import type { PastReader } from '../../history/past/past-reader.ts';
import type { HistoryRange, HistoryRecord, When } from '../../history/types.ts';
import { Prefix } from '../../net/prefix.ts';
import { parseServiceKey } from '../../servicecache/service-id.ts';
import type { ApiApp, RouteContext } from '../api-context.ts';
import { serviceDocument } from '../documents.ts';
import {
  causeDocument,
  heldDocument,
  historyOf,
  notHeldProblem,
  recordDocument,
  whenParameter,
} from '../history-documents.ts';
import { ProblemError } from '../problem.ts';
import type { ReadModel } from '../read-model.ts';
import { CAUSES, HISTORY } from '../schemas/history-schemas.ts';
import { limitConcurrency } from '../server/request-limits.ts';
import { whenText } from '../when.ts';
import { answerJSON } from './answer.ts';
import { answers, checkConnected, filterParameter, prefixParameter } from './route-parts.ts';

/**
 * Maximum number of concurrent requests for groups over TCP, and as many over the unix socket. Each reads all records
 * of its window.
 */
const MAX_GROUPINGS = 4;

/** Maximum weight of a page, see {@link weightOf}: 10 to 20 MB. */
const MAX_PAGE_WEIGHT = 100_000;

const RANGE = {
  from: filterParameter('Only changes at or after this time: RFC 3339, `-10m` or `#SEQUENCE`'),
  to: filterParameter('Only changes at or before this time'),
};

const LIST = createRoute({
  method: 'get',
  path: '/v1/history',
  summary: 'Returns the changes of a prefix, or all changes, newest first',
  request: {
    query: z
      .strictObject({
        key: filterParameter(
          'IP, CIDR, `namespace/name` of a service or `cluster/name` of a node; default: everything',
        ),
        ...RANGE,
        after: z.coerce
          .number()
          .int()
          .min(1)
          .optional()
          .describe('Continue after the record with this sequence number: only older ones'),
        limit: z.coerce.number().int().min(1).max(1_000).default(100),
      })
      .openapi('HistoryFilters'),
  },
  responses: answers(HISTORY, 'Changes, newest first'),
});

const AROUND = createRoute({
  method: 'get',
  path: '/v1/history/around',
  summary: 'Returns the changes around a moment, grouped by cause, the largest group first',
  request: {
    query: z.strictObject({
      at: filterParameter('The moment; default: now'),
      window: z.coerce
        .number()
        .min(0.001)
        .max(3_600)
        .default(5)
        .describe('Seconds before and after the moment'),
      limit: z.coerce.number().int().min(1).max(1_000).default(20),
    }),
  },
  responses: answers(CAUSES, 'Groups of changes'),
});

export function addHistoryRoutes(app: ApiApp, { model, clock }: RouteContext): void {
  app.openapi(LIST, async (c) => {
    const { key, from, to, after, limit } = c.req.valid('query');
    const history = historyOf(model);
    const { past } = history;
    const now = clock.wallTime();
    const begin = from === undefined ? undefined : whenParameter(history, 'from', from, now);
    const end = to === undefined ? undefined : whenParameter(history, 'to', to, now);
    if (isAfter(begin, end))
      throw new ProblemError('invalid-time', `from (${from}) is after to (${to}): exchange them.`, {
        field: 'from',
        value: from,
      });
    const options = { ...(await rangeOf(past, begin, end, after)), limit: limit + 1 };
    const isName = key !== undefined && Prefix.parse(key) === undefined && /^[^/]+\/[^/]+$/.test(key);
    const sources: AsyncIterable<readonly HistoryRecord[]>[] = [];
    if (isName)
      sources.push(past.documentsOf('service', key, options), past.documentsOf('node', key, options));
    else if (key === undefined) sources.push(past.records(options));
    else {
      const prefix = prefixParameter('key', key);
      sources.push(past.of(prefix.isFullLength ? key : prefix.toString(), options));
    }
    const items: HistoryRecord[] = [];
    let oldest = 0;
    for (const slices of sources) oldest = Math.max(oldest, await collect(c, slices, items));
    items.sort((a, b) => b.sequence - a.sequence);
    let weight = 0;
    const page = items.slice(0, limit).filter((record, index) => {
      weight += weightOf(record);
      return index === 0 || (record.sequence >= oldest && weight <= MAX_PAGE_WEIGHT);
    });
    return answerJSON(c, {
      items: page.map(recordDocument),
      held: heldDocument(past.held),
      more: items.length > page.length,
      changes: history.status().held,
    });
  });
  const limitGroupings = limitConcurrency(MAX_GROUPINGS, 'requests for the changes around a moment');
  app.openapi(AROUND, async (c) => {
    const { at, window, limit } = c.req.valid('query');
    const history = historyOf(model);
    const { past } = history;
    const now = clock.wallTime();
    const when = at === undefined ? now : await wallTimeOf(past, 'at', whenParameter(history, 'at', at, now));
    const { held } = past;
    if (when < held.from) throw notHeldProblem(at ?? 'now', held);
    const windowMs = window * 1000;
    const range = { from: when - windowMs, to: when + windowMs };
    const groups = await limitGroupings(c, async () => groupedChanges(c, model, range, limit));
    return answerJSON(c, {
      at: new Date(when).toISOString(),
      groups: groups.map(causeDocument),
      held: heldDocument(held),
    });
  });
}

/** Returns the changes of a range, grouped by cause. Throws `ProblemError` if the client disconnects. */
async function groupedChanges(
  c: Context,
  model: ReadModel,
  range: { readonly from: number; readonly to: number },
  limit: number,
): Promise<readonly CauseGroup[]> {
  const { past } = historyOf(model);
  const end = Math.min(range.to, past.held.to);
  const groups = new CauseGroups();
  for await (const records of whileConnected(c, past.records(range)))
    for (const record of records) groups.add(record);
  const nodeByHost = new Map<string, string>();
  for (const node of model.nodes.nodes())
    for (const { ip } of node.fields.addresses) nodeByHost.set(ip, node.fullName);
  const emptied = new Set<string>();
  for await (const service of whileConnected(c, groups.reducedServices)) {
    const announced = model.services.get(parseServiceKey(service));
    const current = announced && { ...serviceDocument(announced, model) };
    const { document } = await past.documentAt('service', service, current, end);
    const { backends } = (document ?? {}) as { readonly backends?: readonly unknown[] };
    if (backends === undefined || backends.length === 0) emptied.add(service);
  }
  return groups.sorted({
    limit,
    nodeOf: (host) => nodeByHost.get(host),
    isEmptied: (service) => emptied.has(service),
  });
}

/** Yields items. Throws `ProblemError` if the client disconnects. */
async function* whileConnected<T>(
  c: Context,
  items: AsyncIterable<T> | Iterable<T>,
): AsyncGenerator<T, void, void> {
  for await (const item of items) {
    checkConnected(c);
    yield item;
  }
}

/**
 * Adds the records of slices to a list until a page is full, and returns the last sequence number then; 0 if all were
 * added. Throws `ProblemError` if the client disconnects.
 */
async function collect(
  c: Context,
  slices: AsyncIterable<readonly HistoryRecord[]>,
  records: HistoryRecord[],
): Promise<number> {
  let weight = 0;
  for await (const slice of whileConnected(c, slices))
    for (const record of slice) {
      records.push(record);
      weight += weightOf(record);
      if (weight > MAX_PAGE_WEIGHT) return record.sequence;
    }
  return 0;
}

/** Returns the number of backends in a record, and one. */
function weightOf(record: HistoryRecord): number {
  return record.kind === 'service' ? 1 + backendCount(record.before) + backendCount(record.after) : 1;
}

/** Returns true if a moment is after another one of the same form. */
function isAfter(a: When | undefined, b: When | undefined): boolean {
  if (typeof a === 'number') return typeof b === 'number' && a > b;
  return a !== undefined && typeof b === 'object' && a.sequence > b.sequence;
}

/**
 * Returns the range from one moment to another, both included. A moment is a time or a sequence number; several records
 * may have the same time. Throws `ProblemError` if a sequence number is not held.
 */
async function rangeOf(
  past: PastReader,
  from: When | undefined,
  to: When | undefined,
  after: number | undefined,
): Promise<HistoryRange> {
  for (const [field, when] of Object.entries({ from, to }))
    if (typeof when === 'object') await wallTimeOf(past, field, when);
  const beforeSequence =
    typeof to === 'object' ? Math.min(to.sequence + 1, after ?? Number.POSITIVE_INFINITY) : after;
  return {
    ...(typeof from === 'number' && { from }),
    ...(typeof to === 'number' && { to }),
    ...(typeof from === 'object' && { fromSequence: from.sequence }),
    beforeSequence,
  };
}

/** Returns the wall time of the moment in a parameter. Throws `ProblemError` if it is not held. */
async function wallTimeOf(past: PastReader, field: string, when: When): Promise<number> {
  if (typeof when === 'number') return when;
  const at = await past.timeOf(when.sequence);
  if (at !== undefined) return at;
  throw notHeldProblem(whenText(when), past.held, field);
}
