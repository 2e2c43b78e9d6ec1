import { createRoute, z } from '@hono/zod-openapi';
import type { Context } from 'hono';
import { isoTime } from '../../base/system-clock.ts';
import { forEachInSteps, resultOfSteps } from '../../base/turn-gate.ts';
import { backendCount, type CauseGroup, CauseGroups } from '../../history/causes.ts';
import type { PastReader } from '../../history/past/past-reader.ts';
import type { HistoryRange, HistoryRecord, When } from '../../history/types.ts';
import { Prefix } from '../../net/prefix.ts';
import type { Node } from '../../nodemanager/node.ts';
import { parseServiceKey } from '../../servicecache/service-id.ts';
import type { ApiApp, RouteContext } from '../api-context.ts';
import {
  causeDocument,
  type HistoryDocument,
  historyOf,
  notRetainedProblem,
  recordDocument,
  retainedDocument,
  whenParameter,
} from '../history-documents.ts';
import { ProblemError } from '../problem.ts';
import { CAUSES, HISTORY } from '../schemas/history-schemas.ts';
import { limitConcurrency } from '../server/request-limits.ts';
import { whenText } from '../when.ts';
import { answerJSON, answerPieces } from './answer.ts';
import { pageJSON } from './list-pages.ts';
import {
  answers,
  checkConnected,
  filterParameter,
  integerParameter,
  limitParameter,
  prefixParameter,
  runWhileConnected,
} from './route-parts.ts';
import { serviceDocumentSteps } from './service-json.ts';

/**
 * Maximum number of concurrent requests for groups over TCP, and as many over the unix socket. Each reads all records
 * of its window.
 */
const MAX_GROUPINGS = 4;

/** The same maximum for searches for an identity. Each decodes all records of its range. */
const MAX_SEARCHES = 4;

/** Maximum weight of a page, see {@link weightOf}: 10 to 20 MB. */
const MAX_PAGE_WEIGHT = 100_000;

/** Number of nodes whose addresses are read per step: less than a millisecond. */
const NODES_PER_STEP = 1_024;

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
        identity: integerParameter(2 ** 32 - 1)
          .optional()
          .describe('Only changes of prefixes that had this identity before or after the change'),
        ...RANGE,
        after: z.coerce
          .number()
          .int()
          .min(1)
          .optional()
          .describe('Continue after the record with this sequence number: only older ones'),
        limit: limitParameter(1_000, 100),
      })
      .openapi('HistoryFilters'),
  },
  responses: answers(HISTORY, 'Changes, newest first'),
});

const AROUND = createRoute({
  method: 'get',
  path: '/v1/history/around',
  summary: 'Returns the changes around a moment, grouped by store and node, the largest group first',
  request: {
    query: z.strictObject({
      at: filterParameter('The moment; default: now'),
      window: z.coerce
        .number()
        .min(0.001)
        .max(3_600)
        .default(5)
        .describe('Seconds before and after the moment'),
      limit: limitParameter(1_000, 20),
    }),
  },
  responses: answers(CAUSES, 'Groups of changes'),
});

export function addHistoryRoutes(app: ApiApp, context: RouteContext): void {
  const { model, clock, gate } = context;
  const limitSearches = limitConcurrency(MAX_SEARCHES, 'searches of the history for an identity');
  app.openapi(LIST, async (c) => {
    const { key, identity, from, to, after, limit } = c.req.valid('query');
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
    const range = { ...(await rangeOf(past, begin, end, after)), identity, limit: limit + 1 };
    const read = (): ReturnType<typeof readRecords> => readRecords(c, recordsOf(past, key, range), limit);
    const { page, more } = await (identity === undefined ? read() : limitSearches(c, read));
    const { recordsInMemory: changesInMemory } = history.status();
    const answer = { items: page, retained: retainedDocument(past.retained), more, changesInMemory };
    return answerPieces<HistoryDocument>(
      c,
      gate,
      pageJSON(answer, (record) => [JSON.stringify(recordDocument(record))]),
    );
  });
  const limitGroupings = limitConcurrency(MAX_GROUPINGS, 'requests for the changes around a moment');
  app.openapi(AROUND, async (c) => {
    const { at, window, limit } = c.req.valid('query');
    const history = historyOf(model);
    const { past } = history;
    const now = clock.wallTime();
    const when = at === undefined ? now : await wallTimeOf(past, 'at', whenParameter(history, 'at', at, now));
    const { retained } = past;
    if (when < retained.from) throw notRetainedProblem(at ?? 'now', retained);
    const windowMs = window * 1000;
    const range = { from: when - windowMs, to: when + windowMs };
    const groups = await limitGroupings(c, async () => groupedChanges(c, context, range, limit));
    return answerJSON(c, {
      at: isoTime(when),
      groups: groups.map(causeDocument),
      retained: retainedDocument(retained),
    });
  });
}

/** The records of a key, newest first, in slices. */
type RecordSlices = AsyncIterable<readonly HistoryRecord[]>;

