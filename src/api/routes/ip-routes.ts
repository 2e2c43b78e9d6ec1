import { createRoute, z } from '@hono/zod-openapi';
import type { KeyedEntry } from '../../ipcache/types.ts';
import { SOURCES } from '../../model/source.ts';
import { Prefix } from '../../net/prefix.ts';
import { type AddressRoleDocument, addressRoles } from '../address-roles.ts';
import type { ApiApp, RouteContext } from '../api-context.ts';
import {
  type EntryDocument,
  type ExplanationDocument,
  entryDocument,
  explanationDocument,
} from '../documents.ts';
import { pastExplanation } from '../history-documents.ts';
import { invalidParameter } from '../problem.ts';
import type { ReadModel } from '../read-model.ts';
import { ENTRY, EXPLANATION } from '../schemas/engine-schemas.ts';
import { PAST_FIELD } from '../schemas/history-schemas.ts';
import { limitConcurrency } from '../server/request-limits.ts';
import { answerJSON } from './answer.ts';
import { matching, parseFilters } from './ip-filters.ts';
import { MAX_SORTED, ORDERS, selectSorted } from './ip-order.ts';
import { type ListPage, ListPages } from './list-pages.ts';
import { effectiveMoment, pastEntry, pastLists, prefixMoment, unknownProblem } from './past-entries.ts';
import {
  AT,
  answers,
  COUNT,
  countItems,
  endpointParameter,
  filterParameter,
  integerParameter,
  listName,
  PAGE_PARAMETERS,
  pageOf,
  prefixParameter,
  readPage,
  runWhileConnected,
} from './route-parts.ts';
import { SnapshotViews } from './snapshot-views.ts';

/** Maximum number of concurrent sorts over TCP, and as many over the unix socket. Each takes up to 5 MB. */
const MAX_SORTS = 16;

/** Maximum `offset`: more prefixes than fit into memory. */
const MAX_OFFSET = 100_000_000;

const FILTER_FIELDS = {
  prefix: filterParameter('Exactly this IP or CIDR'),
  within: filterParameter('Only prefixes in this CIDR'),
  identity: integerParameter(2 ** 32 - 1)
    .optional()
    .describe('Only prefixes with this identity'),
  source: z
    .enum(SOURCES, { error: `must be one of ${SOURCES.join(', ')}` })
    .optional()
    .describe('Only prefixes whose effective claim is from this source'),
  label: filterParameter(
    'Only prefixes whose identity has this label: `app=web`, `k8s:app=web` or `k8s:app`',
  ),
  cluster: filterParameter('Only prefixes whose effective claim is from this remote cluster'),
  pod: filterParameter('Only prefixes of this pod: `namespace/name`'),
  node: filterParameter('Only prefixes on the node with this IP'),
};

const FILTERS = z.strictObject(FILTER_FIELDS);

const LIST = createRoute({
  method: 'get',
  path: '/v1/ipcache',
  summary:
    'Returns a page of prefixes with their entries: without `sort` in no particular order, which stays the same while nothing changes',
  request: {
    query: z
      .strictObject({
        ...FILTER_FIELDS,
        at: filterParameter(
          'The prefixes of this moment, each with `past`: RFC 3339, `-10m` or `#SEQUENCE`. The moment must be one of the running process',
        ),
        sort: z
          .enum(ORDERS, { error: `must be one of ${ORDERS.join(', ')}` })
          .optional()
          .openapi({
            description: `Order by a field, \`-\` descending; the list then has the first ${MAX_SORTED} prefixes. Prefixes without the field are the last`,
          }),
        after: filterParameter('Only with `sort=prefix` or `-prefix`: the prefixes that follow this one'),
        offset: integerParameter(MAX_OFFSET).optional().openapi({
          description:
            'Only without filters and `sort`: one page that begins with this prefix of the list, counted from 0',
        }),
        ...PAGE_PARAMETERS,
      })
      .openapi('IPFilters'),
  },
  responses: answers(
    z.intersection(pageOf(ENTRY), z.object(PAST_FIELD)),
    'A page of prefixes; if `continue` is present, the page may be short or empty',
  ),
});

const COUNT_PREFIXES = createRoute({
  method: 'get',
  path: '/v1/ipcache/count',
  summary: 'Returns the number of prefixes',
  request: { query: FILTERS },
  responses: answers(COUNT, 'The number of prefixes'),
});

