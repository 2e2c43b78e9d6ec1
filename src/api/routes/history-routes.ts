import { createRoute, z } from '@hono/zod-openapi';
import type { Context } from 'hono';
import { CauseGroups } from '../../history/causes.ts';
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
import {
  answers,
  disconnectedProblem,
  filterParameter,
  prefixParameter,
  runWhileConnected,
} from './route-parts.ts';

/** Number of records that are grouped per step. */
const RECORDS_PER_STEP = 512;

/** Maximum number of records that are held to be grouped. Limits their memory: about 900 bytes each. */
const RECORDS_PER_READ = 16_384;

/**
 * Maximum number of concurrent requests for groups, over TCP and over the unix socket. Each holds up to twice
 * {@link RECORDS_PER_READ} records.
 */
const MAX_GROUPINGS = 4;

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

export function addHistoryRoutes(app: ApiApp, { model, clock, gate }: RouteContext): void {
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
    const items: HistoryRecord[] = [];
    const isName = key !== undefined && Prefix.parse(key) === undefined && /^[^/]+\/[^/]+$/.test(key);
    if (isName) {
      await collect(past.documentsOf('service', key, options), items);
      await collect(past.documentsOf('node', key, options), items);
      items.sort((a, b) => b.sequence - a.sequence);
    } else if (key === undefined) await collect(past.records(options), items);
    else {
      const prefix = prefixParameter('key', key);
      await collect(past.of(prefix.isFullLength ? key : prefix.toString(), options), items);
    }
    return answerJSON(c, {
      items: items.slice(0, limit).map(recordDocument),
      held: heldDocument(past.held),
      more: items.length > limit,
      changes: history.status().held,
    });
  });
  const limitGroupings = limitConcurrency(MAX_GROUPINGS, 'requests for the changes around a moment');
  app.openapi(AROUND, async (c) => {
    const { at, window, limit } = c.req.valid('query');
    const history = historyOf(model);
    const { past } = history;
    const now = clock.wallTime();
    const when = at === undefined ? now : await boundary(past, whenParameter(history, 'at', at, now));
    const { held } = past;
    if (when < held.from) throw notHeldProblem(at ?? 'now', held);
    const windowMs = window * 1000;
    const range = { from: when - windowMs, to: when + windowMs };
    const groups = await limitGroupings(c, async () => groupedChanges(c, { model, gate }, range));
    return answerJSON(c, {
      at: new Date(when).toISOString(),
      groups: groups.sorted().slice(0, limit).map(causeDocument),
      held: heldDocument(held),
    });
  });
}

/** Returns the changes of a range, grouped by cause. Throws `ProblemError` if the client disconnects. */
async function groupedChanges(
  c: Context,
  { model, gate }: Pick<RouteContext, 'model' | 'gate'>,
  range: { readonly from: number; readonly to: number },
): Promise<CauseGroups> {
  const { past } = historyOf(model);
  const overview = await overviewOf(whileConnected(c, past.records(range)));
  const groups = await causeGroups(model, past, { range, ...overview });
  let since: number | undefined;
  for (const before of overview.ends.toReversed()) {
    const records: HistoryRecord[] = [];
    await collect(whileConnected(c, past.records({ ...range, since, before })), records);
    await runWhileConnected(c, gate, addRecords(records, groups));
    since = before;
  }
  await runWhileConnected(c, gate, addRecords(overview.newest, groups));
  return groups;
}

/** The parts of a range of records that are needed before the records are grouped. */
interface RangeOverview {
  /** The newest {@link RECORDS_PER_READ} records. */
  readonly newest: readonly HistoryRecord[];
  /** For each further {@link RECORDS_PER_READ} records the sequence number after the last one, newest first. */
  readonly ends: readonly number[];
  /** Full names of the changed nodes by address; the last node with an address. */
  readonly nodes: ReadonlyMap<string, string>;
  /** Names of the changed services. */
  readonly services: ReadonlySet<string>;
}