/**
 * Returns the records of a key, or all records. A name may be that of a service and of a node. Throws `ProblemError` if
 * the key is invalid.
 */
function recordsOf(past: PastReader, key: string | undefined, range: HistoryRange): readonly RecordSlices[] {
  if (key === undefined) return [past.records(range)];
  const isName = Prefix.parse(key) === undefined && /^[^/]+\/[^/]+$/.test(key);
  if (isName) return [past.documentsOf('service', key, range), past.documentsOf('node', key, range)];
  const prefix = prefixParameter('key', key);
  return [past.of(prefix.isFullLength ? key : prefix.toString(), range)];
}

/**
 * Returns the newest records of all sources: at most `limit`, of at most {@link MAX_PAGE_WEIGHT} in total, but at least
 * one. `more`: true if there are older records.
 */
async function readRecords(
  c: Context,
  sources: readonly RecordSlices[],
  limit: number,
): Promise<{ readonly page: readonly HistoryRecord[]; readonly more: boolean }> {
  const records: HistoryRecord[] = [];
  // If a source was not read to its end, its unread records may be newer than some records of the other source, which
  // are then left for the next page.
  let oldestComplete = 0;
  for (const slices of sources) oldestComplete = Math.max(oldestComplete, await collect(c, slices, records));
  records.sort((a, b) => b.sequence - a.sequence);
  const page: HistoryRecord[] = [];
  let weight = 0;
  for (const record of records.slice(0, limit)) {
    weight += weightOf(record);
    const fits = record.sequence >= oldestComplete && weight <= MAX_PAGE_WEIGHT;
    if (page.length > 0 && !fits) break;
    page.push(record);
  }
  return { page, more: records.length > page.length };
}

/** Returns the changes of a range, grouped by store and node. Throws `ProblemError` if the client disconnects. */
async function groupedChanges(
  c: Context,
  { model, gate }: RouteContext,
  range: { readonly from: number; readonly to: number },
  limit: number,
): Promise<readonly CauseGroup[]> {
  const { past } = historyOf(model);
  const end = Math.min(range.to, past.retained.to);
  const groups = new CauseGroups();
  for await (const records of whileConnected(c, past.records(range)))
    for (const record of records) groups.add(record);
  const nodeByHost = new Map<string, string>();
  await runWhileConnected(c, gate, addNodesByHost(model.nodes.nodes(), nodeByHost));
  const emptied = new Set<string>();
  for await (const service of whileConnected(c, groups.reducedServices)) {
    const announced = model.services.get(parseServiceKey(service));
    const current = announced && (await resultOfSteps(gate, serviceDocumentSteps(announced, model)));
    const { document } = await past.documentAt('service', service, current && { ...current }, end);
    const { backends } = (document ?? {}) as { readonly backends?: readonly unknown[] };
    if (backends === undefined || backends.length === 0) emptied.add(service);
  }
  return groups.sorted({
    limit,
    nodeOf: (host) => nodeByHost.get(host),
    isEmptied: (service) => emptied.has(service),
  });
}

/** Sets the name of the node of each address, in steps. */
function addNodesByHost(nodes: Iterable<Node>, nodeByHost: Map<string, string>): Iterable<unknown> {
  return forEachInSteps(nodes, NODES_PER_STEP, ({ fields, fullName }) => {
    for (const { ip } of fields.addresses) nodeByHost.set(ip, fullName);
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
 * Adds records to a list until a page is full, and then returns the sequence number of the last one. Returns 0 if all
 * records were added. Throws `ProblemError` if the client disconnects.
 */
async function collect(c: Context, slices: RecordSlices, records: HistoryRecord[]): Promise<number> {
  let weight = 0;
  for await (const slice of whileConnected(c, slices))
    for (const record of slice) {
      records.push(record);
      weight += weightOf(record);
      if (weight > MAX_PAGE_WEIGHT) return record.sequence;
    }
  return 0;
}

/** Returns the number of backends in a record plus one. */
function weightOf(record: HistoryRecord): number {
  return record.kind === 'service' ? 1 + backendCount(record.before) + backendCount(record.after) : 1;
}

/** Returns true if `from` is after `to`. A time and a sequence number are not compared. */
function isAfter(from: When | undefined, to: When | undefined): boolean {
  if (typeof from === 'number') return typeof to === 'number' && from > to;
  return typeof from === 'object' && typeof to === 'object' && from.sequence > to.sequence;
}

/**
 * Returns the range from one moment to another, both included; only records before the sequence number `after`, which
 * is the last of the previous page. Throws `ProblemError` if a sequence number is not retained.
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

/** Returns the wall time of the moment in a parameter. Throws `ProblemError` if it is not retained. */
async function wallTimeOf(past: PastReader, field: string, when: When): Promise<number> {
  if (typeof when === 'number') return when;
  const at = await past.timeOf(when.sequence);
  if (at !== undefined) return at;
  throw notRetainedProblem(whenText(when), past.retained, field);
}