const IP_PARAMETER = z.object({ ip: z.string().max(64).openapi({ example: '10.10.0.12' }) });

const CIDR_PARAMETERS = z.object({
  ip: z.string().max(64).openapi({ example: '10.10.0.0' }),
  length: z.string().max(8).openapi({ example: '16' }),
});

const LOOKUP = createRoute({
  method: 'get',
  path: '/v1/ipcache/lookup/{ip}',
  summary: 'Returns the entry of the longest prefix that contains an IP',
  request: { params: IP_PARAMETER, query: AT },
  responses: answers(ENTRY, 'The entry of the prefix'),
});

const EXPLAIN_IP = createRoute({
  method: 'get',
  path: '/v1/ipcache/explain/{ip}',
  summary:
    'Returns the claims on the longest prefix that contains an IP, strongest first, and why the first one is effective',
  request: { params: IP_PARAMETER, query: AT },
  responses: answers(EXPLANATION, 'All claims'),
});

const EXPLAIN_CIDR = createRoute({
  method: 'get',
  path: '/v1/ipcache/explain/{ip}/{length}',
  summary: 'Returns the claims on exactly this CIDR, strongest first, and why the first one is effective',
  request: { params: CIDR_PARAMETERS, query: AT },
  responses: answers(EXPLANATION, 'All claims'),
});

/** Adds the routes of prefixes: lists, lookups and explanations. */
export function addIPRoutes(app: ApiApp, context: RouteContext): void {
  const { ipcache, services } = context.model;
  // The first call of each function builds an index by a scan of a cache. Call them now, while the caches are empty.
  ipcache.countByIdentity(0);
  ipcache.lookupByPod('', '');
  ipcache.lookupByHost('');
  services.lookupAddress('');
  addListRoutes(app, context);
  addKeyRoutes(app, context);
}

/** Adds the routes of many prefixes. */
function addListRoutes(app: ApiApp, context: RouteContext): void {
  const { model, feed, clock, instance, gate } = context;
  const pages = new ListPages<EntryDocument>(clock, feed.endSignal);
  const views = new SnapshotViews(model, feed, clock);
  const listPast = pastLists(context, views);
  const limitSorts = limitConcurrency(MAX_SORTS, 'sorted lists');
  /** Returns the page after the first `offset` entries. If many lists are held, it may be of a recent snapshot. */
  const pageFrom = async (offset: number, limit: number): Promise<ListPage<EntryDocument>> => {
    const { snapshot, revision } = views.snapshot(pages.isFull ? 'recent' : 'current');
    const items: EntryDocument[] = [];
    await gate.run(limit, () => {
      for (const entry of snapshot.entries({ skip: offset }))
        if (items.push(entryDocument(entry, model)) === limit) break;
    });
    return { items, revision };
  };
  app.openapi(LIST, async (c) => {
    const query = c.req.valid('query');
    const { at, sort, after, offset, ...rest } = query;
    checkOrder(query);
    if (offset !== undefined) return answerJSON(c, await pageFrom(offset, query.limit));
    const page = await readPage(pages, gate, query, async () => {
      if (at !== undefined) return listPast(c, at, rest);
      const filters = parseFilters(query, model);
      // The indexes by pod and host are those of the current cache, so the snapshot must be current, too.
      const isCurrent = filters.pod !== undefined || filters.host !== undefined;
      // If the limit of snapshots is reached, new lists share the last one.
      const view = views.snapshot(pages.isFull && !isCurrent ? 'recent' : 'current');
      const { snapshot, revision } = view;
      const name = listName(instance, 'ipcache', snapshot.revision, query);
      let entries: Iterable<KeyedEntry | undefined> = matching(model, snapshot, filters);
      if (sort !== undefined) {
        const sorted: KeyedEntry[] = [];
        const first = after === undefined ? undefined : prefixParameter('after', after);
        const steps = selectSorted(entries, sort, first, sorted);
        await limitSorts(c, () => runWhileConnected(c, gate, steps));
        entries = sorted;
      }
      return { name, revision, view, items: documents(model, entries) };
    });
    return answerJSON(c, page);
  });
  app.openapi(COUNT_PREFIXES, async (c) => {
    const query = c.req.valid('query');
    if (Object.keys(query).length === 0) {
      const { entries, shadowed } = model.ipcache.status();
      return answerJSON(c, { count: entries - shadowed, revision: feed.revision });
    }
    const { snapshot } = views.snapshot('current');
    return answerJSON(c, await countItems(c, context, matching(model, snapshot, parseFilters(query, model))));
  });
}

