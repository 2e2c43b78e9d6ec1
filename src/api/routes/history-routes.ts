import { createRoute, z } from '@hono/zod-openapi';
import { CauseGroups } from '../../history/causes.ts';
import type { History } from '../../history/history.ts';
import type { HistoryRecord, When } from '../../history/types.ts';
import { Prefix } from '../../net/prefix.ts';
import type { ApiApp, RouteContext } from '../api-context.ts';
import { serviceDocument } from '../documents.ts';
import {
  causeDocument,
  heldDocument,
  historyOf,
  notHeld,
  recordDocument,
  whenParameter,
} from '../history-documents.ts';
import type { ReadModel } from '../read-model.ts';
import { CAUSES, HISTORY } from '../schemas.ts';
import { answerJSON } from './answer.ts';
import { answers, filterParameter, prefixParameter } from './route-parts.ts';

/** Records read per step. */
const RECORDS_PER_SLICE = 512;

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
          .openapi({ description: 'Continue after the record with this sequence number: only older ones' }),
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
        .openapi({ description: 'Seconds before and after the moment' }),
      limit: z.coerce.number().int().min(1).max(1_000).default(20),
    }),
  },
  responses: answers(CAUSES, 'Groups of changes'),
});

/** Adds the routes of the history. */
export function addHistoryRoutes(app: ApiApp, { model, clock, gate }: RouteContext): void {
  app.openapi(LIST, async (c) => {
    const { key, from, to, after, limit } = c.req.valid('query');
    const history = historyOf(model);
    const now = clock.wallTime();
    const wallTime = (field: string, text: string | undefined): number | undefined =>
      text === undefined ? undefined : boundary(history, whenParameter(field, text, now));
    const options = {
      from: wallTime('from', from),
      to: wallTime('to', to),
      before: after,
      limit: limit + 1,
    };
    const items: HistoryRecord[] = [];
    const isName = key !== undefined && Prefix.parse(key) === undefined && /^[^/]+\/[^/]+$/.test(key);
    const records = isName
      ? both(history.documentsOf('service', key, options), history.documentsOf('node', key, options))
      : key === undefined
        ? history.records(options)
        : history.of(
            prefixParameter('key', key).isFullLength ? key : prefixParameter('key', key).toString(),
            options,
          );
    await gate.runSteps(collect(records, items));
    return answerJSON(c, {
      items: items.slice(0, limit).map(recordDocument),
      held: heldDocument(history.held),
      more: items.length > limit,
      changes: history.status().held,
    });
  });
  app.openapi(AROUND, async (c) => {
    const { at, window, limit } = c.req.valid('query');
    const history = historyOf(model);
    const now = clock.wallTime();
    const when = at === undefined ? now : boundary(history, whenParameter('at', at, now));
    const { from } = history.held;
    if (when < from) throw notHeld(history.held);
    const windowMs = window * 1000;
    const records: HistoryRecord[] = [];
    await gate.runSteps(collect(history.records({ from: when - windowMs, to: when + windowMs }), records));
    const groups = causeGroups(model, history, { when, windowMs, records });
    await gate.runSteps(group(records, groups));
    return answerJSON(c, {
      at: new Date(when).toISOString(),
      groups: groups.sorted().slice(0, limit).map(causeDocument),
      held: heldDocument(history.held),
    });
  });
}

/** Returns empty groups that know the names of the nodes of that time and the services that lost their last backend. */
function causeGroups(
  model: ReadModel,
  history: History,
  {
    when,
    windowMs,
    records,
  }: {
    readonly when: number;
    readonly windowMs: number;
    readonly records: readonly HistoryRecord[];
  },
): CauseGroups {
  const nodeByHost = new Map<string, string>();
  for (const node of model.nodes.nodes())
    for (const { ip } of node.fields.addresses) nodeByHost.set(ip, node.fullName);
  // Nodes that existed only then.
  for (const record of records) {
    if (record.kind !== 'node') continue;
    const { addresses = [] } = (record.before ?? record.after) as { addresses?: readonly { ip: string }[] };
    for (const { ip } of addresses) if (!nodeByHost.has(ip)) nodeByHost.set(ip, record.key);
  }
  const countAt = (service: string, moment: number): number => {
    const announced = model.services.get(serviceIDOf(service));
    const current = announced && { ...serviceDocument(announced, model) };
    const { document } = history.documentAt('service', service, current, moment);
    return (document as { readonly backends?: readonly unknown[] } | undefined)?.backends?.length ?? 0;
  };
  const end = Math.min(when + windowMs, model.history?.held.to ?? when);
  const begin = Math.max(when - windowMs - 1, history.held.from);
  return new CauseGroups(
    (host) => nodeByHost.get(host),
    (service) => countAt(service, end) === 0 && countAt(service, begin) > 0,
  );
}

/** Adds records, newest first, to groups in the order of time, a slice in each step. */
function* group(records: readonly HistoryRecord[], groups: CauseGroups): Generator<void, void, void> {
  for (let rest = records.length; rest > 0; rest--) {
    groups.add(records[rest - 1] as HistoryRecord); // above 0
    if (rest % RECORDS_PER_SLICE === 0) yield;
  }
}

function serviceIDOf(text: string): { readonly namespace: string; readonly name: string } {
  const [namespace = '', name = ''] = text.split('/');
  return { namespace, name };
}

/** Yields the records of a name: it is that of a service or of a node, rarely of both. */
function* both(
  services: Iterable<HistoryRecord>,
  nodes: Iterable<HistoryRecord>,
): Generator<HistoryRecord, void, void> {
  const all = [...services, ...nodes];
  yield* all.sort((a, b) => b.sequence - a.sequence);
}

function* collect(records: Iterable<HistoryRecord>, into: HistoryRecord[]): Generator<void, void, void> {
  for (const record of records) {
    into.push(record);
    if (into.length % RECORDS_PER_SLICE === 0) yield;
  }
}

/** Returns the wall time of a boundary. */
function boundary(history: History, when: When): number {
  if (typeof when === 'number') return when;
  const at = history.timeOf(when.sequence);
  if (at !== undefined) return at;
  throw notHeld(history.held);
}
