import { createRoute, z } from '@hono/zod-openapi';
import type { PrefixMoment } from '../../history/types.ts';
import type { IPCacheSnapshot } from '../../ipcache/snapshot.ts';
import { canonicalEndpoint } from '../../net/prefix.ts';
import type { ApiApp, RouteContext } from '../api-context.ts';
import { type EntryDocument, entryDocument } from '../documents.ts';
import { historyOf, whenParameter } from '../history-documents.ts';
import { ProblemError } from '../problem.ts';
import type { ReadModel } from '../read-model.ts';
import { ENTRY } from '../schemas/engine-schemas.ts';
import { pastEntry } from './past-entries.ts';
import { answers, checkConnected, runWhileConnected } from './route-parts.ts';

/** Maximum number of IPs of one lookup request. */
const MAX_IPS = 10_000;

/** Number of IPs looked up per step: less than a millisecond. */
const ADDRESSES_PER_SLICE = 512;

const LOOKUP_MANY = createRoute({
  method: 'post',
  path: '/v1/lookup',
  summary: 'Returns the entries of many IPs',
  request: {
    body: {
      required: true,
      content: {
        'application/json': {
          schema: z.strictObject({
            ips: z
              .array(
                z.union([
                  z.string().max(64),
                  z.strictObject({ address: z.string().max(64), at: z.string().max(64) }),
                ]),
              )
              .max(MAX_IPS)
              .describe('IPs; with `at`: the entry of that moment'),
          }),
        },
      },
    },
  },
  responses: answers(
    z.object({
      revision: z.int(),
      entries: z.array(ENTRY.nullable()),
      errors: z
        .array(z.object({ index: z.int(), ip: z.string(), detail: z.string() }))
        .describe('Invalid items; their entries are null'),
    }),
    'The entry of each IP, in order; null if the IP is unknown or invalid',
  ),
});

/** Adds the route that looks up many IPs. */
export function addLookupRoutes(app: ApiApp, { model, feed, clock, gate }: RouteContext): void {
  const { ipcache } = model;
  /** Returns the answer if it is in memory, otherwise a function that reads it from the disk. */
  const pastAnswerOf = (key: string, at: string): PastAnswer => {
    const history = historyOf(model);
    const when = whenParameter(history, 'at', at, clock.wallTime());
    const moment = history.lookup(key, when);
    return moment?.reason === 'before-held' ? () => history.past.lookup(key, when) : moment;
  };
  app.openapi(LOOKUP_MANY, async (c) => {
    const { ips } = c.req.valid('json');
    const revision = feed.revision;
    const entries: (EntryDocument | null)[] = [];
    const errors: LookupError[] = [];
    const view = ips.length > ADDRESSES_PER_SLICE ? ipcache.snapshot() : ipcache;
    const onDisk: LookupOnDisk[] = [];
    await runWhileConnected(c, gate, lookUp(model, view, ips, { entries, errors, onDisk, pastAnswerOf }));
    for (const item of onDisk) {
      checkConnected(c);
      setPastEntry(model, item, await item.read(), { entries, errors });
    }
    errors.sort((a, b) => a.index - b.index);
    return c.json({ revision, entries, errors }, 200);
  });
}

/** An invalid item of a lookup request. */
interface LookupError {
  readonly index: number;
  readonly ip: string;
  readonly detail: string;
}

/** The result of a lookup of an earlier moment, or a function that reads the result from the disk. */
type PastAnswer = PrefixMoment | undefined | (() => Promise<PrefixMoment | undefined>);

interface PastItem {
  readonly index: number;
  readonly ip: string;
  readonly at: string;
}

/** An item whose answer must be read from the disk. */
interface LookupOnDisk extends PastItem {
  readonly read: () => Promise<PrefixMoment | undefined>;
}

interface LookupAnswers {
  readonly entries: (EntryDocument | null)[];
  readonly errors: LookupError[];
}

/**
 * Calls `answer` for one item. If it throws a problem, adds the problem to `errors`, unless the IP was certainly
 * unknown.
 */
function answerItem(
  { index, ip }: Omit<LookupError, 'detail'>,
  errors: LookupError[],
  answer: () => void,
): void {
  try {
    answer();
  } catch (error) {
    if (!(error instanceof ProblemError)) throw error;
    const { status, reason } = error.document;
    if (status !== 404 || reason !== undefined) errors.push({ index, ip, detail: error.document.detail });
  }
}

function setPastEntry(
  model: ReadModel,
  item: PastItem,
  moment: PrefixMoment | undefined,
  { entries, errors }: LookupAnswers,
): void {
  answerItem(item, errors, () => {
    entries[item.index] = pastEntry(model, { key: item.ip, at: item.at }, moment);
  });
}

/**
 * Looks up IPs, {@link ADDRESSES_PER_SLICE} per step. Adds an entry or null for each IP, and an error if it is not an
 * IP.
 */
function* lookUp(
  model: ReadModel,
  view: Pick<IPCacheSnapshot, 'lookup'>,
  ips: readonly (string | { readonly address: string; readonly at: string })[],
  {
    entries,
    errors,
    onDisk,
    pastAnswerOf,
  }: LookupAnswers & {
    readonly onDisk: LookupOnDisk[];
    readonly pastAnswerOf: (key: string, at: string) => PastAnswer;
  },
): Generator<void, void, void> {
  for (const [index, item] of ips.entries()) {
    const ip = typeof item === 'string' ? item : item.address;
    const address = canonicalEndpoint(ip);
    if (address === undefined) errors.push({ index, ip, detail: 'not a valid IP address' });
    if (typeof item === 'string') {
      const entry = view.lookup(ip);
      entries.push(entry === undefined ? null : entryDocument(entry, model));
    } else {
      entries.push(null);
      if (address !== undefined)
        answerItem({ index, ip }, errors, () => {
          const { at } = item;
          const answer = pastAnswerOf(address, at);
          if (typeof answer === 'function') onDisk.push({ index, ip, at, read: answer });
          else setPastEntry(model, { index, ip, at }, answer, { entries, errors });
        });
    }
    if (entries.length % ADDRESSES_PER_SLICE === 0) yield;
  }
}