async function overviewOf(slices: AsyncIterable<readonly HistoryRecord[]>): Promise<RangeOverview> {
  const newest: HistoryRecord[] = [];
  const ends: number[] = [];
  const nodes = new Map<string, string>();
  const services = new Set<string>();
  let count = 0;
  for await (const slice of slices)
    for (const record of slice) {
      if (count < RECORDS_PER_READ) newest.push(record);
      else if (count % RECORDS_PER_READ === 0) ends.push(record.sequence + 1);
      count++;
      if (record.kind === 'service') services.add(record.key);
      if (record.kind !== 'node') continue;
      const { addresses = [] } = (record.before ?? record.after) as { addresses?: readonly { ip: string }[] };
      for (const { ip } of addresses) if (!nodes.has(ip)) nodes.set(ip, record.key);
    }
  return { newest, ends, nodes, services };
}

/**
 * Returns groups without records. They have the names of the nodes of that time and the services that lost their last
 * backend.
 */
async function causeGroups(
  model: ReadModel,
  past: PastReader,
  {
    range,
    nodes,
    services,
  }: Pick<RangeOverview, 'nodes' | 'services'> & {
    readonly range: { readonly from: number; readonly to: number };
  },
): Promise<CauseGroups> {
  const nodeByHost = new Map(nodes); // with those that exist no longer
  for (const node of model.nodes.nodes())
    for (const { ip } of node.fields.addresses) nodeByHost.set(ip, node.fullName);
  const countAt = async (service: string, moment: number): Promise<number> => {
    const announced = model.services.get(parseServiceKey(service));
    const current = announced && { ...serviceDocument(announced, model) };
    const { document } = await past.documentAt('service', service, current, moment);
    return (document as { readonly backends?: readonly unknown[] } | undefined)?.backends?.length ?? 0;
  };
  const { held } = past;
  const end = Math.min(range.to, held.to);
  const begin = Math.max(range.from - 1, held.from);
  const emptied = new Set<string>();
  for (const service of services)
    if ((await countAt(service, end)) === 0 && (await countAt(service, begin)) > 0) emptied.add(service);
  return new CauseGroups(
    (host) => nodeByHost.get(host),
    (service) => emptied.has(service),
  );
}

/** Adds records, newest first, to groups in the order of time, a slice in each step. */
function* addRecords(records: readonly HistoryRecord[], groups: CauseGroups): Generator<void, void, void> {
  for (let rest = records.length; rest > 0; rest--) {
    groups.add(records[rest - 1] as HistoryRecord); // above 0
    if (rest % RECORDS_PER_STEP === 0) yield;
  }
}

/** Yields slices. Throws `ProblemError` if the client disconnects. */
async function* whileConnected<T>({ req }: Context, slices: AsyncIterable<T>): AsyncGenerator<T, void, void> {
  for await (const slice of slices) {
    if (req.raw.signal.aborted) throw disconnectedProblem();
    yield slice;
  }
}

/** Adds all records of slices to a list. */
async function collect(
  slices: AsyncIterable<readonly HistoryRecord[]>,
  into: HistoryRecord[],
): Promise<void> {
  for await (const slice of slices) for (const record of slice) into.push(record);
}

/** Returns true if a moment is after another one of the same form. */
function isAfter(a: When | undefined, b: When | undefined): boolean {
  if (typeof a === 'number') return typeof b === 'number' && a > b;
  return a !== undefined && typeof b === 'object' && a.sequence > b.sequence;
}

/**
 * Returns the range from one moment to another, both included. A moment is a time or a sequence number; several records
 * may have the same time.
 */
async function rangeOf(
  past: PastReader,
  from: When | undefined,
  to: When | undefined,
  after: number | undefined,
): Promise<HistoryRange> {
  for (const when of [from, to]) if (typeof when === 'object') await boundary(past, when);
  const before =
    typeof to === 'object' ? Math.min(to.sequence + 1, after ?? Number.POSITIVE_INFINITY) : after;
  return {
    ...(typeof from === 'number' && { from }),
    ...(typeof to === 'number' && { to }),
    ...(typeof from === 'object' && { since: from.sequence }),
    before,
  };
}

/** Returns the wall time of a boundary. */
async function boundary(past: PastReader, when: When): Promise<number> {
  if (typeof when === 'number') return when;
  const at = await past.timeOf(when.sequence);
  if (at !== undefined) return at;
  throw notHeldProblem(whenText(when), past.held);
}
