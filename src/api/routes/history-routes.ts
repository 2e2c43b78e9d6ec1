import { createRoute, z } from '@hono/zod-openapi';
import type { History } from '../../history/history.ts';
import type { HistoryRecord, When } from '../../history/types.ts';
import type { ApiApp, RouteContext } from '../api-context.ts';
import { heldDocument, historyOf, notHeld, recordDocument, whenParameter } from '../history-documents.ts';
import { ProblemError } from '../problem.ts';
import { HISTORY } from '../schemas.ts';
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
        key: filterParameter('IP or CIDR; default: everything'),
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

/** Adds the routes of the history. */
export function addHistoryRoutes(app: ApiApp, { model, clock, gate }: RouteContext): void {
  app.openapi(LIST, async (c) => {
    const { key, from, to, after, limit } = c.req.valid('query');
    const history = historyOf(model);
    const now = clock.wallTime();
    const range = {
      from: from && boundary(history, whenParameter('from', from, now)),
      to: to && boundary(history, whenParameter('to', to, now)),
    };
    const options = {
      ...(range.from !== undefined && range.from !== '' && { from: range.from }),
      ...(range.to !== undefined && range.to !== '' && { to: range.to }),
      ...(after !== undefined && { before: after }),
      limit: limit + 1,
    };
    const items: HistoryRecord[] = [];
    const records =
      key === undefined
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
      changes: history.status().records.prefix,
    });
  });
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
  const problem = notHeld(history.held);
  throw new ProblemError('not-held', problem.message, { held: heldDocument(history.held) });
}