/** Adds the routes of single IPs and CIDRs. */
function addKeyRoutes(app: ApiApp, { model, clock, gate }: RouteContext): void {
  const { ipcache } = model;
  const pastOf = async (key: string, at: string, requested: string) =>
    effectiveMoment(requested, at, await prefixMoment(model, clock, key, at));
  app.openapi(LOOKUP, async (c) => {
    const { ip } = c.req.valid('param');
    const { at } = c.req.valid('query');
    if (at !== undefined) return answerJSON(c, pastEntry(await pastOf(endpointParameter(ip), at, ip), model));
    const entry = ipcache.lookup(endpointParameter(ip));
    if (entry === undefined) throw unknownProblem(ip);
    return answerJSON(c, entryDocument(entry, model));
  });
  app.openapi(EXPLAIN_IP, async (c) => {
    const { ip } = c.req.valid('param');
    const { at } = c.req.valid('query');
    if (at !== undefined)
      return answerJSON(c, pastExplanation(await pastOf(endpointParameter(ip), at, ip), model));
    const address = endpointParameter(ip);
    const roles: AddressRoleDocument[] = [];
    await runWhileConnected(c, gate, addressRoles(model, address, roles));
    return answerJSON(c, explainIP(model, ip, address, roles));
  });
  app.openapi(EXPLAIN_CIDR, async (c) => {
    const { ip, length } = c.req.valid('param');
    const cidr = prefixParameter('ip', `${ip}/${length}`).toString();
    const { at } = c.req.valid('query');
    if (at !== undefined) return answerJSON(c, pastExplanation(await pastOf(cidr, at, cidr), model));
    return answerJSON(c, explainKey(model, cidr, ipcache.lookupByPrefix(cidr)));
  });
}

/** Returns the claims on the prefix of an IP, and the roles of the IP. An IP with a role may have no prefix. */
function explainIP(
  model: ReadModel,
  requested: string,
  ip: string,
  roles: readonly AddressRoleDocument[],
): ExplanationDocument {
  const entry = model.ipcache.lookup(ip);
  if (entry === undefined && roles.length > 0)
    return { prefix: Prefix.parse(ip)?.toString() ?? ip, claims: [], roles };
  return { ...explainKey(model, requested, entry), roles };
}

function explainKey(model: ReadModel, requested: string, entry: KeyedEntry | undefined): ExplanationDocument {
  const explanation = entry && model.ipcache.explain(entry.key);
  const document = explanation && explanationDocument(explanation, model);
  if (document === undefined) throw unknownProblem(requested);
  const kernel = model.datapath?.kernelEntry(document.prefix);
  return kernel === undefined ? document : { ...document, kernel };
}

/** Throws `ProblemError` if `sort`, `after` or `offset` contradicts another parameter. */
function checkOrder(query: Readonly<Record<string, string | number | undefined>>): void {
  // `readPage` refuses `continue` with any of these.
  const { at, sort, after, offset, limit: _, ...filters } = query;
  const refuse = (field: string, why: string): never => {
    throw invalidParameter(field, String(query[field]), why);
  };
  if (sort !== undefined && at !== undefined) refuse('sort', 'cannot be combined with at');
  if (after !== undefined && sort !== 'prefix' && sort !== '-prefix')
    refuse('after', 'requires sort=prefix or sort=-prefix');
  const isFiltered = Object.values({ at, sort, ...filters }).some((value) => value !== undefined);
  if (offset !== undefined && isFiltered) refuse('offset', 'cannot be combined with filters, sort and at');
}

/** Yields the document of each entry, and `undefined` for each entry that was read but does not match. */
function* documents(
  model: ReadModel,
  entries: Iterable<KeyedEntry | undefined>,
): Generator<EntryDocument | undefined, void, void> {
  for (const entry of entries) yield entry && entryDocument(entry, model);
}
